"""Summaries of sessions: by a backbone, by trained parts, or by quoting what is worth remembering."""
