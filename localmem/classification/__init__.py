"""Classifying pairs of sentences: what a new one does to a remembered one."""
