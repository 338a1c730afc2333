"""BERT sentence encoders without transformers: one forward pass, computed by numpy or by torch.

A question is a dozen tokens, which numpy encodes in under 10 ms, while importing torch takes 1.5 s on two cores and
sentence-transformers 6 s. So a process that only asks a question imports neither; everything else goes through torch,
with its number formats and devices. Both give the vectors of sentence-transformers to 1e-5 in float32. Does not depend
on units, indexes or stores.
"""

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from localmem.llm.device import Dtype, core_count, fastest_cpu_dtype, one_at_a_time, resolve_device, resolve_dtype
from localmem.retrieval.bert_model import WORDS, BertLayout, NumpyBert, Rows, one_blas_thread
from localmem.weights.folder import checksum

if TYPE_CHECKING:
    from tokenizers import Encoding

    from localmem.retrieval.torch_bert import TorchBert

Json = Mapping[str, Any]

# Tokens of one call up to which numpy is used, while torch is not imported: they take 50 ms, importing torch 1.5 s.
# Once torch is imported it is the faster of the two, most of all in bfloat16 and for several texts together.
_FEW_TOKENS = 128
# Tokens of one call, for each core, up to which "auto" computes on the CPU although there is a GPU: the questions of
# the moment. A GPU that a backbone keeps busy takes turns between processes, and a forward pass is a
# hundred short kernels: beside vLLM a question took 124 ms (median, 8 users, H100), on two cores it takes 5 to 20.
_SOON_ON_A_CORE = 128
_MAPPED: WeakValueDictionary[tuple[Path, int], np.memmap[Any, Any]] = WeakValueDictionary()  # by file and its time
_FORMATS: Mapping[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}


