"""Training a compressor: an encoder with a new head learns which words of a text to keep (LLMLingua-2 in SeCom).

LLMLingua-2 (Pan et al., ACL 2024): the labels are derived from each text and a shorter version of it, an extract or a
summary, written by people or by a local LLM; the two are aligned word by word, and texts for which the alignment is
unreliable are dropped (section 3.3). The model is a token classifier into drop and keep (section 3.4). Texts are cut
into words and windows exactly as `localmem.text.compress` does, which loads the result.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import regex
from numpy.typing import NDArray
from pydantic import AliasChoices, Field, TypeAdapter

from finetune.run_folder import Card, save_run
from finetune.trainers import training
from finetune.trainers.pair_trainers import StoredPart, freeze_layers
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult, base_folder, fit
from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import Record, read_records
from localmem.evaluation.datasets.scenarios import read_people
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.llm.structured_output import generate_usable
from localmem.prompts import load, render
from localmem.resources import resource
from localmem.retrieval.encoder_part import NOTES, part_notes
from localmem.text.compress import KEEP, LABELS, WordReader
from localmem.text.dialogue import pack, transcript

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Stem = Callable[[str], str]

WINDOW = 150  # words on each side in which a word is searched for, as in LLMLingua-2's code
PROMPT = "compressor/extract"

_MAX_VARIATION = 0.95  # quantile of texts to keep, by the words that their extract invented (section 3.3.1 drops 5%)
_MAX_GAP = 0.90  # and by the words that could not be aligned (section 3.3.2 drops 10%)
_PART = 256  # approximate tokens of a text that the labelling model sees at once; small models get lost in more
_FREQUENT = 0.1  # share of the exchanges from which a word says nothing about one
_BATCH = 16  # parts that are labelled before the answers are written down

# A word; in scripts without spaces, a character.
_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\p{L}\p{M}\p{N}]+(?:['’]\p{L}+)*")


class CompressionPair(NamedTuple):
    """A text and a shorter version of it."""

    text: str
    short: str


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text with the spans of the words to keep, and how reliable the alignment is.

    `variation` is the share of the shorter text's words that the text does not contain. `gap` is the number of words
    that the text contains and that were still not aligned, as a share of the text's words.
    """

    text: str
    keep: tuple[tuple[int, int], ...]
    variation: float
    gap: float


class _Line(Record):
    text: str = Field(min_length=1, validation_alias=AliasChoices("text", "dialogue"))
    short: str | None = Field(default=None, validation_alias=AliasChoices("kept", "summary"))


def read_compression_pairs(path: Path) -> list[CompressionPair]:
    """Read JSONL of text and kept, or of dialogue and summary as in DialogSum. Raises BadInput."""
    pairs = []
    for place, line in read_records(path, _Line):
        if not (line.short or "").strip():
            raise BadInput(f"{place}: neither kept nor summary is set; add one, or label with --set label_with=MODEL")
        pairs.append(CompressionPair(line.text, str(line.short)))
    return pairs


def read_texts(path: Path) -> list[str]:
    """Read the texts of such a file without their labels. Raises BadInput."""
    return [line.text for _, line in read_records(path, _Line)]


def make_stemmer(language: str) -> Stem:
    """A function from a word to its stem in lower case; "none" only folds case. Raises BadInput."""
    import Stemmer

    if language != "none" and language not in Stemmer.algorithms():
        raise BadInput(f"unknown stemmer language {language!r}; use none or one of {', '.join(Stemmer.algorithms())}")
    stem = Stemmer.Stemmer(language).stemWord if language != "none" else str

    def normalise(word: str) -> str:
        return str(stem(unicodedata.normalize("NFKC", word).replace("’", "'").casefold()))

    return normalise


def align_words(pair: CompressionPair, stem: Stem) -> LabelledText:
    """Label the words of the text that the shorter version keeps."""
    spans = [match.span() for match in _WORD.finditer(pair.text)]
    words = [stem(pair.text[start:end]) for start, end in spans]
    targets = [stem(match.group()) for match in _WORD.finditer(pair.short)]
    marks = mark_kept_words(words, targets, WINDOW)
    vocabulary = set(words)
    common = sum(word in vocabulary for word in targets)
    return LabelledText(
        pair.text,
        tuple(span for span, keep in zip(spans, marks, strict=True) if keep),
        1 - common / max(1, len(targets)),
        (common - sum(marks)) / max(1, len(words)),
    )


