"""Published experiments: run again with the papers' settings, and set beside their figures."""
