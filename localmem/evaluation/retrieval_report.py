"""The report of a retrieval evaluation: means with intervals as one document, as tables and as a plot.

Measures nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from localmem.errors import BadInput
from localmem.evaluation.evidence_retrieval import BUDGETS, DCG_TURNS, ProbeResult, RetrievalResult
from localmem.files import read_jsonl, write_jsonl
from localmem.reporting.bootstrap import Estimate, difference, estimate
from localmem.reporting.plots import save_plot
from localmem.reporting.sections import Report, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COMPARED = ("recall@5", "recall@10", "recall@500t", "recall@1000t", "recall@2000t")
PLOT, ROWS = "recall.png", "rows.jsonl"
_RANK_MEASURES = ("mrr", f"dcg@{DCG_TURNS}", "hit@5", "tokens@5", "tokens@10")


@dataclass(frozen=True, slots=True)
class Figures:
    """Every measure over some questions."""

    questions: int
    measures: Mapping[str, Estimate]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "questions": self.questions,
            "measures": {name: mean.as_dict() for name, mean in self.measures.items()},
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run: all questions together and by type; searches took `p50` and `p95` milliseconds."""

    run: str
    units: int
    unit_tokens: float
    p50: float
    p95: float
    overall: Figures
    types: Mapping[str, Figures]

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "run": self.run,
            "units": self.units,
            "unit_tokens": round(self.unit_tokens, 1),
            "search_ms": {"p50": round(self.p50, 2), "p95": round(self.p95, 2)},
            **self.overall.as_dict(),
            "types": {name: figures.as_dict() for name, figures in self.types.items()},
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """One run's mean minus another's, over the same questions."""

    runs: str
    measure: str
    mean: Estimate


def summaries(results: Sequence[RetrievalResult], seed: int, resamples: int) -> list[Summary]:
    """The figures of each run."""
    return [_summary(result, seed, resamples) for result in results]


def differences(
    results: Sequence[RetrievalResult], seed: int, resamples: int, baselines: Sequence[Sequence[ProbeResult]] = ()
) -> list[Difference]:
    """Every run minus every one before it and every baseline, in the compared measures."""
    pairs: list[tuple[Sequence[ProbeResult], Sequence[ProbeResult]]] = [
        *combinations([result.rows for result in results], 2)
    ]
    pairs += [(rows, result.rows) for rows in baselines for result in results]
    return [
        Difference(
            f"{later[0].run} - {earlier[0].run}",
            name,
            difference(_values(later, name), _values(earlier, name), seed=seed, resamples=resamples),
        )
        for earlier, later in pairs
        for name in COMPARED
        if name in later[0].measures and name in earlier[0].measures
    ]


def read_baselines(path: Path, results: Sequence[RetrievalResult]) -> list[list[ProbeResult]]:
    """The rows of each run in the rows.jsonl of an earlier evaluation, renamed "earlier ...".

    Raises BadInput for another file, and for one with other questions than the results.
    """
    rows = read_jsonl(path, ProbeResult, "give the rows.jsonl in the --out of an earlier evaluation")
    runs = [list(group) for _, group in groupby(rows, key=lambda row: row.run)]
    questions = [(row.episode, row.probe) for row in results[0].rows]
    if not runs or any([(row.episode, row.probe) for row in run] != questions for run in runs):
        raise BadInput(f"{path} has other questions than this run; compare runs over the same data, split and gold")
    return [[replace(row, run=f"earlier {row.run}") for row in run] for run in runs]


def document(runs: Sequence[Summary], compared: Sequence[Difference]) -> dict[str, object]:
    """The figures as plain data for JSON."""
    return {
        "runs": [run.as_dict() for run in runs],
        "differences": [{"what": each.runs, "measure": each.measure, **each.mean.as_dict()} for each in compared],
    }


def tables(runs: Sequence[Summary], compared: Sequence[Difference]) -> list[Table]:
    """The figures for a person."""
    depths = [name for name in runs[0].overall.measures if name.startswith("recall@") and not name.endswith("t")]
    compared_depths = [name for name in depths if name in COMPARED]

    def cells(figures: Figures, names: Sequence[str]) -> dict[str, str]:
        return {name: figures.measures[name].as_text() for name in names}

    budget_cells = [
        {f"{budget} tokens": run.overall.measures[f"recall@{budget}t"].as_text() for budget in BUDGETS} for run in runs
    ]
    by_type = [
        {"run": run.run, "type": name, "questions": figures.questions, **cells(figures, compared_depths)}
        for run in runs
        for name, figures in run.types.items()
    ]
    rows: dict[str, list[dict[str, object]]] = {
        "Evidence recall (mean and 95 % interval)": [{"run": run.run, **cells(run.overall, depths)} for run in runs],
        "Evidence recall at equal tokens": [
            {"run": run.run, **budgets} for run, budgets in zip(runs, budget_cells, strict=True)
        ],
        "Ranks and cost": [_rank_row(run) for run in runs],
        "By question type": by_type,
        "Paired differences (mean and 95 % interval)": [
            {"difference": each.runs, "measure": each.measure, "mean": each.mean.as_text("+")} for each in compared
        ],
    }
    return [Table.of(caption, own) for caption, own in rows.items() if own]


def write_results(folder: Path, report: Report, results: Sequence[RetrievalResult]) -> None:
    """Write the report, rows.jsonl and the plot. Raises BadInput."""
    report.save(folder, f"Retrieval {folder.name}", (PLOT,))
    write_jsonl(folder / ROWS, (asdict(row) for result in results for row in result.rows), "choose another --out")
    save_plot(folder / PLOT, lambda axes: _draw_recall(axes, results), width=7, height=4.5)


def _draw_recall(axes: "Axes", results: Sequence[RetrievalResult]) -> None:
    for result in results:
        means = [float(np.mean(_values(result.rows, f"recall@{budget}t"))) for budget in BUDGETS]
        axes.plot(BUDGETS, means, marker="o", label=result.run)
    axes.set(xscale="log", xlabel="tokens shown", ylabel="evidence recall", ylim=(0, 1))
    axes.set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
    axes.minorticks_off()


def _rank_row(run: Summary) -> dict[str, object]:
    means = {name: run.overall.measures[name].mean for name in _RANK_MEASURES if name in run.overall.measures}
    return {
        "run": run.run,
        **{name: f"{mean:.0f}" if name.startswith("tokens") else f"{mean:.3f}" for name, mean in means.items()},
        "units": run.units,
        "tokens per unit": f"{run.unit_tokens:.0f}",
        "p50 ms": f"{run.p50:.1f}",
        "p95 ms": f"{run.p95:.1f}",
    }


def _summary(result: RetrievalResult, seed: int, resamples: int) -> Summary:
    types = sorted({row.type for row in result.rows})
    return Summary(
        run=result.run,
        units=result.units,
        unit_tokens=result.unit_tokens,
        p50=float(np.quantile(result.milliseconds, 0.5)),
        p95=float(np.quantile(result.milliseconds, 0.95)),
        overall=_figures(result.rows, seed, resamples),
        types={name: _figures([row for row in result.rows if row.type == name], seed, resamples) for name in types},
    )


def _figures(rows: Sequence[ProbeResult], seed: int, resamples: int) -> Figures:
    means = {name: estimate(_values(rows, name), seed=seed, resamples=resamples) for name in rows[0].measures}
    return Figures(len(rows), means)


def _values(rows: Sequence[ProbeResult], measure: str) -> list[float]:
    return [row.measures[measure] for row in rows]
