"""Texts to vectors: an encoder over a local folder, and a cache of passages in front of any encoder.

Does not depend on units, indexes or stores. The store provides the cache's table through the EmbeddingCache contract.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localmem.batching import Batched
from localmem.errors import BadVectors, ModelMissing
from localmem.llm.device import Dtype, fastest_cpu_dtype, no_progress_bar, one_at_a_time, resolve_device, resolve_dtype
from localmem.llm.wrappers import is_background
from localmem.retrieval.base import EmbeddingCache, Encoder, ReadsAhead, Side, passage_digest
from localmem.retrieval.bert import BertEncoder, read_layout, weights_checksum

log = logging.getLogger(__name__)

Rows = NDArray[np.float32]
_CPU_BATCH, _GPU_BATCH = 16, 128  # texts a batch; 16 was fastest of 4 to 128 for MiniLM on two cores
# Passages that a background thread encodes in one call, in place of a batch: then a waiting question gets its turn.
_BACKGROUND_BATCH = 4
QUERY_FOLDER = "query"  # in the folder of an encoder of passages: the encoder of queries that was trained with it
_RECENT = 1024  # rows that are remembered: of the sentences of all users' turns at the moment, 1.5 MB
_Embedded = tuple[Rows, bool]  # one row, and whether its text was truncated


def check_vectors(rows: Rows, identity: str) -> Rows:
    """`rows` unchanged, if an index can hold them: rows of unit length, or of zeros for an empty text.

    Raises BadVectors for others, NaN above all.
    """
    if rows.ndim != 2:
        raise BadVectors(f"{identity} returned an array of shape {rows.shape}; expected one row for each text")
    invalid = np.flatnonzero(~_is_searchable(rows))
    if len(invalid):
        length = np.linalg.norm(rows[invalid[0]])
        raise BadVectors(
            f"{identity} returned {len(invalid)} of {len(rows)} vectors that are not of unit length (one has {length});"
            " verify its weights with `localmem models verify`, or set retrieval.device to cpu"
        )
    return rows


def _is_searchable(rows: Rows) -> NDArray[np.bool_]:
    norms = np.linalg.norm(np.atleast_2d(rows), axis=1)
    valid: NDArray[np.bool_] = (np.abs(norms - 1) < 1e-3) | (norms == 0)  # NaN is neither
    return valid


class _Model(Protocol):
    """Loaded weights. `window` is in tokens; `encode` gives unit rows, and for each text whether it was truncated."""

    window: int | None
    dimension: int

    @property
    def on_cpu(self) -> bool: ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]: ...

    def encode(self, texts: Sequence[str]) -> tuple[Rows, list[bool]]: ...


class SentenceEncoder:
    """An encoder in a local folder, as sentence-transformers saves it; a plain transformers folder is mean-pooled.

    A BERT runs on BertEncoder, which loads in milliseconds for a question; sentence-transformers runs everything else.
    Rows are made unit length whatever the model does: one that was trained for dot products (Contriever, the "dot"
    models) is compared by cosines too, so that no text gains by the length of its vector, all scores are on one scale,
    and the index can bound its rounding.

    The weights load when first needed, once a process; a missing folder is an error at once. `checksum` is the sha256
    of the weights' file, computed if it is not given. `prefixes` go before the text of each side. `max_length` (tokens)
    narrows the model's own window: a longer text is truncated, counted in `truncated`, and a warning is logged.
    `device` is auto, cpu, cuda or cuda:N; auto is the GPU where there is one, and the CPU for a few texts.
    `dtype` auto is float16 on a GPU and on a CPU bfloat16 if it computes in that
    (up to three times as many texts a second, recall within 0.003: benchmark/results/cpu-time.md),
    else float32. Calls of many threads join; `batch_size` texts go through the model at once, by default 16 on a CPU,
    whose caches that fits, and 128 on a GPU. It `remembers` the rows of the last texts.
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
        remembers: bool = True,
    ) -> None:
        if not any((path / file).is_file() for file in ("modules.json", "config.json")):
            raise ModelMissing(f"encoder {name} is not at {path}; get it with `localmem models pull {name}`")
        self.name = name
        self.truncated = 0
        self._path = path
        self._checksum = checksum
        self._device = device
        self._dtype: Dtype = dtype
        self._prefixes = dict(prefixes or {})
        self._batch_size = batch_size
        self._max_length = max_length
        self._loading = threading.Lock()
        self._loaded: _Model | None = None
        self._remembers = remembers
        self._recent: OrderedDict[str, Rows] = OrderedDict()
        self._guard = threading.Lock()
        self._batched = Batched(self._encode_batches, limit=batch_size or _CPU_BATCH)

    @property
    def identity(self) -> str:
        """Name, weights, window and passage prefix: what a stored vector depends on. Device and dtype do not count."""
        if self._checksum is None:
            self._checksum = _weights_checksum(self._path)
        settings = f"{self._max_length}\0{self._prefixes.get('passage', '')}"
        return f"{self.name}@{self._checksum[:16]}/{sha256(settings.encode()).hexdigest()[:8]}"

    @property
    def dimension(self) -> int:
        return self._model().dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, dimension) float32 rows of unit length, in the order of `texts`. Longer texts are truncated."""
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        prefix = self._prefixes.get(side, "")
        texts = [prefix + text for text in texts]
        digests = {text: passage_digest(text) for text in texts}  # what was erased stays nowhere
        with self._guard:  # what a turn tells is compared with older statements first, and then indexed
            rows = {text: self._recent[digest] for text, digest in digests.items() if digest in self._recent}
        missing = [text for text in dict.fromkeys(texts) if text not in rows]
        by_length = sorted(missing, key=len)
        step = _BACKGROUND_BATCH if is_background() else self._size(len(missing))
        embedded = list[_Embedded]()
        for start in range(0, len(missing), step):
            embedded += self._batched(by_length[start : start + step])
        self._count_truncated(sum(truncated for _, truncated in embedded))
        rows.update((text, row) for text, (row, _) in zip(by_length, embedded, strict=True))
        with self._guard:
            self._recent.update((digests[text], rows[text]) for text in missing[-_RECENT:] if self._remembers)
            while len(self._recent) > _RECENT:
                self._recent.popitem(last=False)
        return np.stack([rows[text] for text in texts])

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Encode passages that are asked for in parts in a moment."""
        self.encode(texts, "passage")

    def _count_truncated(self, count: int) -> None:
        """Logs the first, the tenth, the hundredth ...; no warning, as long replies are cut in any conversation."""
        if not count:
            return
        previous, self.truncated = self.truncated, self.truncated + count
        if not previous or len(str(self.truncated)) > len(str(previous)):
            window = self._model().window
            log.info("%s: texts truncated to its window of %s tokens: %d", self.name, window, self.truncated)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._model().count_tokens(texts)

    def _model(self) -> _Model:
        with self._loading:
            if self._loaded is None:
                layout = read_layout(self._path)
                if layout:
                    self._loaded = BertEncoder(self._path, layout, self._device, self._dtype, self._max_length)
                else:
                    self._loaded = _SentenceTransformers(self._path, self._device, self._dtype, self._max_length)
            return self._loaded

    def _size(self, count: int) -> int:
        """How many of so many texts are a batch. More go batch by batch: another thread's question gets in between."""
        if self._batch_size:
            return self._batch_size
        return _CPU_BATCH if count <= _CPU_BATCH or self._model().on_cpu else _GPU_BATCH  # what asks imports torch

    def _encode_batches(self, texts: list[str]) -> list[_Embedded]:
        """Batches of texts of similar length, so that little of a batch is padding."""
        model, size = self._model(), self._size(len(texts))
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        embedded: dict[int, _Embedded] = {}
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            rows, truncated = model.encode([texts[index] for index in batch])
            embedded.update(zip(batch, zip(rows, truncated, strict=True), strict=True))
        return [embedded[index] for index in range(len(texts))]


