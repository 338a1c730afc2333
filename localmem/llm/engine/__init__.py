"""Decoding in this process: rows with their formats and samplers, the cache of keys and values, the steps."""
