"""Checks: audits of labels, calibration, proposals of what to label next, and advice; the core knows none of them."""
