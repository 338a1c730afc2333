"""Whole experiments as functions: settings and options in, reports and files out. They print nothing."""