def read_layout(folder: Path) -> BertLayout | None:
    """The layout of an encoder that BertEncoder can run, or None: sentence-transformers runs all others.

    That is a BERT with exact GELU, absolute positions and its tokenizer as a JSON file, pooled by mean or first token.
    """
    config, pooling = _read(folder, "config.json"), _pooling(folder)
    sentence, tokenizer = _read(folder, "sentence_bert_config.json"), _read(folder, "tokenizer_config.json")
    plain = (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not sentence.get("do_lower_case")
        and sentence.get("transformer_task", "feature-extraction") == "feature-extraction"
        and _same_normalizer(tokenizer, _read(folder, "tokenizer.json").get("normalizer") or {})
    )
    if not plain or not pooling or not (folder / "model.safetensors").is_file():
        return None
    try:
        header, _ = _header(folder / "model.safetensors")
    except (OSError, ValueError):
        return None
    if WORDS not in header or any(header[name]["dtype"] not in _FORMATS for name in header if _is_used(name)):
        return None
    longest = min(int(config["max_position_embeddings"]), int(tokenizer.get("model_max_length", sys.maxsize)))
    return BertLayout(
        dimension=int(config["hidden_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=int(config["num_attention_heads"]),
        epsilon=float(config["layer_norm_eps"]),
        window=int(sentence.get("max_seq_length") or longest),
        pooling=pooling,
    )


class BertEncoder:
    """Texts to unit vectors with the weights in `folder`. Calls of `encode` must not overlap.

    `max_length` narrows the layout's window. `device` and `dtype` are as SentenceEncoder's; numpy computes in float32,
    so it is used where both allow that.
    """

    def __init__(self, folder: Path, layout: BertLayout, device: str, dtype: Dtype, max_length: int | None) -> None:
        from tokenizers import Tokenizer

        self.layout = layout
        self.window: int | None = min(layout.window, max_length or layout.window)
        self.dimension = layout.dimension
        self._file = folder / "model.safetensors"
        self._device = device
        self._dtype: Dtype = dtype
        self._tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a text is words
        self._tokenizer.enable_truncation(min(layout.window, max_length or layout.window))
        self._guard = threading.Lock()
        self._numpy: NumpyBert | None = None
        self._torch: dict[str, TorchBert] = {}  # by device

    @property
    def on_cpu(self) -> bool:
        """Whether longer work runs on a CPU."""
        return self.torch_model().device == "cpu"

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        special = self._tokenizer.num_special_tokens_to_add(is_pair=False)
        return [
            len(encoding.ids) + sum(len(part.ids) - special for part in encoding.overflowing)
            for encoding in self._tokenizer.encode_batch(list(texts))
        ]

    def encode(self, texts: Sequence[str]) -> tuple[Rows, list[bool]]:
        encodings = self._tokenizer.encode_batch(list(texts))
        if self._suits_numpy(encodings):
            pooled = self._numpy_pool([encoding.ids for encoding in encodings])
        else:
            tokens = sum(len(encoding.ids) for encoding in encodings)
            pooled = self.torch_model(tokens).pool([encoding.ids for encoding in encodings])
        rows = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return rows.astype(np.float32), [bool(encoding.overflowing) for encoding in encodings]

    def _numpy_pool(self, texts: Sequence[Sequence[int]]) -> Rows:
        layout = self.layout
        model = self._numpy = self._numpy or NumpyBert(layout.heads, layout.epsilon, read_weights(self._file))
        with one_blas_thread():
            states = [model.read(ids, layout.layers) for ids in texts]
        return np.stack([rows[0] if layout.pooling == "cls" else rows.mean(0) for rows in states])

    def torch_model(self, tokens: int = sys.maxsize) -> "TorchBert":
        """The weights on the device that suits a call with so many tokens, loaded there when first needed."""
        with self._guard, one_at_a_time():
            from localmem.retrieval.torch_bert import PackedBert, PaddedBert

            soon = self._device == "auto" and tokens <= _SOON_ON_A_CORE * core_count()
            device = "cpu" if soon else resolve_device(self._device)
            if device not in self._torch:
                cpu = fastest_cpu_dtype() if self._dtype == "auto" and device == "cpu" else "float32"
                dtype = resolve_dtype(self._dtype, device, cpu=cpu)
                kind = PackedBert if device == "cpu" else PaddedBert
                self._torch[device] = kind(self.layout, read_weights(self._file), device, dtype)
            return self._torch[device]

    def _suits_numpy(self, encodings: "Sequence[Encoding]") -> bool:
        allowed = self._device in ("auto", "cpu") and self._dtype in ("auto", "float32")
        few = sum(len(encoding.ids) for encoding in encodings) <= _FEW_TOKENS
        return allowed and few and "torch" not in sys.modules


def read_weights(file: Path) -> dict[str, Rows]:
    """The encoder's arrays in a safetensors file as float32, mapped into memory: only what is used is read."""
    header, start = _header(file)
    mapping = (file, file.stat().st_mtime_ns)
    data = _MAPPED.get(mapping)
    if data is None:  # private to this process where it is changed, and shared by an encoder and its reranker
        data = _MAPPED[mapping] = np.memmap(file, dtype=np.uint8, mode="c", offset=start)
    weights = {}
    for name, entry in header.items():
        if _is_used(name):
            array: NDArray[Any] = data[slice(*entry["data_offsets"])].view(_FORMATS[entry["dtype"]])
            weights[name] = array.reshape(entry["shape"]).astype(np.float32, copy=False)
    return weights


def weights_checksum(file: Path) -> str:
    """The sha256 of a file, which is read once a process while it is not modified."""
    return _checksum(file, file.stat().st_mtime_ns)


@cache
def _checksum(file: Path, _modified: int) -> str:
    return checksum(file)


def _header(file: Path) -> tuple[dict[str, dict[str, Any]], int]:
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        return json.loads(stream.read(size)), 8 + size


def _is_used(name: str) -> bool:
    return name.startswith(("embeddings.", "encoder.")) and not name.endswith("position_ids")


def _read(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _pooling(folder: Path) -> str | None:
    """Mean or cls; None where the folder's modules are others than a model, such a pooling and a normalisation.

    A folder without modules is a plain transformers folder, which sentence-transformers pools by mean.
    """
    file = folder / "modules.json"
    modules = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    if not modules:
        return "mean"
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or modules[0]["path"]:
        return None
    config = _read(folder, f"{modules[1]['path']}/config.json")
    flags = [name for name, value in config.items() if name.startswith("pooling_mode_") and value]
    older = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
    mode = config.get("pooling_mode") or (older.get(flags[0]) if len(flags) == 1 else None)
    return mode if mode in ("mean", "cls") else None


def _same_normalizer(config: Json, normalizer: Json) -> bool:
    """Whether the tokenizer's file lowers and strips as its settings say: transformers follows the settings."""
    return normalizer.get("type") == "BertNormalizer" and (
        normalizer["lowercase"] == config.get("do_lower_case", True)
        and normalizer["strip_accents"] == config.get("strip_accents")
        and normalizer["handle_chinese_chars"] == config.get("tokenize_chinese_chars", True)
    )
