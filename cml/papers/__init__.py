"""Published experiments: run again with the papers' settings, and set beside their figures."""

DRLIM = "Dimensionality Reduction by Learning an Invariant Mapping, Hadsell, Chopra, LeCun, CVPR 2006"
