"""What a retrieval evaluation found: means with intervals, as one document, as tables and as a picture.

Measures nothing itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter

from localmem.errors import BadInput
from localmem.evaluation.evidence_retrieval import BUDGETS, TURNS, Result, Row
from localmem.files import read_jsonl, write_jsonl, writing
from localmem.reporting.bootstrap import Estimate, difference, estimate
from localmem.reporting.plots import save_plot
from localmem.reporting.sections import Section, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAIRED = ("recall@5", "recall@10", "recall@500t", "recall@1000t", "recall@2000t")  # measures that runs are compared by
PICTURE = "recall.png"
_DIGITS = 4  # of a figure in the document


@dataclass(frozen=True, slots=True)
class Figures:
    """Every measure over some questions."""

    questions: int
    measures: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Summary:
    """A run in figures: all questions together, and by their type; searches took `p50` and `p95` milliseconds."""

    run: str
    units: int
    unit_tokens: float
    p50: float
    p95: float
    overall: Figures
    types: Mapping[str, Figures]


@dataclass(frozen=True, slots=True)
class Difference:
    """One run's mean minus another's, over the same questions."""

    what: str
    measure: str
    found: Estimate


def summaries(results: Sequence[Result], seed: int, resamples: int) -> list[Summary]:
    """Each run in figures."""
    return [_summary(result, seed, resamples) for result in results]


def differences(
    results: Sequence[Result], seed: int, resamples: int, earlier_rows: Sequence[Sequence[Row]] = ()
) -> list[Difference]:
    """Every run against every one before it and against earlier ones, in the measures that are compared."""
    pairs: list[tuple[Sequence[Row], Sequence[Row]]] = [*combinations([result.rows for result in results], 2)]
    pairs += [(rows, result.rows) for rows in earlier_rows for result in results]
    return [
        Difference(
            f"{later[0].run} - {earlier[0].run}",
            name,
            difference(_values(later, name), _values(earlier, name), seed=seed, resamples=resamples),
        )
        for earlier, later in pairs
        for name in PAIRED
        if name in later[0].measures and name in earlier[0].measures
    ]


_CURE = "choose another --out"


def earlier(path: Path, results: Sequence[Result]) -> list[list[Row]]:
    """The rows of each run in a rows.jsonl that an earlier call wrote, named "earlier ...".

    Raises BadInput for another file, and for one that is not of the same questions.
    """
    rows = list(read_jsonl(path, TypeAdapter(Row), "give the rows.jsonl of another --out"))
    runs = [list(held) for _, held in groupby(rows, key=lambda row: row.run)]
    asked = [(row.episode, row.probe) for row in results[0].rows]
    if not runs or any([(row.episode, row.probe) for row in held] != asked for held in runs):
        raise BadInput(f"{path} is of other questions than these; compare runs over the same data, half and gold")
    return [[replace(row, run=f"earlier {row.run}") for row in held] for held in runs]


def document(runs: Sequence[Summary], compared: Sequence[Difference]) -> dict[str, object]:
    """The figures as plain data for JSON."""
    return {
        "runs": [
            {
                "run": run.run,
                "units": run.units,
                "unit_tokens": round(run.unit_tokens, 1),
                "search_ms": {"p50": round(run.p50, 2), "p95": round(run.p95, 2)},
                **_plain(run.overall),
                "types": {name: _plain(figures) for name, figures in run.types.items()},
            }
            for run in runs
        ],
        "differences": [{"what": one.what, "measure": one.measure, **_rounded(one.found)} for one in compared],
    }


def tables(runs: Sequence[Summary], compared: Sequence[Difference]) -> list[Table]:
    """The figures for a person."""
    depths = [name for name in runs[0].overall.measures if name.startswith("recall@") and not name.endswith("t")]
    few = [name for name in depths if name in PAIRED]
    found = tuple((run.run, *(_shown(run.overall, name) for name in depths)) for run in runs)
    spent = tuple((run.run, *(_shown(run.overall, f"recall@{budget}t") for budget in BUDGETS)) for run in runs)
    kinds = tuple(
        (run.run, name, str(held.questions), *(_shown(held, one) for one in few))
        for run in runs
        for name, held in run.types.items()
    )
    made = [
        Table("Evidence found (mean and 95 % interval)", ("run", *depths), found),
        Table("Evidence found at equal tokens", ("run", *(f"{budget} tokens" for budget in BUDGETS)), spent),
        Table("Ranks and cost", ("run", *_MORE, "units", "tokens a unit", "p50 ms", "p95 ms"), tuple(map(_more, runs))),
        Table("By type of question", ("run", "type", "questions", *few), kinds),
    ]
    if compared:
        rows = ((one.what, one.measure, "{:+.3f} [{:+.3f}, {:+.3f}]".format(*one.found)) for one in compared)
        made.append(Table("Differences, question by question", ("difference", "measure", "mean"), tuple(rows)))
    return made


def write(folder: Path, held: Mapping[str, object], results: Sequence[Result], section: Section) -> None:
    """report.json, rows.jsonl, recall.png and the section. Raises BadInput where they cannot be written."""
    write_jsonl(folder / "report.json", [held], _CURE)
    write_jsonl(folder / "rows.jsonl", (asdict(row) for result in results for row in result.rows), _CURE)
    with writing(folder, _CURE):
        plot(folder / PICTURE, results)
    section.save(folder)


def plot(path: Path, results: Sequence[Result]) -> None:
    """Recall against tokens, a line a run. Raises MissingExtra without matplotlib."""

    def onto(axes: "Axes") -> None:
        for result in results:
            means = [float(np.mean(_values(result.rows, f"recall@{budget}t"))) for budget in BUDGETS]
            axes.plot(BUDGETS, means, marker="o", label=result.run)
        axes.set(xscale="log", xlabel="tokens shown", ylabel="evidence found", ylim=(0, 1))
        axes.set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
        axes.minorticks_off()

    save_plot(path, onto, width=7, height=4.5)


_MORE = ("mrr", f"dcg@{TURNS}", "hit@5", "tokens@5", "tokens@10")


def _more(run: Summary) -> tuple[str, ...]:
    means = {name: found.mean for name, found in run.overall.measures.items()}
    shown = [_number(name, means[name]) if name in means else "" for name in _MORE]
    return (run.run, *shown, str(run.units), f"{run.unit_tokens:.0f}", f"{run.p50:.1f}", f"{run.p95:.1f}")


def _number(name: str, value: float) -> str:
    return f"{value:.0f}" if name.startswith("tokens") else f"{value:.3f}"


def _summary(result: Result, seed: int, resamples: int) -> Summary:
    ms = result.milliseconds
    return Summary(
        run=result.run,
        units=result.units,
        unit_tokens=result.unit_tokens,
        p50=float(np.quantile(ms, 0.5)),
        p95=float(np.quantile(ms, 0.95)),
        overall=_figures(result.rows, seed, resamples),
        types={
            name: _figures([row for row in result.rows if row.type == name], seed, resamples)
            for name in sorted({row.type for row in result.rows})
        },
    )


def _figures(rows: Sequence[Row], seed: int, resamples: int) -> Figures:
    measures = rows[0].measures
    return Figures(
        len(rows), {name: estimate(_values(rows, name), seed=seed, resamples=resamples) for name in measures}
    )


def _values(rows: Sequence[Row], measure: str) -> list[float]:
    return [row.measures[measure] for row in rows]


def _plain(figures: Figures) -> dict[str, object]:
    return {
        "questions": figures.questions,
        "measures": {name: _rounded(found) for name, found in figures.measures.items()},
    }


def _rounded(found: Estimate) -> dict[str, float]:
    return {name: round(value, _DIGITS) for name, value in found._asdict().items()}


def _shown(figures: Figures, name: str) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*figures.measures[name])
