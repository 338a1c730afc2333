"""Training a compressor: an encoder with a fresh head learns which words of a text are kept (LLMLingua-2 in SeCom).

LLMLingua-2 (Pan et al., ACL 2024), section 3.4: a classifier of tokens into drop and keep. A text is cut into words and
windows as `localmem.text.compress` cuts it, which then loads what was trained.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.compression_labels import (
    WINDOW,
    Labelled,
    Shortened,
    labelled,
    read_shortened,
    read_texts,
    sound,
    stemmer,
)
from finetune.run_folder import About, save
from finetune.trainers.training import Plan, Trained, check_checkpoints, fit, quietly
from localmem.errors import BadInput
from localmem.text.compress import KEEP, LABELS, Reading, Word

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    Floats = NDArray[np.float32]
    Marks = NDArray[np.int64]

Extract = Callable[[Sequence[str]], list[Shortened]]

BEST = "auc"

_FRAME = -100  # the label of a token that is no word's: the loss passes it over
_DRAWS = 20  # of the random control


@dataclass(frozen=True, slots=True)
class Job:
    """What to train from what. Without `valid` a fifth of the training texts is kept back.

    `extract` makes the labels of texts that come without any; else the files hold them.
    """

    base: Path
    train: Sequence[Path]
    valid: Sequence[Path]
    out: Path
    plan: Plan
    extract: Extract | None = None
    labeller: str | None = None
    language: str = "english"
    limit: int | None = None
    licence: str = "that of the base model and of the training data"
    command: str = "localmem finetune compressor"


def train(job: Job, *, resume: bool = False, note: Callable[[str], None] = print) -> Trained:
    """Trains and writes the run's folder. Raises BadInput before the first step."""
    from transformers import DataCollatorForTokenClassification, set_seed

    check_checkpoints(job.out, resume=resume)
    set_seed(job.plan.seed)
    model, tokenizer = _fresh(job.base)
    learned, held_out, dropped = _texts(job)
    reading = Reading(tokenizer, model.config.max_position_embeddings)
    examples, checked = (_encoded(texts, reading) for texts in (learned, held_out))
    for name, rows in (("training", examples), ("validation", checked)):
        _check(name, rows)
    lost = ", ".join(f"{count} for {why}" for why, count in dropped.items() if count) or "none"
    note(f"{len(learned)} texts to learn from, {len(held_out)} to check on; left out: {lost}")
    trained = fit(
        model,
        job.plan,
        examples,
        checked,
        DataCollatorForTokenClassification(tokenizer),
        lambda logits, labels: _measures(logits, labels, job.plan.seed),
        BEST,
        job.out,
        resume=resume,
    )
    more = {"texts": len(learned), "held_out": len(held_out), "left_out": dict(dropped)}
    save(job.out, model, tokenizer, _about(job), job.plan, trained, more)
    return trained


def _texts(job: Job) -> tuple[list[Labelled], list[Labelled], Counter[str]]:
    """Those to learn from, after the filters; those to check on, as they came; and what the filters took."""
    stem = stemmer(job.language)
    learned = _labelled(job, job.train, stem)[: job.limit]
    held_out = _labelled(job, job.valid, stem)
    if not held_out:
        share = len(learned) // 5
        learned, held_out = learned[share:], learned[:share]
    kept, dropped = sound(learned)
    return kept, [one for one in held_out if one.kept], dropped


def _labelled(job: Job, paths: Sequence[Path], stem: Callable[[str], str]) -> list[Labelled]:
    if job.extract is None:
        pairs = [pair for path in paths for pair in read_shortened(path)]
    else:
        pairs = job.extract([text for path in paths for text in read_texts(path)][: job.limit])
    return [labelled(pair, stem, WINDOW) for pair in pairs]


def _fresh(base: Path) -> "tuple[PreTrainedModel, PreTrainedTokenizerFast]":
    """The encoder with an untrained head of two labels."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(str(base), use_fast=True, **local)
        with quietly():
            model: PreTrainedModel = AutoModelForTokenClassification.from_pretrained(
                str(base), num_labels=len(LABELS), id2label=dict(enumerate(LABELS)), **local
            )
    except (OSError, ValueError) as error:
        raise BadInput(f"{base} is no encoder to start from: {' '.join(str(error).split())[:200]}") from error
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise BadInput(f"{base} is no encoder to start from: its tokenizer frames no text; give a BERT-like model")
    return model, tokenizer


def _encoded(texts: Sequence[Labelled], reading: Reading) -> list[dict[str, object]]:
    """Each window of each text as the model reads it, with a label for each token."""
    rows: list[dict[str, object]] = []
    for one in texts:
        for window in reading.windows(reading.words(one.text)):
            ids = reading.framed(window)
            labels = [int(_is_kept(word, one.kept)) for word in window for _ in word.ids]
            rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [_FRAME, *labels, _FRAME]})
    return rows


def _is_kept(word: Word, kept: Sequence[tuple[int, int]]) -> bool:
    return any(start < word.end and word.start < end for start, end in kept)


def _check(name: str, rows: Sequence[dict[str, object]]) -> None:
    """Raises BadInput where nothing is kept or nothing dropped: there is nothing to learn or to measure."""
    found = {label for row in rows for label in row["labels"]}  # type: ignore[attr-defined]  # made above
    for number, label in enumerate(LABELS):
        if number not in found:
            raise BadInput(f"no word of the {name} texts is labelled {label}; give more texts, or better extracts")


def _measures(logits: "Floats", labels: "Marks", seed: int) -> dict[str, float]:
    """Over tokens: the area under the curve, and the F1 of as many tokens as are to be kept, window by window.

    As many are kept as wanted, so that F1, precision and recall are one. `random_f1` is that of tokens drawn at random
    at the same rate, `rate` the share that is to be kept.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    words = labels != _FRAME
    scores = (logits[:, :, KEEP] - logits[:, :, 1 - KEEP]).astype(np.float64)
    draw = np.random.default_rng(seed)
    control = [_f1(draw.random(scores.shape), labels) for _ in range(_DRAWS)]
    return {
        "auc": float(roc_auc_score(labels[words], scores[words])),
        "f1": _f1(scores, labels),
        "random_f1": sum(control) / len(control),
        "rate": float(labels[words].mean()),
    }


def _f1(scores: "NDArray[np.float64]", labels: "Marks") -> float:
    import numpy as np

    hits = wanted = 0
    for row, right in zip(scores, labels, strict=True):
        there = np.flatnonzero(right != _FRAME)
        count = int(right[there].sum())
        best = there[np.argsort(-row[there], kind="stable")[:count]]
        hits += int(right[best].sum())
        wanted += count
    return hits / wanted


def _about(job: Job) -> About:
    return About(
        title="Compressor",
        what=(
            "Tells which words of a text are to be kept. Used as SeCom's compressor with the options `compress: "
            "llmlingua` and `compressor`, and by `localmem eval compression`. The measures are over tokens; `f1` keeps "
            "as many tokens as the labels do, and `random_f1` is what chance gives at that rate."
        ),
        command=job.command,
        base=job.base.name,
        data=[*job.train, *job.valid],
        licence=job.licence,
        settings={"language": job.language, "window": WINDOW, "limit": job.limit, "labelled_by": job.labeller},
    )
