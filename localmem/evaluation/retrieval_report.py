"""The report of a retrieval evaluation: means with intervals as figures, as tables and as a plot.

Measures nothing itself. Figures are plain data for JSON: every mean is a dict of mean, low and high.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from localmem.errors import BadInput
from localmem.evaluation.evidence_retrieval import BUDGETS, DCG_TURNS, ProbeResult, RetrievalResult
from localmem.files import read_jsonl, write_jsonl
from localmem.reporting.bootstrap import Estimate, Resampling
from localmem.reporting.plots import save_plot
from localmem.reporting.sections import Report, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figures = dict[str, Any]

COMPARED = ("recall@5", "recall@10", "recall@500t", "recall@1000t", "recall@2000t")
PLOT, ROWS = "recall.png", "rows.jsonl"
_RANK_MEASURES = ("mrr", f"dcg@{DCG_TURNS}", "hit@5", "tokens@5", "tokens@10")


def run_figures(result: RetrievalResult, resampling: Resampling) -> Figures:
    """Every measure of a run over all questions and by their type, with the percentiles of its search times."""
    rows = result.rows
    return {
        "run": result.run,
        "units": result.units,
        "unit_tokens": round(result.unit_tokens, 1),
        "search_ms": {f"p{p}": round(float(np.percentile(result.milliseconds, p)), 2) for p in (50, 95)},
        **_means(rows, resampling),
        "types": {
            name: _means([row for row in rows if row.type == name], resampling)
            for name in sorted({row.type for row in rows})
        },
    }


def _means(rows: Sequence[ProbeResult], resampling: Resampling) -> Figures:
    return {
        "questions": len(rows),
        "measures": {name: resampling.mean(_values(rows, name)) for name in rows[0].measures},
    }


def _values(rows: Sequence[ProbeResult], measure: str) -> list[float]:
    return [row.measures[measure] for row in rows]


def differences(
    results: Sequence[RetrievalResult], resampling: Resampling, baselines: Sequence[Sequence[ProbeResult]] = ()
) -> list[Figures]:
    """Every run minus every one before it and every baseline, in the compared measures, paired by question."""
    pairs: list[tuple[Sequence[ProbeResult], Sequence[ProbeResult]]] = [
        *combinations([result.rows for result in results], 2)
    ]
    pairs += [(rows, result.rows) for rows in baselines for result in results]
    return [
        {
            "what": f"{later[0].run} - {earlier[0].run}",
            "measure": name,
            **resampling.difference(_values(later, name), _values(earlier, name)),
        }
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


def tables(runs: Sequence[Figures], compared: Sequence[Figures]) -> tuple[Table, ...]:
    """What `run_figures` and `differences` returned, for a person."""
    depths = [name for name in runs[0]["measures"] if name.startswith("recall@") and not name.endswith("t")]
    rows: Mapping[str, list[Figures]] = {
        "Evidence recall (mean and 95 % interval)": [
            {"run": run["run"]} | {name: _cell(run, name) for name in depths} for run in runs
        ],
        "Evidence recall at equal tokens": [
            {"run": run["run"]} | {f"{budget} tokens": _cell(run, f"recall@{budget}t") for budget in BUDGETS}
            for run in runs
        ],
        "Ranks and cost": [_rank_row(run) for run in runs],
        "By question type": [
            {"run": run["run"], "type": type_, "questions": own["questions"]}
            | {name: _cell(own, name) for name in depths if name in COMPARED}
            for run in runs
            for type_, own in run["types"].items()
        ],
        "Paired differences (mean and 95 % interval)": [
            {"difference": each["what"], "measure": each["measure"], "mean": Estimate.of(each).as_text("+")}
            for each in compared
        ],
    }
    return tuple(Table.of(caption, own) for caption, own in rows.items() if own)


def _cell(figures: Figures, measure: str) -> str:
    return Estimate.of(figures["measures"][measure]).as_text()


def _rank_row(run: Figures) -> Figures:
    means = {name: run["measures"][name]["mean"] for name in _RANK_MEASURES if name in run["measures"]}
    return {
        "run": run["run"],
        **{name: f"{mean:.0f}" if name.startswith("tokens") else f"{mean:.3f}" for name, mean in means.items()},
        "units": run["units"],
        "tokens per unit": f"{run['unit_tokens']:.0f}",
        **{f"{name} ms": f"{value:.1f}" for name, value in run["search_ms"].items()},
    }


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
