"""The label distance of body poses: joints visible in both, and its kernels."""
