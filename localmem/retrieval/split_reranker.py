"""A small reranker in a folder of its own: the upper layers of an encoder and a head, over the encoder that it names.

`reranker.json` holds the settings, `reranker.safetensors` the weights: linear layers as int8 rows with a scale each,
which is also how they are computed, the rest as float16. On two CPU cores a search reranks 20 exchanges in tens of
milliseconds, most of all once their texts were read before. Runs on the CPU.
"""

import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadSettings, BadVectors, ModelDamaged
from localmem.files import read_json
from localmem.retrieval.bert import read_layout, read_weights, weights_checksum
from localmem.retrieval.bert_model import Rows
from localmem.retrieval.bm25 import language_of
from localmem.retrieval.numpy_pairs import NumpyPairs, PairShape
from localmem.weights.folder import model_path
from localmem.weights.manifest import Manifest

if TYPE_CHECKING:
    from torch import Tensor

    from localmem.retrieval.torch_pairs import Int8Weights

HalfRows = NDArray[np.float16]

SETTINGS, WEIGHTS = "reranker.json", "reranker.safetensors"
_SCALE = ".scale"  # ends the name of the scales of an int8 weight's rows
_UNKNOWN = 0.5  # the score of texts that cannot be judged
_CACHED_TOKENS = 65_536  # of texts whose lower states are kept: 50 MB at a width of 384


@dataclass(frozen=True, slots=True)
class RerankerSettings:
    """What reranker.json holds. `query_window` and `text_window` are in tokens; the score is that of
    `scale` x the network's + `shift`, so that 0.5 stands for "as likely as not"."""

    base: str
    base_sha256: str
    split: int
    query_window: int = 32
    text_window: int = 96
    scale: float = 1.0
    shift: float = 0.0


