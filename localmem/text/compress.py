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
from localmem.retrieval.encoder import no_progress_bar, place
from localmem.weights.loading import one_at_a_time

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

_BATCH = 16  # windows that run at once
LABELS = ("drop", "keep")
KEEP = 1  # the label of tokens to be kept, as LLMLingua-2's weights have it


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
class Word:
    """A word of a text: where it stands, and the ids of its tokens."""

    start: int
    end: int
    ids: tuple[int, ...]


class Reading:
    """How a classifier of tokens reads a text: as words, in windows of whole words. Training reads alike.

    `positions` is how many tokens its model takes.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", positions: int) -> None:
        self._tokenizer = tokenizer
        self._window = _window(tokenizer.model_max_length, positions)

    def words(self, text: str) -> list[Word]:
        """The text's words as the tokenizer cuts them, none longer than a window."""
        coded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        tokens = zip(coded.word_ids(), coded["input_ids"], coded["offset_mapping"], strict=True)
        return [word for _, run in groupby(tokens, key=itemgetter(0)) for word in self._pieces(list(run))]

    def windows(self, words: Sequence[Word]) -> Iterator[list[Word]]:
        """The words in order, as many at once as the model takes."""
        window: list[Word] = []
        used = 0
        for word in words:
            if used + len(word.ids) > self._window:
                yield window
                window, used = [], 0
            window.append(word)
            used += len(word.ids)
        if window:
            yield window

    def framed(self, window: Sequence[Word]) -> list[int]:
        """The ids of a window's tokens between the two that frame it."""
        ids = [token for word in window for token in word.ids]
        return [self._tokenizer.cls_token_id, *ids, self._tokenizer.sep_token_id]

    def _pieces(self, run: "list[tuple[int | None, int, tuple[int, int]]]") -> Iterator[Word]:
        for start in range(0, len(run), self._window):
            piece = run[start : start + self._window]
            yield Word(piece[0][2][0], piece[-1][2][1], tuple(token for _, token, _ in piece))


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
                with one_at_a_time():
                    self._loaded = _Scorer(folder, self._device)
            return self._loaded


class _Scorer:
    """The weights: text to words, words to the probability that they are kept."""

    def __init__(self, folder: Path, device: str) -> None:
        if not folder.is_dir():
            raise ModelMissing(f"there is no compressor in {folder}; `localmem models list` says which model it needs")
        try:
            where = place(device)
            from transformers import AutoModelForTokenClassification, AutoTokenizer
        except ImportError as error:
            raise MissingExtra(f"compression needs {error.name!r}; run `pip install localmem[cpu]`") from error
        local = {"local_files_only": True, "trust_remote_code": False}
        try:
            tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(str(folder), use_fast=True, **local)
            with no_progress_bar():
                model: PreTrainedModel = AutoModelForTokenClassification.from_pretrained(str(folder), **local)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{folder} holds no compressor: {reason}") from error
        _check_head(folder, model.config)
        self._model = model.eval().to(where)
        self._pad = tokenizer.pad_token_id or 0
        self._reading = Reading(tokenizer, model.config.max_position_embeddings)
        self.words = self._reading.words

    def scores(self, texts: Sequence[Sequence[Word]]) -> list[float]:
        """For each word of each text the mean over its tokens of the probability that they are kept."""
        windows = [window for words in texts for window in self._reading.windows(words)]
        found: dict[int, list[float]] = {}
        order = sorted(range(len(windows)), key=lambda number: sum(len(word.ids) for word in windows[number]))
        for start in range(0, len(order), _BATCH):  # windows of like length, so that little of a batch is padding
            part = order[start : start + _BATCH]
            found.update(zip(part, self._run([windows[number] for number in part]), strict=True))
        return [score for number in range(len(windows)) for score in found[number]]

    def _run(self, windows: Sequence[Sequence[Word]]) -> list[list[float]]:
        import torch

        rows = [self._reading.framed(window) for window in windows]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [self._pad] * (longest - len(row)) for row in rows], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=self._model.device)
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=ids, attention_mask=mask).logits
        kept = logits.float().softmax(dim=-1)[:, :, KEEP].cpu().tolist()
        return [list(_means(window, row[1:])) for window, row in zip(windows, kept, strict=True)]


def _check_head(folder: Path, config: "PretrainedConfig") -> None:
    """Raises BadInput for weights that were not trained to drop and keep: transformers would make up a head."""
    if config.num_labels != len(LABELS):
        raise BadInput(f"{folder} has {config.num_labels} labels; a compressor has two, drop and keep")
    kinds = config.architectures or []
    if not any(kind.endswith("ForTokenClassification") for kind in kinds):
        raise BadInput(
            f"{folder} holds {', '.join(kinds) or 'no named model'} and no compressor; train one from it "
            "with `localmem finetune compressor`"
        )


def _window(stated: int, positions: int) -> int:
    """Tokens of a window beside the two that frame it. RoBERTa's tables hold two positions more than it can use."""
    return min(stated, positions - 2 if positions % 2 == 0 and positions % 512 == 2 else positions, 512) - 2


def _means(window: Sequence[Word], kept: Sequence[float]) -> Iterator[float]:
    start = 0
    for word in window:
        yield sum(kept[start : start + len(word.ids)]) / len(word.ids)
        start += len(word.ids)


def _best(words: Sequence[Word], scores: Sequence[float], rate: float) -> list[Word]:
    """The words with the highest scores that hold `rate` of the tokens, in their order; of equals the first."""
    wanted = rate * sum(len(word.ids) for word in words)
    kept: list[int] = []
    for number in sorted(range(len(words)), key=lambda n: -scores[n]):
        if wanted <= 0:
            break
        kept.append(number)
        wanted -= len(words[number].ids)
    return [words[number] for number in sorted(kept)]


def _joined(text: str, words: Sequence[Word]) -> str:
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
