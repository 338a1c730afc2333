"""Retrieval experiments: every combination of units, keys and retrievers over one data set, compared by question.

Prints nothing; the result is a Report with figures, tables and notes.
"""

import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation import retrieval_report
from localmem.evaluation.datasets import longmemeval, read_dataset
from localmem.evaluation.episodes import Dataset
from localmem.evaluation.evidence_retrieval import (
    Gold,
    MeasureOptions,
    Query,
    RetrievalMethod,
    RetrievalResult,
    measure_retrieval,
    merge_results,
    probes_with_evidence,
)
from localmem.evaluation.unit_builders import Form
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
from localmem.files import writing
from localmem.reporting.bootstrap import Resampling
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Report

Count = Annotated[int, Field(ge=0)]


class RetrievalGrid(SearchRecipe):
    """What to measure: all combinations of the fields that hold several values."""

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
        """Every combination once; fields that a retriever does not use keep their first value."""
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
    resampling = Resampling(grid.seed, grid.resamples)
    runs = [retrieval_report.run_figures(result, resampling) for result in results]
    baselines = retrieval_report.read_baselines(against, results) if against else []
    compared = retrieval_report.differences(results, resampling, baselines)
    figures = about | {"runs": runs, "differences": compared}
    notes = (
        f"{name}, split {grid.split or 'all'}: {about['questions']} questions over {about['sessions']} sessions",
        f"{about['without_evidence']} questions without evidence are not measured",
        f"gold: {grid.gold}; tokens of {about['tokens_of']}, of units as they are shown, with dates",
        *dataset.notes,
    )
    report = Report(figures, retrieval_report.tables(runs, compared), notes)
    if out:
        retrieval_report.write_results(out, report, results)
    return report


def _read_dataset(grid: RetrievalGrid, name: str, path: Path) -> Dataset:
    """The data to measure. Raises BadInput for what cannot be measured."""
    dataset = read_dataset(name, path)
    if grid.pool is not None:
        if name != "longmemeval":
            raise BadInput(f"`pool` applies to longmemeval only, not to {name}; omit it")
        dataset = longmemeval.draw_haystacks(dataset, grid.pool)
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
    track = counting(progress, "searching", len(configs) * len(dataset.episodes))
    results: list[RetrievalResult] = []
    for config in configs:
        method = RetrievalMethod(config.name(configs), partial(parts.units, config), partial(parts.retriever, config))
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
        "sessions": len({session.id for episode in dataset.episodes for session in episode.sessions}),
        "questions": questions,
        "without_evidence": sum(len(episode.probes) for episode in dataset.episodes) - questions,
        **grid.model_dump(include={"split", "gold", "query", "width", "limit", "pool", "seed", "resamples"}),
        "configs": [asdict(config) for config in configs],
        **parts.describe(configs),
        "tokens_of": parts.token_counter[0],
        "language": parts.settings.retrieval.language,
        "versions": versions(),
    }