def mark_kept_words(words: Sequence[str], targets: Sequence[str], window: int) -> list[bool]:
    """For each word, whether it is aligned with one of the targets (LLMLingua-2, section 3.3, algorithm 1).

    Each target takes the nearest free word with the same stem, after or before the previous match. The position moves
    forward by at most half a window, so that one distant match does not skip everything in between.
    """
    marks = [False] * len(words)
    position = 0
    for target in targets:
        near = (place for step in range(window) for place in (position + step, position - step))
        free = (place for place in near if 0 <= place < len(words) and words[place] == target and not marks[place])
        if (match := next(free, None)) is not None:
            marks[match] = True
            position = min(match, position + window // 2)
    return marks


def read_people_texts(folder: Path, stem: Stem) -> list[tuple[str, LabelledText]]:
    """The exchanges that people are asked about, with their authors.

    The words of the questions, of their other wordings and of their answers are kept, but for frequent ones.
    """
    texts: list[tuple[str, str, set[str]]] = []
    for person in read_people(folder):
        by_turn: dict[str, set[str]] = {}
        for probe, evidence in zip(person.probes, person.evidence, strict=True):
            words = _WORD.findall(f"{probe.question} {probe.paraphrase} {probe.answer} {probe.reply}")
            for turn in evidence if person.language == "en" and probe.is_answerable else ():
                by_turn.setdefault(turn, set()).update(map(stem, words))
        exchanges = [exchange for session in person.sessions for exchange in session.exchanges()]
        texts += [
            (person.author, transcript(turns), stems)
            for turns in (exchange.turns() for exchange in exchanges)
            if (stems := set[str]().union(*(by_turn.get(turn.id, ()) for turn in turns)))
        ]
    counts = Counter(word for _, text, _ in texts for word in {stem(word) for word in _WORD.findall(text)})
    frequent = {word for word, count in counts.items() if count > _FREQUENT * len(texts)}
    return [(author, _mark(text, stems - frequent, stem)) for author, text, stems in texts]


def _mark(text: str, stems: Collection[str], stem: Stem) -> LabelledText:
    spans = [match.span() for match in _WORD.finditer(text)]
    return LabelledText(text, tuple(span for span in spans if stem(text[slice(*span)]) in stems), 0.0, 0.0)


def drop_unreliable(texts: Sequence[LabelledText]) -> tuple[list[LabelledText], Counter[str]]:
    """The texts that can be learned from, and how many others were dropped for each reason (section 3.3)."""
    dropped: Counter[str] = Counter()
    remaining = [text for text in texts if text.keep]
    dropped["no word in common"] = len(texts) - len(remaining)
    for name, quantile in (("variation", _MAX_VARIATION), ("gap", _MAX_GAP)):
        values = [getattr(text, name) for text in remaining]
        limit = np.quantile(values, quantile) if values else 0.0
        reliable = [text for text, value in zip(remaining, values, strict=True) if value <= limit]
        dropped[name] = len(remaining) - len(reliable)
        remaining = reliable
    return remaining, dropped


@dataclass(frozen=True, slots=True)
class _Extract:
    """An answer of the labelling model, as a line of the file: the digest of what was asked, and the extract."""

    digest: str
    extract: str


class Extractor:
    """Lets a local LLM cross words out of texts; LLMLingua-2, section 3.1, asks GPT-4.

    Answers are stored in `path`, so that an interrupted run continues where it stopped.
    """

    def __init__(self, llm: LLM, path: Path, notify: Callable[[str], None]) -> None:
        self._llm, self._path, self._notify = llm, path, notify
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, texts: Sequence[str]) -> list[CompressionPair]:
        """The parts of the texts in order, each with its extract; parts without a usable answer are dropped."""
        lines = [text.splitlines() for text in texts if text]
        runs = (run for text in lines for run in pack(text, self._llm.count_tokens(text), _PART))
        parts = {self._digest(part): part for part in map("\n".join, runs)}
        with JsonlLog(self._path, TypeAdapter(_Extract)) as log:
            extracts = {record.digest: record.extract for record in log.records}
            missing = [digest for digest in parts if digest not in extracts]
            for start in range(0, len(missing), _BATCH):
                batch = missing[start : start + _BATCH]
                for digest, extract in zip(batch, self._ask([parts[digest] for digest in batch]), strict=True):
                    log.append(_Extract(digest, extract))
                    extracts[digest] = extract
                self._notify(f"labelled {start + len(batch)} of {len(missing)} parts")
        return [CompressionPair(part, extracts[digest]) for digest, part in parts.items() if extracts[digest].strip()]

    def _ask(self, parts: Sequence[str]) -> list[str]:
        sizes = self._llm.count_tokens(list(parts))
        prompts = [
            replace(render(PROMPT, dialogue=part), max_tokens=load(PROMPT).max_tokens + size)
            for part, size in zip(parts, sizes, strict=True)
        ]
        return [answer.text if answer else "" for answer in generate_usable(self._llm, prompts, self.fallbacks)]

    def _digest(self, part: str) -> str:
        return sha256(f"{self._llm.name}\0{load(PROMPT).digest}\0{part}".encode()).hexdigest()


