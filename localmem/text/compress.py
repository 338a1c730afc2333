"""Compressors: texts lose the words that carry least, before they are indexed (SeCom, section 2.3).

Knows no system. `LLMLingua2` runs the weights of LLMLingua-2 out of a local folder: a token classifier gives each token
the probability that it is to be kept; the words with the highest stay, in their order and as they were written. It
needs none of the llmlingua package, whose constructor reads from the network and reseeds every random generator.
"""

import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput, MissingExtra, ModelMissing

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


_BATCH = 16  # windows that run at once
_KEEP = 1  # the label of tokens to be kept, as LLMLingua-2's weights have it


class RandomDrop:
    """Keeps words at random: the control that any compressor has to beat. One seed and text, one result."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        """Each text with `rate` of its words (rounded up), in their order."""
        _check(rate)
        return [self._dropped(text, rate) for text in texts]

    def _dropped(self, text: str, rate: float) -> str:
        words = text.split()
        draw = random.Random(f"{self._seed}/{text}")  # noqa: S311  # no secret
        kept = sorted(draw.sample(range(len(words)), math.ceil(rate * len(words))))
        return " ".join(words[number] for number in kept)


@dataclass(frozen=True, slots=True)
class _Word:
    """A word of a text: where it stands, and the ids of its tokens."""

    start: int
    end: int
    ids: tuple[int, ...]


class LLMLingua2:
    """LLMLingua-2, or any classifier of tokens into (drop, keep), in a local folder.

    `find` gives the folder and is asked when weights are first needed, so that a memory can be opened without them;
    what it raises, ModelMissing above all, is raised then. `device` is auto, cpu, cuda or cuda:N.
    """

    def __init__(self, find: Path | Callable[[], Path], *, device: str = "auto") -> None:
        self._find = find
        self._device = device
        self._lock = threading.Lock()
        self._loaded: _Scorer | None = None

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        """Each text with about `rate` of its tokens, whole words only; raises ModelMissing, MissingExtra."""
        _check(rate)
        scorer = self._scorer()
        words = [scorer.words(text) for text in texts]
        scores = iter(scorer.scores(words))
        return [
            _joined(text, _best(held, [next(scores) for _ in held], rate))
            for text, held in zip(texts, words, strict=True)
        ]

    def _scorer(self) -> "_Scorer":
        with self._lock:
            if self._loaded is None:
                folder = self._find if isinstance(self._find, Path) else self._find()
                self._loaded = _Scorer(folder, self._device)
            return self._loaded


class _Scorer:
    """The weights: text to words, words to the probability that they are kept."""

    def __init__(self, folder: Path, device: str) -> None:
        if not folder.is_dir():
            raise ModelMissing(f"there is no compressor in {folder}; `localmem models list` says which model it needs")
        try:
            import torch
            from transformers import AutoModelForTokenClassification, AutoTokenizer
        except ImportError as error:
            raise MissingExtra(f"compression needs {error.name!r}; run `pip install localmem[cpu]`") from error
        auto = "cuda" if torch.cuda.is_available() else "cpu"
        local = {"local_files_only": True, "trust_remote_code": False}
        self._tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(str(folder), use_fast=True, **local)
        model: PreTrainedModel = AutoModelForTokenClassification.from_pretrained(str(folder), **local)
        if model.config.num_labels != _KEEP + 1:
            raise BadInput(f"{folder} has {model.config.num_labels} labels; a compressor has two, drop and keep")
        self._model = model.eval().to(auto if device == "auto" else device)
        self._window = _window(self._tokenizer.model_max_length, model.config.max_position_embeddings)

    def words(self, text: str) -> list[_Word]:
        """The text's words as the tokenizer cuts them, none longer than a window."""
        coded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        tokens = zip(coded.word_ids(), coded["input_ids"], coded["offset_mapping"], strict=True)
        return [word for _, run in groupby(tokens, key=itemgetter(0)) for word in self._pieces(list(run))]

    def scores(self, texts: Sequence[Sequence[_Word]]) -> list[float]:
        """For each word of each text the mean over its tokens of the probability that they are kept."""
        windows = [window for words in texts for window in _windows(words, self._window)]
        found: list[float] = []
        for start in range(0, len(windows), _BATCH):
            found += self._run(windows[start : start + _BATCH])
        return found

    def _pieces(self, run: "list[tuple[int | None, int, tuple[int, int]]]") -> Iterator[_Word]:
        for start in range(0, len(run), self._window):
            piece = run[start : start + self._window]
            yield _Word(piece[0][2][0], piece[-1][2][1], tuple(token for _, token, _ in piece))

    def _run(self, windows: Sequence[Sequence[_Word]]) -> list[float]:
        import torch

        rows = [self._framed(window) for window in windows]
        longest = max(map(len, rows))
        pad = self._tokenizer.pad_token_id or 0
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in rows], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self._model.device)
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=ids, attention_mask=mask).logits
        kept = logits.float().softmax(dim=-1)[:, :, _KEEP].cpu().tolist()
        return [mean for window, row in zip(windows, kept, strict=True) for mean in _means(window, row[1:])]

    def _framed(self, window: Sequence[_Word]) -> list[int]:
        ids = [token for word in window for token in word.ids]
        return [self._tokenizer.cls_token_id, *ids, self._tokenizer.sep_token_id]


def _window(stated: int, positions: int) -> int:
    """Tokens of a window beside the two that frame it. RoBERTa's tables hold two positions more than it can use."""
    return min(stated, positions - 2 if positions % 2 == 0 and positions % 512 == 2 else positions, 512) - 2


def _windows(words: Sequence[_Word], size: int) -> Iterator[list[_Word]]:
    window: list[_Word] = []
    used = 0
    for word in words:
        if used + len(word.ids) > size:
            yield window
            window, used = [], 0
        window.append(word)
        used += len(word.ids)
    if window:
        yield window


def _means(window: Sequence[_Word], kept: Sequence[float]) -> Iterator[float]:
    start = 0
    for word in window:
        yield sum(kept[start : start + len(word.ids)]) / len(word.ids)
        start += len(word.ids)


def _best(words: Sequence[_Word], scores: Sequence[float], rate: float) -> list[_Word]:
    """The words with the highest scores that hold `rate` of the tokens, in their order; of equals the first."""
    wanted = rate * sum(len(word.ids) for word in words)
    kept: list[int] = []
    for number in sorted(range(len(words)), key=lambda n: -scores[n]):
        if wanted <= 0:
            break
        kept.append(number)
        wanted -= len(words[number].ids)
    return [words[number] for number in sorted(kept)]


def _joined(text: str, words: Sequence[_Word]) -> str:
    """What stands in the text at these words, with one space wherever something was left out or stood between."""
    kept = ""
    end = 0
    for word in words:
        gap = "" if word.start == end or not kept else " "
        kept += gap + text[word.start : word.end].strip()
        end = word.end
    return kept


def _check(rate: float) -> None:
    if not 0 < rate <= 1:
        raise BadInput(f"a compression rate of {rate} cannot be; give a share of the tokens above 0, at most 1")
