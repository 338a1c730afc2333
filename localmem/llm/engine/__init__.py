"""What decodes answers in this process: rows, their formats and samplers, the keys and values, the steps."""
