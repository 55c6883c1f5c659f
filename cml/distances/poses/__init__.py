"""Label distances of body poses, and what they have in common: joints visible in both."""
