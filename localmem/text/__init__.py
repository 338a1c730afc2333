"""Dialogues as text: how they are written out, cut into passages, compressed and parsed."""
