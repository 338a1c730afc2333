"""Readers of published data sets: a file becomes episodes. One module a data set; none knows a model or a system."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from localmem.errors import BadInput
from localmem.evaluation.episodes import Dataset

# name -> the module that reads it
READERS: Mapping[str, str] = {
    name: f"localmem.evaluation.datasets.{name}"
    for name in (
        "locomo",
        "longmemeval",
        "mtbenchplus",
        "longmtbenchplus",
        "msc",
        "conversation_chronicles",
        "msc_cc",
        "coqa",
        "persona_chat",
        "carecall",
        "dulemon",
        "teabag",
        "jsonl",
    )
}


def read_dataset(name: str, path: Path) -> Dataset:
    """The data set `name` out of a file. Raises BadInput for an unknown name or a file in another form."""
    if name not in READERS:
        raise BadInput(f"there is no reader for the data set {name!r}; give one of {', '.join(READERS)}")
    data: Dataset = import_module(READERS[name]).read(path)
    return data
