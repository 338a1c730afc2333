"""Benchmarks of latency, load, retrieval and cost. Depends on no system, no settings and no command line."""
