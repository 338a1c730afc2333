"""Texts to vectors: sentence-transformers over a local folder, and a cache of passages in front of any encoder.

Knows nothing of units, indexes or stores. The store lends the cache its table through the EmbeddingCache contract.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from localmem.batching import Batched
from localmem.errors import BadSettings, BadVectors, ModelMissing
from localmem.llm.background import behind
from localmem.llm.device import has_bfloat16
from localmem.retrieval.base import Encoder, Side
from localmem.weights.loading import one_at_a_time

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

log = logging.getLogger(__name__)

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Rows = NDArray[np.float32]
_ON_CPU, _ON_GPU = 16, 128  # texts a batch; 16 was fastest of 4 to 128 for MiniLM on two cores
_BEHIND = (
    4  # texts of a session that is being remembered, after which whoever waits for a question's vector comes first
)
_Coded = tuple[Rows, bool]  # one row, and whether its text was cut


def checked(rows: Rows, identity: str) -> Rows:
    """`rows` as they are, if an index can hold them: rows of unit length, or of zeros for a text of nothing.

    Raises BadVectors, for NaN above all.
    """
    if rows.ndim != 2:
        raise BadVectors(f"{identity} gave an array of shape {rows.shape}; an encoder gives one row a text")
    bad = np.flatnonzero(~_searchable(rows))
    if len(bad):
        length = np.linalg.norm(rows[bad[0]])
        raise BadVectors(
            f"{identity} gave {len(bad)} of {len(rows)} vectors that are not of unit length (one has {length}); "
            "verify its weights with `localmem models verify`, or set dtype to float32"
        )
    return rows


def _searchable(rows: Rows) -> NDArray[np.bool_]:
    norms = np.linalg.norm(np.atleast_2d(rows), axis=1)
    fine: NDArray[np.bool_] = (np.abs(norms - 1) < 1e-3) | (norms == 0)  # NaN is neither
    return fine


class SentenceEncoder:
    """An encoder in a local folder, as sentence-transformers saves it; a plain transformers folder is mean-pooled.

    Rows are made unit length whatever the model does: one that was trained for dot products (Contriever, the "dot"
    models) is compared by cosines too, so that no text gains by the length of its vector, all scores are on one scale,
    and the index can bound its rounding.

    The weights load when first needed, once a process; a missing folder is an error at once. `checksum` is the sha256
    of the weights' file, computed if it is not given. `prefixes` go before the text of each side. `max_length` (tokens)
    narrows the model's own window: a longer text is cut at its end, counted in `cut`, and warned of.
    `device` is auto, cpu, cuda or cuda:N. `dtype` auto is float16 on a GPU and on a CPU bfloat16 if it computes in that
    (up to three times as many texts a second, recall within 0.003: latency-costs.md),
    else float32. Calls of many threads join; `batch_size` texts go through the model at once, by default 16 on a CPU,
    whose caches that fits, and 128 on a GPU.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        checksum: str | None = None,
        device: str = "auto",
        dtype: Dtype = "auto",
        prefixes: Mapping[Side, str] | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
    ) -> None:
        if not any((path / file).is_file() for file in ("modules.json", "config.json")):
            raise ModelMissing(f"encoder {name} is not at {path}; get it with `localmem models pull {name}`")
        self.name = name
        self.cut = 0
        self._path = path
        self._checksum = checksum
        self._device = device
        self._dtype = dtype
        self._prefixes = dict(prefixes or {})
        self._batch_size = batch_size
        self._max_length = max_length
        self._loading = threading.Lock()
        self._loaded: SentenceTransformer | None = None
        self._batched = Batched(self._run, limit=batch_size or _ON_GPU)

    @property
    def identity(self) -> str:
        """Name, weights, window and passage prefix: what a stored vector depends on. Device and dtype do not count."""
        if self._checksum is None:
            self._checksum = _weights_checksum(self._path)
        settings = f"{self._max_length}\0{self._prefixes.get('passage', '')}"
        return f"{self.name}@{self._checksum[:16]}/{sha256(settings.encode()).hexdigest()[:8]}"

    @property
    def dimension(self) -> int:
        return int(self._model().get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, dimension) float32 rows of unit length, in the order of `texts`. Texts over the window are cut."""
        prefix = self._prefixes.get(side, "")
        step = _BEHIND if behind() else max(len(texts), 1)
        coded = [
            row
            for at in range(0, len(texts), step)
            for row in self._batched([prefix + t for t in texts[at : at + step]])
        ]
        if not coded:
            return np.zeros((0, self.dimension), dtype=np.float32)
        self._count_cut(sum(was_cut for _, was_cut in coded))
        return np.stack([row for row, _ in coded])

    def _count_cut(self, cut: int) -> None:
        """Warns of the first, the tenth, the hundredth …: one who reads long texts would hear of nothing else."""
        if not cut:
            return
        before, self.cut = self.cut, self.cut + cut
        if not before or len(str(self.cut)) > len(str(before)):
            window = self._model().max_seq_length
            log.warning("%s: %d texts so far were cut to its window of %s tokens", self.name, self.cut, window)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, with those that the model puts around it, and before anything is cut."""
        tokenizer = self._model().tokenizer
        return [len(tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in texts]

    def _model(self) -> "SentenceTransformer":
        with self._loading, one_at_a_time():
            if self._loaded is None:
                self._loaded = _load(self._path, self._device, self._dtype)
                if self._max_length is not None:
                    window = self._loaded.max_seq_length or self._max_length
                    self._loaded.max_seq_length = min(window, self._max_length)
            return self._loaded

    def _run(self, texts: list[str]) -> list[_Coded]:
        """Batches of texts of like length, so that little of a batch is padding."""
        model = self._model()
        size = self._batch_size or (_ON_CPU if model.device.type == "cpu" else _ON_GPU)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        coded: dict[int, _Coded] = {}
        for start in range(0, len(order), size):
            part = order[start : start + size]
            coded.update(zip(part, _forward(model, [texts[index] for index in part]), strict=True))
        return [coded[index] for index in range(len(texts))]


def _load(path: Path, device: str, dtype: Dtype) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer

    where = place(device)
    with no_progress_bar():
        model = SentenceTransformer(
            str(path),
            device=where,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"dtype": numbers(dtype, where, on_cpu="bfloat16" if has_bfloat16() else "float32")},
        )
    return model.eval()


