"""A vLLM server of our own: its command, its process, and what ends it. `remote` speaks with it."""
