"""An LLM behind a vLLM server, and a server of our own: its command, its process, its requests."""
