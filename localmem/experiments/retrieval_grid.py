"""Retrieval experiments: every combination of units, keys and retrievers over one data set, compared by question.

Prints nothing; the result is a Report with figures, tables and notes. Figures are plain data for JSON: every mean is a
dict of mean, low and high.
"""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import combinations, groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets import longmemeval, read_dataset
from localmem.evaluation.episodes import Dataset
from localmem.evaluation.evidence_retrieval import (
    BUDGETS,
    DCG_TURNS,
    Form,
    Gold,
    MeasureOptions,
    ProbeResult,
    Query,
    RetrievalMethod,
    RetrievalResult,
    measure_retrieval,
    merge_results,
    probes_with_evidence,
)
from localmem.experiments.retrieval_parts import (
    HYBRID_FIELDS,
    NO_RERANKER,
    DenseText,
    Kind,
    Positive,
    Rate,
    RetrievalConfig,
    RetrievalParts,
    SearchRecipe,
    Size,
    describe_data,
)
from localmem.experiments.runs import Notify, Progress, counting, ignore_progress
from localmem.files import read_jsonl, write_jsonl, writing
from localmem.reporting.intervals import Estimate, difference, estimate
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Report, Table, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Figures = dict[str, Any]

COMPARED = ("recall@5", "recall@10", "recall@500t", "recall@1000t", "recall@2000t")
PLOT, ROWS = "recall.png", "rows.jsonl"
_RANK_MEASURES = ("mrr", f"dcg@{DCG_TURNS}", "hit@5", "tokens@5", "tokens@10")


def run_figures(result: RetrievalResult) -> Figures:
    """Every measure of a run over all questions and by their type, with the percentiles of its search times."""
    rows = result.rows
    return {
        "run": result.run,
        "units": result.units,
        "unit_tokens": round(result.unit_tokens, 1),
        "search_ms": {f"p{p}": round(float(np.percentile(result.milliseconds, p)), 2) for p in (50, 95)},
        **_means(rows),
        "types": {
            name: _means([row for row in rows if row.type == name]) for name in sorted({row.type for row in rows})
        },
    }


def _means(rows: Sequence[ProbeResult]) -> Figures:
    return {
        "questions": len(rows),
        "measures": {name: estimate(_values(rows, name), _episodes(rows)).as_dict() for name in rows[0].measures},
    }


def _values(rows: Sequence[ProbeResult], measure: str) -> list[float]:
    return [row.measures[measure] for row in rows]


def _episodes(rows: Sequence[ProbeResult]) -> list[str]:
    return [row.episode for row in rows]