Extract = Callable[[Sequence[str]], list[CompressionPair]]

BEST = "auc"

_IGNORED = -100  # label of the tokens that frame a window: the loss skips them
_DRAWS = 20  # repetitions of the random control


class CompressorRecipe(TrainingRecipe):
    """Recipe of `localmem finetune compressor`."""

    train: tuple[Path, ...] = ()
    """JSONL of text and kept, or of dialogue and summary (DialogSum); default: the people."""
    people: Path | None = None
    """Folder of people, learned from without `train`: what they are asked about is kept; default: the shipped one."""
    hold_out: tuple[str, ...] = ("m", "n")
    """Authors of people to measure on."""
    frozen_layers: int | None = Field(None, ge=0)
    """Train only the layers above this one, and store the compressor without the rest; default: all, stored whole."""
    valid: tuple[Path, ...] = ()
    """Validation texts; default: a fifth of the training texts."""
    label_with: str | None = None
    """Model that labels the training texts; default: the files hold the labels."""
    limit: int | None = Field(None, ge=2)
    """Use only the first N training texts."""
    language: str = "english"
    """Stemmer language used to align words (`none` to disable)."""
    epochs: float = Field(10.0, gt=0)
    """Passes over the training data, at most."""
    batch_size: int = Field(16, ge=1)
    """Examples in a batch."""


def train(job: TrainingJob[CompressorRecipe], extract: Extract | None = None) -> TrainingResult:
    """Train and write the run's folder. `extract` labels texts that come without labels.

    Raises BadInput before the first step.
    """
    from transformers import DataCollatorForTokenClassification, set_seed

    recipe = job.recipe
    training.check_checkpoints(job)
    set_seed(recipe.seed)
    base = base_folder(recipe.base)
    model, tokenizer = training.load_encoder(base, "TokenClassification", LABELS)
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BadInput(f"{base} cannot be used: its tokenizer has no CLS and SEP tokens; use a BERT-like model")
    if recipe.frozen_layers is not None:
        freeze_layers(model, recipe.frozen_layers)
    learned, held_out, dropped = _read_labelled_texts(recipe, extract)
    reading = WordReader(tokenizer, model.config.max_position_embeddings)
    examples, checked = (_encode(texts, reading) for texts in (learned, held_out))
    for name, rows in (("training", examples), ("validation", checked)):
        _check_labels(name, rows)
    reasons = ", ".join(f"{count} for {reason}" for reason, count in dropped.items() if count) or "none"
    job.notify(f"{len(learned)} training texts, {len(held_out)} validation texts; dropped: {reasons}")
    collate = DataCollatorForTokenClassification(tokenizer)
    result = fit(
        job, model, examples, checked, collate, lambda logits, labels: _measure(logits, labels, recipe.seed), BEST
    )
    card = Card(
        title="Compressor",
        what="Predicts which words of a text to keep. Used as SeCom's compressor with the options "
        "`compress: llmlingua` and `compressor`, and by `localmem eval compression`. The measures are over tokens; "
        "`f1` keeps as many tokens as the labels do, and `random_f1` is the value for random tokens at that rate.",
        base=base.name,
        data=[*recipe.train, *recipe.valid],
        settings={"window": WINDOW},
    )
    results = {"texts": len(learned), "held_out": len(held_out), "dropped": dict(dropped)}
    if recipe.frozen_layers is None:
        save_run(job, model, tokenizer, card, result, results, "compressor")
    else:
        setattr(model.config, NOTES, part_notes(recipe.base))
        save_run(job, cast("PreTrainedModel", StoredPart(model)), None, card, result, results, "compressor")
    return result


