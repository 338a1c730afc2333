"""Whole measurements as functions: settings in, results on disk. The command line is a thin door to them."""