class PairTokenizer:
    """The tokens of queries and texts; a longer one is truncated to its window."""

    def __init__(self, base: Path, settings: RerankerSettings) -> None:
        from tokenizers import Tokenizer

        self._windows = settings.query_window, settings.text_window
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is words
        self._tokenizer.enable_truncation(max(self._windows))

    def queries(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each query."""
        return self._encode(texts, self._windows[0])

    def texts(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        return self._encode(texts, self._windows[1])

    def _encode(self, texts: Sequence[str], window: int) -> list[list[int]]:
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        return [ids if len(ids) <= window else [*ids[: window - 1], ids[-1]] for ids in tokens]  # the last is a mark


class _Network(Protocol):
    """The network over token ids. States are (tokens, width), scores (texts,) and not yet probabilities."""

    def read_texts(self, texts: Sequence[Sequence[int]]) -> list[Rows]: ...

    def compare(self, query: Rows, texts: Sequence[Rows]) -> Rows: ...


class SplitReranker:
    """Scores from 0 to 1 by the network in a folder. The weights load when first needed; for many threads.

    numpy computes until another part of the process imports torch, which is then faster. Raises ModelMissing without
    the encoder that it is based on, BadSettings for one with other weights.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._folder = folder
        self._settings = read_json(folder / SETTINGS, RerankerSettings)
        entry = Manifest.load().models.get(self._settings.base)
        self._languages = entry.languages if entry else ()
        self._guard = threading.Lock()
        self._loaded: tuple[PairTokenizer, _Network] | None = None
        self._with_torch = False  # computes the loaded network
        self._states: OrderedDict[bytes, HalfRows] = OrderedDict()
        self._tokens = 0
        self._query: tuple[str, Rows | None] = ("", None)  # the latest with its states

    @property
    def query_identity(self) -> str:
        return f"{self._settings.base_sha256[:16]}/{self._settings.split}"

    def read_query(self, query: str) -> Rows | None:
        """The mean direction of the query's states after the lower layers."""
        with self._guard:
            states = self._read_query(query)
        if states is None:
            return None
        mean = states.mean(0)
        direction: Rows = mean / np.linalg.norm(mean)
        return direction

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How likely each text is to answer the query. Raises BadVectors for scores that are not finite.

        A query in a language that the base does not know says nothing: every text has the same score.
        """
        with self._guard:
            first = self._read_query(query) if texts else None
            if first is None:
                return [_UNKNOWN] * len(texts)
            tokenizer, network = self._load()
            states = self._read(tokenizer, network, texts)
        # Beside those of other threads: one comparison alone does not fill many cores.
        logits = network.compare(first, states).astype(np.float64)
        scores = 1 / (1 + np.exp(-(self._settings.scale * logits + self._settings.shift)))
        if not np.isfinite(scores).all():
            raise BadVectors(f"{self.name} returned scores that are not finite; install localmem again")
        return [float(score) for score in scores]

    def _read_query(self, query: str) -> Rows | None:
        """The lower layers' states of a query; None where the base does not know its language."""
        if self._query[0] != query:
            language = language_of(query) if self._languages else None
            states = None
            if language is None or language in self._languages:
                tokenizer, network = self._load()
                (states,) = network.read_texts(tokenizer.queries([query]))
            self._query = (query, states)
        return self._query[1]

    def _load(self) -> tuple[PairTokenizer, _Network]:
        with_torch = "torch" in sys.modules
        if self._loaded is None or with_torch != self._with_torch:
            base, file = base_folder(self._settings), self._folder / WEIGHTS
            network = _load_network(base, self._settings.split, file, with_torch=with_torch)
            self._loaded, self._with_torch = (PairTokenizer(base, self._settings), network), with_torch
        return self._loaded

    def _read(self, tokenizer: PairTokenizer, network: _Network, texts: Sequence[str]) -> list[Rows]:
        """The lower layers' states of the texts; those that are not cached are read together."""
        keys = [sha256(text.encode()).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._states}
        by_key = {key: self._states[key] for key in keys if key in self._states}
        if missing:
            states = network.read_texts(tokenizer.texts(list(missing.values())))
            by_key |= zip(missing, (state.astype(np.float16) for state in states), strict=True)
        for key in keys:
            self._keep(key, by_key[key])
        return [by_key[key].astype(np.float32) for key in keys]  # rounded at first too: the same search scores the same

    def _keep(self, key: bytes, states: HalfRows) -> None:
        if key not in self._states:
            self._states[key] = states
            self._tokens += len(states)
        self._states.move_to_end(key)
        while self._tokens > _CACHED_TOKENS:
            self._tokens -= len(self._states.popitem(last=False)[1])


def _load_network(base: Path, split: int, file: Path, *, with_torch: bool) -> _Network:
    shape, weights = _base_arrays(base, split)
    trained, stored = _trained_arrays(file)
    weights |= trained
    if not with_torch:
        return NumpyPairs(shape, weights)
    from localmem.retrieval.torch_pairs import TorchPairs

    return TorchPairs(shape, weights, stored)


def _trained_arrays(file: Path) -> "tuple[dict[str, Rows], Int8Weights]":
    """The trained weights in float32, and those of linear layers as they are stored."""
    arrays = _read_stored(file)
    stored = {name: (array, arrays[f"{name}{_SCALE}"]) for name, array in arrays.items() if array.dtype == np.int8}
    weights = {name: array.astype(np.float32) for name, array in arrays.items() if not name.endswith(_SCALE)}
    for name, (_, scales) in stored.items():
        weights[name] *= scales[:, None]
    return weights, stored


def read_reranker(folder: Path, like: RerankerSettings) -> "dict[str, Tensor]":
    """The trained weights of a reranker in float32. Raises BadSettings for one that is not over the base of `like`."""
    import torch

    settings = read_json(folder / SETTINGS, RerankerSettings)
    if (settings.base_sha256, settings.split) != (like.base_sha256, like.split):
        raise BadSettings(
            f"{folder} was trained over {settings.base}, split at {settings.split}, not over {like.base}, split at "
            f"{like.split}; choose that base and split"
        )
    return {name: torch.tensor(weight) for name, weight in _trained_arrays(folder / WEIGHTS)[0].items()}


def base_folder(settings: RerankerSettings) -> Path:
    """The encoder's folder. Raises BadSettings for weights other than those the reranker was trained on."""
    folder = Path(settings.base) if Path(settings.base).is_dir() else model_path(settings.base)
    if weights_checksum(folder / "model.safetensors") != settings.base_sha256:
        raise BadSettings(
            f"the reranker was trained on other weights of {settings.base} than those in {folder}; pull them again"
        )
    return folder


def base_weights(folder: Path, split: int) -> "tuple[PairShape, dict[str, Tensor]]":
    """The shape of a network over this encoder, and the encoder's weights. Raises BadSettings for another kind."""
    import torch

    shape, weights = _base_arrays(folder, split)
    return shape, {name: torch.tensor(np.array(value)) for name, value in weights.items()}


def _base_arrays(folder: Path, split: int) -> tuple[PairShape, dict[str, Rows]]:
    layout = read_layout(folder)
    if layout is None or not 0 < split < layout.layers:
        raise BadSettings(f"{folder} is no BERT of more than {split} layers; choose another base, or another split")
    shape = PairShape(layout.layers, split, layout.heads, layout.epsilon)
    return shape, read_weights(folder / "model.safetensors")


def save_reranker(folder: Path, settings: Mapping[str, object], trained: "Mapping[str, Tensor]") -> None:
    """Write the settings and the trained weights."""
    import torch
    from safetensors.torch import save_file

    stored: dict[str, Tensor] = {}
    for name, weight in trained.items():
        if weight.ndim == 2:
            scales = weight.abs().amax(1).clamp_min(1e-8) / 127
            stored[f"{name}{_SCALE}"] = scales.float()
            stored[name] = (weight / scales[:, None]).round().to(torch.int8)
        else:
            stored[name] = weight.half()
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.contiguous() for name, value in stored.items()}, str(folder / WEIGHTS))
    (folder / WEIGHTS).chmod(0o644)  # safetensors makes it readable by its owner only
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _read_stored(file: Path) -> dict[str, NDArray[Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(str(file))
    except (OSError, SafetensorError) as error:
        raise ModelDamaged(f"{file} cannot be read ({error}): install it again") from error
