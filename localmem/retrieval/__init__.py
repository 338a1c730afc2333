"""Searching memory: encoders, dense and lexical indexes, and their fusion. Weights load only when a part is built."""
