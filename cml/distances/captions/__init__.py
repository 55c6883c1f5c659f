"""The label distance of captions: sums of least Word Mover's Distances, exact, and its lower bound."""
