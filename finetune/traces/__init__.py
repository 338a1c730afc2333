"""Traces of a teacher: collection, import, filtering and judging."""
