"""Compares classifiers of memory operations on labelled pairs: scores, speed, and the effect of a shortlist."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from localmem.experiments.runs import Notify
from localmem.reporting.sections import Report, Table

if TYPE_CHECKING:
    from localmem.classification import PairClassifier
    from localmem.config import Settings
    from localmem.evaluation.datasets.labelled_pairs import LabelledPair
    from localmem.experiments.operation_evaluation import SessionEnd

LLM = "llm"  # the name of the backbone among the classifiers


class OperationsRecipe(BaseModel):
    """The options of a classifier comparison."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    classifiers: tuple[str, ...] = Field(min_length=1)
    """Trained classifier by name or folder, or llm for the backbone."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first N pairs."""
    memories: int = Field(default=100, ge=2)
    """Timing: remembered sentences at a session end."""
    new: int = Field(default=5, ge=1)
    """Timing: new sentences at a session end."""
    shortlist: int = Field(default=10, ge=1)
    """Timing: nearest memories for each new sentence in the shortlist."""
    sessions: int = Field(default=2, ge=0)
    """Timing: session ends to time (0: none)."""
    seed: int = 0
    """Seed for sampling session ends."""


def compare_classifiers(
    settings: "Settings",
    recipe: OperationsRecipe,
    path: Path | None = None,
    *,
    out: Path | None = None,
    notify: Notify = lambda _: None,
) -> Report:
    """Score classifiers on the pairs in `path`, by default the shipped ones; `out` receives the report.

    Raises BadInput.
    """
    from localmem.evaluation.datasets.labelled_pairs import SHIPPED, read_operations
    from localmem.experiments.operation_evaluation import large_session_ends
    from localmem.reporting.provenance import versions

    path = path or SHIPPED
    pairs = read_operations(path).pairs[: recipe.limit]
    ends: list[SessionEnd] = []
    if recipe.sessions:
        ends = large_session_ends(pairs, recipe.memories, recipe.new, recipe.seed)[: recipe.sessions]
    with ExitStack() as stack:
        rows = []
        for name in recipe.classifiers:
            notify(f"{name}: {len(pairs)} pairs")
            classifier = _load_classifier(name, settings, stack, notify)
            rows.append(
                {
                    "model": name,
                    **_scores(classifier, pairs),
                    **_costs(classifier, ends[: recipe.sessions], recipe, settings),
                }
            )
    figures = {"data": path.name, "pairs": len(pairs), "models": rows, "versions": versions()}
    note = f"{path.name}, {len(pairs)} pairs"
    report = Report(figures, _tables(note, rows), (note,))
    if out is not None:
        report.save(out, f"Operations {out.name}")
    return report


def _load_classifier(name: str, settings: "Settings", stack: ExitStack, notify: Notify) -> "PairClassifier":
    from localmem import factory
    from localmem.classification.llm_classifier import LLMClassifier
    from localmem.factory.parts import pair_classifier

    if name != LLM:
        return pair_classifier(name, settings.retrieval.device)
    backbone = factory.backbone(settings, notify)
    stack.callback(backbone.close)
    return LLMClassifier(backbone.llm)


def _scores(classifier: "PairClassifier", pairs: "Sequence[LabelledPair]") -> dict[str, Any]:
    from localmem.experiments.operation_evaluation import classify_pairs, score_operations

    labels, speed = classify_pairs(classifier, pairs)
    scores = score_operations(pairs, labels)
    return {
        "accuracy": scores.accuracy,
        "macro_f1": scores.macro_f1,
        "set_f1": scores.set_f1,
        "pairs_per_second": speed,
        "f1": scores.f1,
        "confusion": scores.confusion,
    }


def _costs(
    classifier: "PairClassifier", ends: "Sequence[SessionEnd]", recipe: OperationsRecipe, settings: "Settings"
) -> dict[str, Any]:
    from localmem.experiments.operation_evaluation import measure_session_end_cost
    from localmem.factory.parts import bare_encoder

    if not ends:
        return {}
    cost = measure_session_end_cost(classifier, bare_encoder(settings), ends, recipe.shortlist)
    return {"session_end": asdict(cost)}


def _tables(caption: str, rows: Sequence[dict[str, Any]]) -> tuple[Table, ...]:
    from localmem.classification import OPERATIONS

    nested = ("f1", "confusion", "session_end")
    tables = [Table.of(caption, [{name: row[name] for name in row if name not in nested} for row in rows])]
    if ends := [{"model": row["model"], **row["session_end"]} for row in rows if "session_end" in row]:
        tables.append(Table.of("Session end", ends))
    for row in rows:
        confusion = [
            {"": name, "F1": row["f1"][name], **dict(zip(OPERATIONS, cells, strict=True))}
            for name, cells in zip(OPERATIONS, row["confusion"], strict=True)
        ]
        tables.append(Table.of(f"{row['model']}: confusion (rows are the true labels)", confusion))
    return tuple(tables)
