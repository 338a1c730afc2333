"""A classifier of text pairs in a local folder: any BERT-like model with a head, as `localmem finetune` writes it.

Knows neither operations nor segments: it gives each pair the probability of each label. The model's config carries,
under "localmem", what whoever trained it has to tell whoever uses it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localmem.batching import Batched
from localmem.errors import BadInput, MissingExtra, ModelMissing
from localmem.retrieval.encoder import place
from localmem.weights.loading import one_at_a_time

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Pairs = Sequence[tuple[str, str]]
Rows = NDArray[np.float32]

NOTES = "localmem"  # the config's field
_ON_CPU, _ON_GPU = 16, 256  # pairs a batch


class PairModel:
    """Weights load when first asked. `find` gives the folder, and raises what there is to raise when it is not there.

    `device` is auto, cpu, cuda or cuda:N; a GPU computes in bfloat16. Calls of many threads join into batches.
    """

    def __init__(self, find: Path | Callable[[], Path], *, device: str = "auto", batch: int | None = None) -> None:
        self._find = find
        self._device = device
        self._batch = batch
        self._guard = threading.Lock()
        self._loaded: _Loaded | None = None
        self._batched = Batched(self._run, limit=batch or _ON_GPU)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the columns."""
        return self._model().labels

    @property
    def notes(self) -> Mapping[str, object]:
        """What the training left in the config."""
        return self._model().notes

    def probabilities(self, pairs: Pairs) -> Rows:
        """(n, labels) float32 rows that sum to 1, in the order of `pairs`; a pair over the window is cut."""
        rows = self._batched(list(pairs))
        return np.stack(rows) if rows else np.zeros((0, len(self.labels)), dtype=np.float32)

    def _model(self) -> "_Loaded":
        with self._guard:
            if self._loaded is None:
                folder = self._find if isinstance(self._find, Path) else self._find()
                with one_at_a_time():
                    self._loaded = _Loaded(folder, self._device)
            return self._loaded

    def _run(self, pairs: list[tuple[str, str]]) -> list[Rows]:
        """Batches of pairs of like length, so that little of a batch is padding."""
        model = self._model()
        size = self._batch or (_ON_CPU if model.on_cpu else _ON_GPU)
        order = sorted(range(len(pairs)), key=lambda index: sum(map(len, pairs[index])))
        found: dict[int, Rows] = {}
        for start in range(0, len(order), size):
            part = order[start : start + size]
            found.update(zip(part, model.rows([pairs[index] for index in part]), strict=True))
        return [found[index] for index in range(len(pairs))]


class _Loaded:
    """The weights and their tokenizer."""

    def __init__(self, folder: Path, device: str) -> None:
        if not (folder / "config.json").is_file():
            raise ModelMissing(f"there is no pair classifier in {folder}; train one with `localmem finetune`")
        try:
            import torch
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise MissingExtra(f"a trained classifier needs {error.name!r}; run `pip install localmem[cpu]`") from error
        where = place(device)
        local = {"local_files_only": True, "trust_remote_code": False}
        self._tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(str(folder), **local)
        dtype = torch.float32 if where == "cpu" else torch.bfloat16
        try:
            model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
                str(folder), dtype=dtype, **local
            )
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{folder} holds no pair classifier: {reason}") from error
        self._model = model.eval().to(where)
        self._window = min(self._tokenizer.model_max_length, model.config.max_position_embeddings)
        self.on_cpu = where == "cpu"
        self.labels = tuple(model.config.id2label[number] for number in range(model.config.num_labels))
        self.notes: Mapping[str, object] = dict(getattr(model.config, NOTES, None) or {})

    def rows(self, pairs: Pairs) -> list[Rows]:
        import torch

        first, second = zip(*pairs, strict=True)
        coded = self._tokenizer(
            list(first),
            list(second),
            padding=True,
            truncation=True,
            max_length=self._window,
            return_tensors="pt",
        ).to(self._model.device)
        with torch.inference_mode():
            logits: torch.Tensor = self._model(**coded).logits
        rows: Rows = logits.float().softmax(dim=-1).cpu().numpy()
        return list(rows)
