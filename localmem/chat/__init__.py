"""A user's conversation with one memory: what was said, what is recalled for it, and the reply."""
