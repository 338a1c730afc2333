"""The backbone: one protocol, served by vLLM or run in process. Importing this package loads no weights."""
