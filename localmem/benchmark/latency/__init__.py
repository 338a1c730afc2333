"""The latency benchmark: load generator, stopwatch, figures and report."""
