"""Training a compressor: an encoder with a new head learns which words of a text to keep (LLMLingua-2 in SeCom).

LLMLingua-2 (Pan et al., ACL 2024), section 3.4: a token classifier into drop and keep. Texts are cut into words and
windows exactly as `localmem.text.compress` does, which loads the result.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from finetune import compression_labels as labelling
from finetune.compression_labels import CompressionPair, LabelledText
from finetune.run_folder import Card, save_run
from finetune.trainers import training
from finetune.trainers.training import TrainingJob, TrainingRecipe, TrainingResult, base_folder, fit
from localmem.errors import BadInput
from localmem.text.compress import KEEP, LABELS, WordReader

Extract = Callable[[Sequence[str]], list[CompressionPair]]

BEST = "auc"

_IGNORED = -100  # label of the tokens that frame a window: the loss skips them
_DRAWS = 20  # repetitions of the random control


class CompressorRecipe(TrainingRecipe):
    """Recipe of `localmem finetune compressor`."""

    train: tuple[Path, ...] = ()
    """JSONL of text and kept, or of dialogue and summary (DialogSum)."""
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
        settings={"window": labelling.WINDOW},
    )
    results = {"texts": len(learned), "held_out": len(held_out), "dropped": dict(dropped)}
    save_run(job, model, tokenizer, card, result, results, "compressor")
    return result


def _read_labelled_texts(
    recipe: CompressorRecipe, extract: Extract | None
) -> tuple[list[LabelledText], list[LabelledText], Counter[str]]:
    """Training texts after the filters, validation texts as they are, and the number of dropped texts by reason."""
    stem = labelling.make_stemmer(recipe.language)

    def read(paths: Sequence[Path]) -> list[LabelledText]:
        if extract is None:
            pairs = [pair for path in paths for pair in labelling.read_compression_pairs(path)]
        else:
            pairs = extract([text for path in paths for text in labelling.read_texts(path)][: recipe.limit])
        return [labelling.align_words(pair, stem) for pair in pairs]

    learned, held_out = read(recipe.train)[: recipe.limit], read(recipe.valid)
    if not held_out:
        share = len(learned) // 5
        learned, held_out = learned[share:], learned[:share]
    reliable, dropped = labelling.drop_unreliable(learned)
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