def differences(results: Sequence[RetrievalResult], baselines: Sequence[Sequence[ProbeResult]] = ()) -> list[Figures]:
    """Every run minus every one before it and every baseline, in the compared measures, paired by question."""
    pairs: list[tuple[Sequence[ProbeResult], Sequence[ProbeResult]]] = [
        *combinations([result.rows for result in results], 2)
    ]
    pairs += [(rows, result.rows) for rows in baselines for result in results]
    return [
        {
            "what": f"{later[0].run} - {earlier[0].run}",
            "measure": name,
            **difference(_values(later, name), _values(earlier, name), _episodes(later)).as_dict(),
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


Count = Annotated[int, Field(ge=0)]


class RetrievalGrid(SearchRecipe):
    """What to measure: all combinations of the fields that hold several values."""

    systems: tuple[str, ...] = ()
    """Memory system, or SYSTEM/VARIANT: measure its own search over exchanges instead of the retrievers."""
    retrievers: tuple[Kind, ...] = Field(default=("dense",), min_length=1)
    """Retriever."""
    units: tuple[Size, ...] = Field(default=("turn",), min_length=1)
    """Unit size."""
    keys: tuple[Form, ...] = Field(default=("plain",), min_length=1)
    """Content of a key: the words (plain), with speakers (speaker), with the date (dated)."""
    before: tuple[Count, ...] = Field(default=(0,), min_length=1)
    """Preceding units whose words a key includes."""
    after: tuple[Count, ...] = Field(default=(0,), min_length=1)
    """Following units whose words a key includes."""
    rates: tuple[Rate, ...] = Field(default=(1.0,), min_length=1)
    """Share of a key's tokens that compression keeps."""
    rerankers: tuple[str, ...] = Field(default=(NO_RERANKER,), min_length=1)
    """Cross-encoder over the first matches, by name or folder, or none."""
    dense_texts: tuple[DenseText, ...] = Field(default=("key",), min_length=1)
    """Texts with vectors: key, text (as shown), sentences of the key, or both key and sentences."""
    weights: tuple[Annotated[float, Field(gt=0)], ...] = Field(default=(1.0,), min_length=1)
    """Hybrid: weight of bm25; that of dense is 1."""
    constants: tuple[Annotated[float, Field(ge=0)], ...] = Field(default=(60.0,), min_length=1)
    """Hybrid: constant of reciprocal rank fusion."""
    depths: tuple[Positive, ...] = Field(default=(50,), min_length=1)
    """Hybrid: matches of each retriever to fuse, at least `width`."""
    pool: Positive | None = None
    """LongMemEval, evidence only: number of sessions to search for each question; all by default."""
    gold: Gold = "turns"
    """What has to be found: turns or sessions with evidence."""
    query: Query = "question"
    """Text to search for: the question, or the dialogue and the question."""
    segmenter: Literal["even", "topics"] = "even"
    """How segments are made: of equal size, or by the backbone."""
    compressor: str = "llmlingua-2-xlm-roberta-large"
    """Compressor in the manifest, or random."""
    width: Positive = 200
    """Number of units to search for."""

    def configs(self) -> list[RetrievalConfig]:
        """Every combination once, or none where systems are measured; unused fields keep their first value."""
        if self.systems:
            return []
        values = (
            self.retrievers, self.units, self.keys, self.before, self.after, self.rates, self.rerankers,
            self.dense_texts, self.weights, self.constants, self.depths,
        )  # fmt: skip
        unused = {"hybrid": (), "dense": HYBRID_FIELDS, "bm25": (*HYBRID_FIELDS, "dense_text")}
        first, *others = (RetrievalConfig(*combination) for combination in product(*values))  # type: ignore[arg-type]
        plain = (
            replace(config, **{name: getattr(first, name) for name in unused[config.retriever]})
            for config in (first, *others)
        )
        return list(dict.fromkeys(plain))


def measure_grid(
    settings: Settings,
    grid: RetrievalGrid,
    name: str,
    path: Path,
    *,
    out: Path | None = None,
    against: Path | None = None,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Measure all configurations of the grid over the data set `name` in the file `path`.

    `out` receives report.json, rows.jsonl, a plot and the vectors, which later calls reuse; `against` is the rows.jsonl
    of an earlier evaluation to compare with. Raises BadInput.
    """
    settings, configs = grid.apply(settings), grid.configs()
    dataset = _read_dataset(grid, name, path)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-retrieval-")))
        with writing(folder, "choose another --out"):
            folder.mkdir(parents=True, exist_ok=True)
        parts = RetrievalParts(settings, folder, stack, notify, grid.chunk, grid.seed, grid.segmenter, grid.compressor)
        results = _measure(configs, grid, dataset, parts, progress)
        about = _describe(grid, configs, dataset, path, parts)
    runs = [run_figures(result) for result in results]
    baselines = read_baselines(against, results) if against else []
    compared = differences(results, baselines)
    figures = about | {"runs": runs, "differences": compared}
    notes = (
        f"{name}, split {grid.split or 'all'}: {about['questions']} questions over {about['sessions']} sessions",
        f"{about['without_evidence']} questions without evidence are not measured",
        f"gold: {grid.gold}; tokens of {about['tokens_of']}, of units as they are shown, with dates",
        *dataset.notes,
    )
    report = Report(figures, tables(runs, compared), notes)
    if out:
        write_results(out, report, results)
    return report


def _read_dataset(grid: RetrievalGrid, name: str, path: Path) -> Dataset:
    """The data to measure. Raises BadInput for what cannot be measured."""
    dataset = read_dataset(name, path)
    if grid.pool is not None:
        if name != "longmemeval":
            raise BadInput(f"`pool` applies to longmemeval only, not to {name}; omit it")
        dataset = longmemeval.draw_haystacks(dataset, grid.pool)
    elif grid.split is None:
        dataset = longmemeval.merge_pools(dataset)
    dataset, probes = grid.select(dataset, grid.gold)
    if grid.query == "dialogue" and not any(probe.dialogue for probe in probes):
        raise BadInput(f"questions of {name} have no dialogue before them; set query to question")
    if grid.gold == "turns" and "memory" in grid.units:
        raise BadInput("memory units cover whole sessions and no single turns; set gold to sessions")
    return dataset


def _measure(
    configs: list[RetrievalConfig], grid: RetrievalGrid, dataset: Dataset, parts: RetrievalParts, progress: Progress
) -> list[RetrievalResult]:
    options = MeasureOptions(grid.gold, grid.query, grid.width, parts.token_counter[1])
    methods = [
        RetrievalMethod(config.name(configs), partial(parts.units, config), partial(parts.retriever, config))
        for config in configs
    ]
    for name in grid.systems:
        index = parts.system(name)
        methods.append(RetrievalMethod(name, index.read, index.opened))
    track = counting(progress, "searching", len(methods) * len(dataset.episodes))
    results: list[RetrievalResult] = []
    for method in methods:
        episodes: list[RetrievalResult] = []
        for result in measure_retrieval(method, dataset, options):
            episodes.append(result)
            track(1)
        results.append(merge_results(episodes))
    return results


def _describe(
    grid: RetrievalGrid, configs: list[RetrievalConfig], dataset: Dataset, path: Path, parts: RetrievalParts
) -> dict[str, Any]:
    """What was measured, on which data, with which models."""
    questions = sum(len(probes_with_evidence(episode, grid.gold)) for episode in dataset.episodes)
    return {
        "data": describe_data(dataset, path),
        "episodes": len(dataset.episodes),
        "sessions": len({session for episode in dataset.episodes for session in episode.sessions}),
        "questions": questions,
        "without_evidence": sum(len(episode.probes) for episode in dataset.episodes) - questions,
        **grid.model_dump(include={"split", "gold", "query", "width", "limit", "pool", "seed"}),
        "configs": [asdict(config) for config in configs],
        "systems": {name: parts.options(name) for name in grid.systems},
        **parts.describe(configs),
        "tokens_of": parts.token_counter[0],
        "language": parts.settings.retrieval.language,
        "versions": versions(),
    }
