"""Generated lessons in answering from memory."""
