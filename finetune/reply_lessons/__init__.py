"""Generated lessons in replying from memory."""