class _SentenceTransformers:
    """A folder of any other architecture, loaded by sentence-transformers."""

    def __init__(self, path: Path, device: str, dtype: Dtype, max_length: int | None) -> None:
        with one_at_a_time(), no_progress_bar():
            from sentence_transformers import SentenceTransformer

            resolved = resolve_device(device)
            self._model = SentenceTransformer(
                str(path),
                device=resolved,
                local_files_only=True,
                trust_remote_code=False,
                model_kwargs={"dtype": resolve_dtype(dtype, resolved, cpu=fastest_cpu_dtype())},
            ).eval()
        if max_length is not None:
            self._model.max_seq_length = min(self._model.max_seq_length or max_length, max_length)
        self.window: int | None = self._model.max_seq_length
        self.dimension = int(self._model.get_embedding_dimension() or 0)
        self.on_cpu = resolved == "cpu"

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        tokenizer = self._model.tokenizer
        return [len(tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in texts]

    def encode(self, texts: Sequence[str]) -> tuple[Rows, list[bool]]:
        import torch

        model, texts = self._model, list(texts)
        with torch.inference_mode():
            features = model.preprocess(texts)
            # Only a text that fills the window can be truncated, so only those are tokenised a second time.
            full = features["attention_mask"].sum(dim=1) >= (self.window or features["input_ids"].shape[1] + 1)
            features = {
                key: value.to(model.device) if hasattr(value, "to") else value for key, value in features.items()
            }
            vectors = torch.nn.functional.normalize(model(features)["sentence_embedding"].float(), dim=1)
        rows: Rows = vectors.cpu().numpy()
        pairs = zip(full.tolist(), texts, strict=True)
        return rows, [is_full and self.count_tokens([text])[0] > (self.window or 0) for is_full, text in pairs]


def _weights_checksum(path: Path) -> str:
    files = sorted([*path.rglob("*.safetensors"), *path.rglob("*.bin")])
    if len(files) == 1:
        return weights_checksum(files[0])
    digest = sha256()
    for file in files:
        with file.open("rb") as stream:
            file_digest(stream, lambda: digest)
    return digest.hexdigest()


class TwoEncoders:
    """Queries by one encoder, passages by another that was trained with it (Keep Me Updated, appendix B.3)."""

    def __init__(self, query: Encoder, passage: Encoder) -> None:
        self._query, self._passage = query, passage

    @property
    def identity(self) -> str:
        """Of both: vectors of one pair are never searched by another's."""
        return f"{self._passage.identity}+{self._query.identity.partition('@')[2]}"

    @property
    def dimension(self) -> int:
        return self._passage.dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        return (self._query if side == "query" else self._passage).encode(texts, side)


class CachedEncoder:
    """`inner` with a cache: only passages that `cache` does not hold are encoded, repeated ones once a call.

    The prefix is part of the inner encoder's identity, and so of the key. Queries are not cached: they seldom repeat.
    A cached vector that is not of unit length is damaged: it is encoded again, and counted in `damaged`. As long as all
    passages are cached the inner encoder does not load.
    """

    def __init__(self, inner: Encoder, cache: EmbeddingCache) -> None:
        self.inner = inner  # also for texts that must not be stored
        self._cache = cache
        self.damaged = 0

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        if side == "query" or not texts:
            return self.inner.encode(texts, side)
        digests = [passage_digest(text) for text in texts]
        text_of = dict(zip(digests, texts, strict=True))
        vectors = self._read(list(text_of))
        missing = [digest for digest in text_of if digest not in vectors]
        if missing:
            rows = self.inner.encode([text_of[digest] for digest in missing], "passage")
            self._put(missing, rows)
            vectors.update(zip(missing, rows, strict=True))
        return np.stack([vectors[digest] for digest in digests]).astype(np.float32)

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Let `inner` encode passages together, if it remembers them. Nothing is stored: they may never be added."""
        if isinstance(self.inner, ReadsAhead):
            self.inner.read_ahead(texts)

    def put(self, texts: Sequence[str], rows: Rows) -> None:
        """Store the vectors of passages that the same encoder made elsewhere. Raises BadVectors."""
        self._put([passage_digest(text) for text in texts], rows)

    def _put(self, digests: Sequence[str], rows: Rows) -> None:
        vectors = zip(digests, check_vectors(rows, self.identity), strict=True)
        self._cache.put(self.identity, {digest: row.astype("<f4").tobytes() for digest, row in vectors})

    def _read(self, digests: Sequence[str]) -> dict[str, Rows]:
        stored = self._cache.get(self.identity, digests)
        valid = _valid_vectors(stored)
        if len(valid) < len(stored):
            count = len(stored) - len(valid)
            self.damaged += count
            log.warning("%d cached vectors of %s are damaged and are encoded again", count, self.identity)
        return valid


def _valid_vectors(stored: Mapping[str, bytes]) -> dict[str, Rows]:
    """The stored vectors that can be searched, by digest; checked together, since there may be many."""
    valid: dict[str, Rows] = {}
    for size in {len(row) for row in stored.values()}:
        if size and size % 4 == 0:
            digests = [digest for digest, row in stored.items() if len(row) == size]
            rows = np.frombuffer(b"".join(stored[digest] for digest in digests), dtype="<f4").reshape(len(digests), -1)
            valid.update((digests[index], rows[index]) for index in np.flatnonzero(_is_searchable(rows)))
    return valid