def numbers(dtype: Dtype, where: str, *, on_cpu: Dtype = "float32") -> "torch.dtype":
    """The kind of number that weights are kept as on a device: for "auto" `on_cpu` on a CPU, else float16."""
    import torch

    chosen = (on_cpu if where == "cpu" else "float16") if dtype == "auto" else dtype
    kind: torch.dtype = getattr(torch, chosen)
    return kind


def place(device: str) -> str:
    """Where weights go: the device that is asked for, or the best there is. Raises BadSettings for one not there."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    known = device == "cpu" or (device.partition(":")[0] == "cuda" and torch.cuda.is_available())
    if not known:
        raise BadSettings(f"weights cannot run on device {device!r} here; use cpu, or auto for what there is")
    return device


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Draw no bar while weights load: transformers draws one whoever is watching."""
    from transformers.utils import logging as switch

    shown = switch.is_progress_bar_enabled()
    switch.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            switch.enable_progress_bar()


def _forward(model: "SentenceTransformer", texts: list[str]) -> list[_Coded]:
    import torch

    with torch.inference_mode():
        features = model.preprocess(texts)
        full = features["attention_mask"].sum(dim=1) >= (model.max_seq_length or features["input_ids"].shape[1] + 1)
        features = {key: value.to(model.device) if hasattr(value, "to") else value for key, value in features.items()}
        vectors = torch.nn.functional.normalize(model(features)["sentence_embedding"].float(), dim=1)
    rows: Rows = vectors.cpu().numpy()
    return [(row, bool(at) and _is_cut(model, text)) for row, at, text in zip(rows, full, texts, strict=True)]


def _is_cut(model: "SentenceTransformer", text: str) -> bool:
    """Whether a text that fills the window goes on beyond it."""
    tokens = model.tokenizer(text, truncation=False, verbose=False)["input_ids"]
    return len(tokens) > (model.max_seq_length or len(tokens))


def _weights_checksum(path: Path) -> str:
    digest = sha256()
    for file in sorted([*path.rglob("*.safetensors"), *path.rglob("*.bin")]):
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def passage_digest(text: str) -> str:
    """The key of a passage's content in the cache."""
    return sha256(f"passage\0{text}".encode()).hexdigest()


def _sound(kept: Mapping[str, bytes]) -> dict[str, Rows]:
    """Those of the kept vectors that can be searched, by their digests; looked at together, for there may be many."""
    sound: dict[str, Rows] = {}
    for size in {len(row) for row in kept.values()}:
        if size and size % 4 == 0:
            digests = [digest for digest, row in kept.items() if len(row) == size]
            rows = np.frombuffer(b"".join(kept[digest] for digest in digests), dtype="<f4").reshape(len(digests), -1)
            sound.update((digests[at], rows[at]) for at in np.flatnonzero(_searchable(rows)))
    return sound


class EmbeddingCache(Protocol):
    """Vectors of passages by encoder and content. Safe for use from many threads."""

    def get(self, identity: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """What is kept of these: the bytes of float32 vectors, little-endian."""
        ...

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        """Keep these, in place of what is there already: it may be damaged."""
        ...


class CachedEncoder:
    """`inner`, asked only for passages that `cache` does not hold; a text that comes twice in a call is encoded once.

    The prefix is part of the inner encoder's identity, and so of the key. Queries are not kept: they seldom come again.
    A kept vector that is not of unit length is damaged: it is made anew, and counted in `damaged`. When all are kept,
    the inner encoder need not load.
    """

    def __init__(self, inner: Encoder, cache: EmbeddingCache) -> None:
        self._inner = inner
        self._cache = cache
        self.damaged = 0

    @property
    def inner(self) -> Encoder:
        """The encoder without the cache: for texts of which nothing may be kept."""
        return self._inner

    @property
    def identity(self) -> str:
        return self._inner.identity

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """As the inner encoder's. Raises BadVectors rather than keep a vector that is no number."""
        if side == "query" or not texts:
            return self._inner.encode(texts, side)
        digests = [passage_digest(text) for text in texts]
        text_of = dict(zip(digests, texts, strict=True))
        kept = self._kept(list(text_of))
        missing = [digest for digest in text_of if digest not in kept]
        if missing:
            kept.update(self._made(missing, [text_of[digest] for digest in missing]))
        return np.stack([kept[digest] for digest in digests]).astype(np.float32)

    def _kept(self, digests: Sequence[str]) -> dict[str, Rows]:
        found = self._cache.get(self.identity, digests)
        sound = _sound(found)
        if len(sound) < len(found):
            self.damaged += len(found) - len(sound)
            log.warning("%d kept vectors of %s are damaged and are made anew", len(found) - len(sound), self.identity)
        return sound

    def _made(self, digests: Sequence[str], texts: Sequence[str]) -> dict[str, Rows]:
        rows = checked(self._inner.encode(texts, "passage"), self.identity)
        made = dict(zip(digests, rows, strict=True))
        self._cache.put(self.identity, {digest: row.astype("<f4").tobytes() for digest, row in made.items()})
        return made
