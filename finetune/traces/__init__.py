"""Traces: what a teacher was asked and answered, from collection to a filtered training set."""
