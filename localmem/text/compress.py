"""Compressors: the least informative words of a text are dropped before it is indexed (SeCom, section 2.3).

`LLMLingua2` runs the weights of LLMLingua-2 from a local folder: a token classifier gives each token the probability
that it should be kept, and the words with the highest stay, in their order. Words, windows and threshold are those of
the llmlingua package, with the budget in the model's tokens. The package itself counts tokens with a vocabulary that
it fetches from the network, reseeds every random generator and loads weights by the name of their folder; so it serves
as the reference of a test. Importing this module loads no weights library.
"""

import math
import random
import string
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from localmem.batching import map_by_length
from localmem.errors import BadInput, ModelMissing, requires
from localmem.files import read_json
from localmem.llm.device import no_progress_bar, one_at_a_time, pad_rows, resolve_device, resolve_dtype
from localmem.retrieval.encoder_part import BASE, load_part, notes_of, part_base

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

_BATCH = 16  # windows that run at once
LABELS = ("drop", "keep")
KEEP = 1  # the label of tokens to be kept, as LLMLingua-2's weights have it


class Compressor(Protocol):
    """Shortens texts by dropping uninformative words (LLMLingua-2 in SeCom, section 3)."""

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        """Each text with about `rate` (above 0, at most 1) of its tokens, in order. List in, list out, same order."""


class RandomDrop:
    """Keeps words at random: the control that any compressor has to beat. The result depends on seed and text only."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        """Each text with `rate` of its words (rounded up), in their order."""
        _check(rate)
        return [self._drop(text, rate) for text in texts]

    def _drop(self, text: str, rate: float) -> str:
        words = text.split()
        draw = random.Random(f"{self._seed}/{text}")  # noqa: S311  # not used for security
        selected = sorted(draw.sample(range(len(words)), math.ceil(rate * len(words))))
        return " ".join(words[number] for number in selected)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text: its place, the ids of its tokens, and whether a window may end after it."""

    start: int
    end: int
    ids: tuple[int, ...]
    is_end: bool = False


class WordReader:
    """Splits a text for a token classifier, into words and windows of whole words. Training uses it too.

    `positions` is the number of tokens that the model accepts.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", positions: int) -> None:
        self._tokenizer = tokenizer
        self._window = _window(tokenizer.model_max_length, positions)

    def words(self, text: str) -> list[Word]:
        """The text's words as the tokenizer splits them, none longer than a window.

        A punctuation mark begins a word, also where the tokenizer takes it for a part of the word before.
        """
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        pieces = encoded.tokens()
        marks = accumulate(piece in string.punctuation for piece in pieces)
        places = zip(encoded.word_ids(), marks, strict=True)
        tokens = zip(places, encoded["input_ids"], encoded["offset_mapping"], pieces, strict=True)
        return [word for _, run in groupby(tokens, key=itemgetter(0)) for word in self._parts(list(run))]

    def windows(self, words: Sequence[Word]) -> Iterator[list[Word]]:
        """The words in order, in windows as long as the model accepts that end with a full stop where they can."""
        window: list[Word] = []
        used = 0
        for word in words:
            if used + len(word.ids) > self._window:
                ends = [place for place, each in enumerate(window, 1) if each.is_end]
                size = ends[-1] if ends else len(window)
                yield window[:size]
                window = window[size:]
                used = sum(len(each.ids) for each in window)
            window.append(word)
            used += len(word.ids)
        if window:
            yield window

    def token_ids(self, window: Sequence[Word]) -> list[int]:
        """The ids of a window's tokens between the two special tokens."""
        ids = [token for word in window for token in word.ids]
        return [self._tokenizer.cls_token_id, *ids, self._tokenizer.sep_token_id]

    def _parts(self, run: "list[tuple[object, int, tuple[int, int], str]]") -> Iterator[Word]:
        for start in range(0, len(run), self._window):
            part = run[start : start + self._window]
            yield Word(part[0][2][0], part[-1][2][1], tuple(token for _, token, _, _ in part), part[-1][3] == ".")


