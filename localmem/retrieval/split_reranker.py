"""A small reranker in a folder of its own: the upper layers of an encoder and a head, over the encoder that it names.

`reranker.json` holds the settings, `reranker.safetensors` the weights: linear layers as int8 rows with a scale each,
which is also how they are computed, the rest as float16. On two CPU cores a search reranks 20 exchanges in tens of
milliseconds, most of all once their texts were read before. Runs on the CPU.
"""

import json
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from localmem.errors import BadSettings, BadVectors, ModelDamaged
from localmem.files import read_json
from localmem.retrieval.bert import read_layout, read_weights
from localmem.retrieval.bm25 import words
from localmem.retrieval.languages import detect_language
from localmem.weights.folder import checksum, model_path
from localmem.weights.manifest import Manifest

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from localmem.retrieval.pair_network import Linear, PairNetwork, PairShape

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

        self._query, self._text = (Tokenizer.from_file(str(base / "tokenizer.json")) for _ in range(2))
        for tokenizer, window in ((self._query, settings.query_window), (self._text, settings.text_window)):
            tokenizer.no_padding()
            tokenizer.enable_truncation(window)

    def queries(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each query."""
        return _encode(self._query, texts)

    def texts(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text."""
        return _encode(self._text, texts)


def _encode(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]


class SplitReranker:
    """Scores from 0 to 1 by the network in a folder. The weights load when first needed; threads wait for one another.

    Raises ModelMissing without the encoder that it is based on, BadSettings for one with other weights.
    """

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self._folder = folder
        self._settings = read_json(folder / SETTINGS, RerankerSettings)
        entry = Manifest.load().models.get(self._settings.base)
        self._languages = entry.languages if entry else ()
        self._guard = threading.Lock()
        self._loaded: tuple[PairTokenizer, PairNetwork] | None = None
        self._states: OrderedDict[bytes, Tensor] = OrderedDict()
        self._tokens = 0

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """How likely each text is to answer the query. Raises BadVectors for scores that are not finite.

        A query in a language that the base does not know says nothing: every text has the same score.
        """
        language = detect_language(query, words(query)) if self._languages else None
        if not texts or (language is not None and language not in self._languages):
            return [_UNKNOWN] * len(texts)
        import torch

        with self._guard, torch.inference_mode():
            tokenizer, network = self._load()
            read = self._read(tokenizer, network, texts)
            (first,) = network.read(tokenizer.queries([query]))
            logits = network.compare([(first, states) for states in read]).numpy()
        scores = 1 / (1 + np.exp(-(self._settings.scale * logits.astype(np.float64) + self._settings.shift)))
        if not np.isfinite(scores).all():
            raise BadVectors(f"{self.name} returned scores that are not finite; install localmem again")
        return [float(score) for score in scores]

    def _load(self) -> "tuple[PairTokenizer, PairNetwork]":
        if self._loaded is None:
            from localmem.retrieval.pair_network import PairNetwork

            base = base_folder(self._settings)
            shape, weights = base_weights(base, self._settings.split)
            stored = _read_stored(self._folder / WEIGHTS)
            weights |= {name: value for name, value in stored.items() if f"{name}{_SCALE}" not in stored}
            network = PairNetwork(shape, weights, _int8_linear(weights, stored))
            self._loaded = PairTokenizer(base, self._settings), network
        return self._loaded

    def _read(self, tokenizer: PairTokenizer, network: "PairNetwork", texts: Sequence[str]) -> "list[Tensor]":
        """The lower layers' states of the texts; those that are not cached are read together."""
        import torch

        keys = [sha256(text.encode()).digest() for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._states}
        known = {key: self._states[key] for key in keys if key in self._states}
        if missing:
            states = network.read(tokenizer.texts(list(missing.values())))
            known |= zip(missing, (state.to(torch.bfloat16) for state in states), strict=True)
        for key in keys:
            self._keep(key, known[key])
        return [known[key].float() for key in keys]  # rounded the first time too: the same search scores the same

    def _keep(self, key: bytes, states: "Tensor") -> None:
        if key not in self._states:
            self._states[key] = states
            self._tokens += len(states)
        self._states.move_to_end(key)
        while self._tokens > _CACHED_TOKENS:
            self._tokens -= len(self._states.popitem(last=False)[1])


def base_folder(settings: RerankerSettings) -> Path:
    """The encoder's folder. Raises BadSettings for weights other than those the reranker was trained on."""
    folder = Path(settings.base) if Path(settings.base).is_dir() else model_path(settings.base)
    if checksum(folder / "model.safetensors") != settings.base_sha256:
        raise BadSettings(
            f"the reranker was trained on other weights of {settings.base} than those in {folder}; pull them again"
        )
    return folder


def base_weights(folder: Path, split: int) -> "tuple[PairShape, dict[str, Tensor]]":
    """The shape of a network over this encoder, and the encoder's weights. Raises BadSettings for another kind."""
    import torch

    from localmem.retrieval.pair_network import PairShape

    layout = read_layout(folder)
    if layout is None or not 0 < split < layout.layers:
        raise BadSettings(f"{folder} is no BERT of more than {split} layers; choose another base, or another split")
    shape = PairShape(layout.layers, split, layout.heads, layout.epsilon)
    return shape, {
        name: torch.tensor(np.array(value)) for name, value in read_weights(folder / "model.safetensors").items()
    }


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


def _read_stored(file: Path) -> "dict[str, Tensor]":
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        stored = load_file(str(file))
    except (OSError, SafetensorError) as error:
        raise ModelDamaged(f"{file} cannot be read ({error}): install it again") from error
    return {name: value if value.dtype == torch.int8 else value.float() for name, value in stored.items()}


def _int8_linear(weights: "Mapping[str, Tensor]", stored: "Mapping[str, Tensor]") -> "Linear":
    """Linear layers in int8, whose inputs are quantised as they come; in float32 where the processor cannot."""
    import torch

    from localmem.retrieval.pair_network import float_linear

    def rows(name: str) -> "tuple[Tensor, Tensor]":
        """A weight as int8 rows and their scales."""
        if name in stored:
            return stored[name], stored[f"{name}{_SCALE}"]
        scales = weights[name].abs().amax(1).clamp_min(1e-8) / 127
        return (weights[name] / scales[:, None]).round().to(torch.int8), scales

    # torch means to remove this function, and the int8 layers may then be missing on some machines.
    if torch.backends.quantized.engine == "none" or not hasattr(torch, "quantize_per_channel"):
        names = [name.removesuffix(_SCALE) for name in stored if name.endswith(_SCALE)]
        return float_linear({**weights, **{name: stored[name] * stored[f"{name}{_SCALE}"][:, None] for name in names}})
    packed: dict[tuple[str, ...], object] = {}

    def pack(names: tuple[str, ...]) -> object:
        parts, scales = zip(*(rows(f"{name}.weight") for name in names), strict=True)
        values, scale = torch.cat(parts).float(), torch.cat(scales).double()
        zeros = torch.zeros(len(scale), dtype=torch.long)
        with warnings.catch_warnings():  # that it is deprecated
            warnings.simplefilter("ignore", UserWarning)
            quantised = torch.quantize_per_channel(values * scale[:, None].float(), scale, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(quantised, torch.cat([weights[f"{name}.bias"] for name in names]))

    def linear(names: tuple[str, ...], states: "Tensor") -> "Tensor":
        if names not in packed:
            packed[names] = pack(names)
        result: Tensor = torch.ops.quantized.linear_dynamic(states, packed[names])
        return result

    return linear