def _read_labelled_texts(
    recipe: CompressorRecipe, extract: Extract | None
) -> tuple[list[LabelledText], list[LabelledText], Counter[str]]:
    """Training texts after the filters, validation texts as they are, and the number of dropped texts by reason."""
    stem = make_stemmer(recipe.language)
    if not recipe.train:
        texts = read_people_texts(recipe.people or resource("finetune/lessons/people"), stem)
        learned = [text for author, text in texts if author not in recipe.hold_out][: recipe.limit]
        return learned, [text for author, text in texts if author in recipe.hold_out], Counter()

    def read(paths: Sequence[Path]) -> list[LabelledText]:
        if extract is None:
            pairs = [pair for path in paths for pair in read_compression_pairs(path)]
        else:
            pairs = extract([text for path in paths for text in read_texts(path)][: recipe.limit])
        return [align_words(pair, stem) for pair in pairs]

    learned, held_out = read(recipe.train)[: recipe.limit], read(recipe.valid)
    if not held_out:
        share = len(learned) // 5
        learned, held_out = learned[share:], learned[:share]
    reliable, dropped = drop_unreliable(learned)
    return reliable, [text for text in held_out if text.keep], dropped


def _encode(texts: Sequence[LabelledText], reading: WordReader) -> list[dict[str, object]]:
    """Each window of each text as input of the model, with a label for each token."""
    rows: list[dict[str, object]] = []
    for text in texts:
        for window in reading.windows(reading.words(text.text)):
            ids = reading.token_ids(window)
            keep = [any(start < word.end and word.start < end for start, end in text.keep) for word in window]
            labels = [int(label) for word, label in zip(window, keep, strict=True) for _ in word.ids]
            rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [_IGNORED, *labels, _IGNORED]})
    return rows


def _check_labels(name: str, rows: Sequence[dict[str, object]]) -> None:
    """Raise BadInput if nothing is kept or nothing is dropped, since then there is nothing to learn or measure."""
    labels = {label for row in rows for label in row["labels"]}  # type: ignore[attr-defined]  # a list, from _encode
    for number, label in enumerate(LABELS):
        if number not in labels:
            raise BadInput(f"no word of the {name} texts is labelled {label}; add texts, or use better extracts")


def _measure(logits: NDArray[np.float32], labels: NDArray[np.int64], seed: int) -> dict[str, float]:
    """Measures over tokens: area under the curve, and F1 when each window keeps as many tokens as its labels.

    At that rate F1, precision and recall are equal. `random_f1` is the F1 of random tokens at the same rate, and `rate`
    is the share of tokens to keep.
    """
    from sklearn.metrics import roc_auc_score

    words = labels != _IGNORED
    scores = (logits[:, :, KEEP] - logits[:, :, 1 - KEEP]).astype(np.float64)
    random = np.random.default_rng(seed)
    control = [_f1(random.random(scores.shape), labels) for _ in range(_DRAWS)]
    return {
        "auc": float(roc_auc_score(labels[words], scores[words])),
        "f1": _f1(scores, labels),
        "random_f1": sum(control) / len(control),
        "rate": float(labels[words].mean()),
    }


def _f1(scores: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    hits = total = 0
    for row, expected in zip(scores, labels, strict=True):
        places = np.flatnonzero(expected != _IGNORED)
        count = int(expected[places].sum())
        best = places[np.argsort(-row[places], kind="stable")[:count]]
        hits += int(expected[best].sum())
        total += count
    return hits / total