class LLMLingua2:
    """LLMLingua-2, or any classifier of tokens into (drop, keep), in a local folder.

    `find` returns the folder. It is called when weights are first needed, so that a memory can be opened without them;
    its errors, such as ModelMissing, are raised then. `device` is auto, cpu, cuda or cuda:N.
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
        windows = [scorer.windows(text) for text in texts]
        scores = iter(scorer.scores([window for rows in windows for window in rows]))
        return [
            _join(text, [word for window in rows for word in _best(window, next(scores), rate)])
            for text, rows in zip(texts, windows, strict=True)
        ]

    def _scorer(self) -> "_Scorer":
        with self._lock:
            if self._loaded is None:
                folder = self._find if isinstance(self._find, Path) else self._find()
                with one_at_a_time():
                    self._loaded = _Scorer(folder, self._device)
            return self._loaded


class _Scorer:
    """The weights: text to words, words to the probability that they should be kept."""

    def __init__(self, folder: Path, device: str) -> None:
        if not folder.is_dir():
            raise ModelMissing(f"there is no compressor in {folder}; `localmem models list` shows the compressors")
        with requires("compression needs {}", "cpu"):
            where = resolve_device(device)
            from transformers import AutoModelForTokenClassification, AutoTokenizer
        local = {"local_files_only": True, "trust_remote_code": False}
        notes = _notes(folder)
        source = str(part_base(notes) if BASE in notes else folder)
        try:
            tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(source, use_fast=True, **local)
            with no_progress_bar():
                model: PreTrainedModel = (
                    load_part(folder, notes, resolve_dtype("float32", where))
                    if BASE in notes
                    else AutoModelForTokenClassification.from_pretrained(source, **local)
                )
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{folder} holds no compressor: {reason}") from error
        _check_head(folder, model.config)
        self._model = model.eval().to(where)
        self._pad = tokenizer.pad_token_id or 0
        self._reader = WordReader(tokenizer, model.config.max_position_embeddings)

    def windows(self, text: str) -> list[list[Word]]:
        """The words of a text, in windows."""
        return list(self._reader.windows(self._reader.words(text)))

    def scores(self, windows: Sequence[Sequence[Word]]) -> list[list[float]]:
        """For each word of each window the mean probability of its tokens to be kept."""
        return map_by_length(self._run, windows, lambda window: sum(len(word.ids) for word in window), _BATCH)

    def _run(self, windows: Sequence[Sequence[Word]]) -> list[list[float]]:
        import torch

        ids, mask = pad_rows([self._reader.token_ids(window) for window in windows], self._model.device, self._pad)
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=ids, attention_mask=mask).logits
        probabilities = logits.float().softmax(dim=-1)[:, :, KEEP].cpu().tolist()
        return [list(_means(window, row[1:])) for window, row in zip(windows, probabilities, strict=True)]


def _notes(folder: Path) -> Mapping[str, object]:
    path = folder / "config.json"
    return notes_of(read_json(path, dict[str, object], "train the compressor again")) if path.is_file() else {}


def _check_head(folder: Path, config: "PretrainedConfig") -> None:
    """Raises BadInput for weights without a trained head: transformers would initialise a random one."""
    if config.num_labels != len(LABELS):
        raise BadInput(f"{folder} has {config.num_labels} labels; a compressor has two, drop and keep")
    kinds = config.architectures or []
    if not any(kind.endswith("ForTokenClassification") for kind in kinds):
        raise BadInput(
            f"{folder} holds {', '.join(kinds) or 'no named model'} and no compressor; train one from it "
            "with `localmem finetune compressor`"
        )


def _window(model_max_length: int, positions: int) -> int:
    """Tokens of a window without the two special ones. RoBERTa's tables hold two positions more than it can use."""
    return min(model_max_length, positions - 2 if positions % 2 == 0 and positions % 512 == 2 else positions, 512) - 2


def _means(window: Sequence[Word], probabilities: Sequence[float]) -> Iterator[float]:
    start = 0
    for word in window:
        yield sum(probabilities[start : start + len(word.ids)]) / len(word.ids)
        start += len(word.ids)


def _best(words: Sequence[Word], scores: Sequence[float], rate: float) -> list[Word]:
    """The words of a window whose score is above that of the tokens to be dropped; the best one, if none is."""
    if rate == 1:
        return list(words)
    by_token = [score for word, score in zip(words, scores, strict=True) for _ in word.ids]
    threshold = np.percentile(by_token, int(100 * (1 - rate) + 1))
    best = [word for word, score in zip(words, scores, strict=True) if score > threshold]
    return best or [words[int(np.argmax(scores))]]


def _join(text: str, words: Sequence[Word]) -> str:
    """The text of these words, with one space wherever something was dropped or separated them."""
    result = ""
    end = 0
    for word in words:
        gap = "" if word.start == end or not result else " "
        result += gap + text[word.start : word.end].strip()
        end = word.end
    return result


def _check(rate: float) -> None:
    if not 0 < rate <= 1:
        raise BadInput(f"the compression rate cannot be {rate}; give a share of the tokens, above 0 and at most 1")
