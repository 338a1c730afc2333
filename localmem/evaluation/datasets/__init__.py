"""Readers of published data sets: one module per data set, whose `read(path)` turns its file into a `Dataset`.

They do not depend on a model or a memory system. To add a data set:

1. Write `localmem/evaluation/datasets/NAME.py` with `read(path: Path) -> Dataset`. Its docstring states source, licence
   and every choice that the file leaves open (roles, times, halves, evidence).
2. Describe a record as a subclass of `readers.Record` and read it with `readers.read_episodes`: a wrong record then
   becomes one line with file and place. `readers` also builds sessions, probes and gold memories. Count what is odd in
   the file instead of failing on it.
3. Add NAME to `READERS` and a small sample with an odd and a wrong record to tests/evaluation/datasets.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from localmem.errors import BadInput
from localmem.evaluation.episodes import Dataset

# name -> the module that reads it
_NAMES = (
    "locomo longmemeval mtbenchplus longmtbenchplus msc conversation_chronicles msc_cc coqa persona_chat carecall "
    "dulemon teabag jsonl scenarios locomo_plus longmemeval_v2 beam personamem halumem prefeval memoryagentbench"
)
READERS: Mapping[str, str] = {name: f"localmem.evaluation.datasets.{name}" for name in _NAMES.split()}


def read_dataset(name: str, path: Path) -> Dataset:
    """The data set `name` from its file. Raises BadInput for an unknown name or a file in another form."""
    if name not in READERS:
        raise BadInput(f"there is no reader for the data set {name!r}; use one of {', '.join(READERS)}")
    dataset: Dataset = import_module(READERS[name]).read(path)
    return dataset
