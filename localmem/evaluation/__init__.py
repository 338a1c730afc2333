"""Evaluation of memory systems: data sets, runs, measures and judges.

Receives ready agents and language models. Does not depend on the memory systems, on the factory that builds them, or on
the command line; `localmem.experiments` connects them. `results/` holds what was measured, README.md the main tables.
"""

from pathlib import Path

DATA = Path(__file__).parent / "data"  # labelled verdicts, abstention cases, TeaFarm questions, operations
