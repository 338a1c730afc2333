"""Key compression: recall against the compression rate, and how near questions are to the keys.

SeCom, section 2.3 and Figure 3: recall rises while at least half of the tokens remain, and questions come nearer to the
segments that answer them and move away from others. Prints nothing.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.episodes import Dataset
from localmem.evaluation.evidence_retrieval import (
    DEPTHS,
    Builder,
    MeasureOptions,
    RetrievalMethod,
    RetrievalResult,
    compress_keys,
    measure_retrieval,
    merge_results,
    probes_with_evidence,
)
from localmem.experiments.retrieval_parts import (
    RANDOM,
    Kind,
    Rate,
    RetrievalConfig,
    RetrievalParts,
    SearchRecipe,
    describe_data,
    load_compressor,
)
from localmem.experiments.runs import Notify
from localmem.reporting.intervals import Estimate, difference, estimate
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Report, Table, save_plot
from localmem.retrieval.base import Encoder
from localmem.text.compress import Compressor
from localmem.text.dialogue import Count
from localmem.types import Session, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Figures = dict[str, Any]

PLOT = "recall.png"
UNCOMPRESSED = "none"
_WIDTH = 50  # units to search for


class KeyCompressionRecipe(SearchRecipe):
    """What to measure: every compressor at every rate with every retriever."""

    compressors: tuple[str, ...] = ("llmlingua-2-xlm-roberta-large", RANDOM)
    """Compressor by name or folder; random drops words at random."""
    rates: tuple[Rate, ...] = (0.9, 0.75, 0.5)
    """Share of a key's tokens to keep."""
    retrievers: tuple[Kind, ...] = Field(default=("dense", "bm25"), min_length=1)
    """Retriever."""
    unit: Literal["turn", "exchange", "segment", "session"] = "segment"
    """Unit size; segments are of equal size."""
    depths: tuple[Annotated[int, Field(ge=1, le=_WIDTH)], ...] = Field(default=(1, 3, 5, 10), min_length=1)
    """Numbers of units at which recall is reported."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The units of all episodes by their sessions, with keys compressed in one way."""

    compressor: str
    rate: float
    units: Mapping[Sequence[Session], list[Unit]]

    def of(self, sessions: Sequence[Session]) -> list[Unit]:
        """The units of one episode."""
        return self.units[sessions]


class Cosines(NamedTuple):
    """Mean cosine of one question to keys of units with its evidence, and to all other keys."""

    episode: str
    related: float
    unrelated: float


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The result of one retriever with one set of keys; `kept` is the share of tokens that remained."""

    keys: KeySet
    kept: float
    retriever: str
    result: RetrievalResult

    def values(self, measure: str) -> list[float]:
        """The measure of each question."""
        return [row.measures[measure] for row in self.result.rows]

    @property
    def episodes(self) -> list[str]:
        """The episode of each question."""
        return [row.episode for row in self.result.rows]


def measure_key_compression(
    settings: Settings,
    recipe: KeyCompressionRecipe,
    name: str,
    path: Path,
    *,
    out: Path | None = None,
    notify: Notify = lambda _: None,
) -> Report:
    """Measure over the data set `name` in the file `path`; `out` receives the report and a plot. Raises BadInput."""
    if not set(recipe.depths) <= set(DEPTHS):
        raise BadInput(f"recall is measured at {', '.join(map(str, DEPTHS))} units; choose depths from these")
    dataset, probes = recipe.select(read_dataset(name, path), "turns")
    unit = f"segment of {recipe.chunk} exchanges" if recipe.unit == "segment" else recipe.unit
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-compression-")))
        parts = RetrievalParts(recipe.apply(settings), folder, stack, notify, recipe.chunk, recipe.seed)
        figures = {
            "data": describe_data(dataset, path),
            **recipe.model_dump(include={"split", "limit", "seed"}),
            "questions": len(probes),
            "unit": unit,
            **_measure(parts, dataset, recipe),
            "versions": versions(),
        }
    note = f"{name}, split {recipe.split or 'all'}: {len(probes)} questions; unit: {unit}"
    report = Report(figures, _tables(figures), (note,))
    if out:
        report.save(out, f"Compression {out.name}", (PLOT,))
        save_plot(out / PLOT, lambda axes: _draw_recall(axes, figures["recall"]), width=7, height=4.5)
    return report


def _measure(parts: RetrievalParts, dataset: Dataset, recipe: KeyCompressionRecipe) -> Figures:
    """The keys of all compressors and rates, searched by every retriever, as plain data."""
    measures = [f"recall@{depth}" for depth in sorted(recipe.depths)]
    original, *_ = key_sets = _key_sets(parts, dataset, recipe)
    model, count = parts.token_counter
    options = MeasureOptions("turns", "question", _WIDTH, count)
    searches: list[KeySearch] = []
    for kind in recipe.retrievers:
        config = _config(kind, recipe)
        for keys in key_sets:
            method = RetrievalMethod(kind, keys.of, partial(parts.retriever, config))
            result = merge_results(measure_retrieval(method, dataset, options))
            searches.append(KeySearch(keys, kept_share(keys, original, count), kind, result))
    figures: Figures = {
        "compressors": {name: _weights_checksum(name) for name in recipe.compressors},
        "tokens_of": model,
        "recall": [recall_figures(search, measures) for search in searches],
        "differences": difference_figures(searches, RANDOM, measures),
    }
    if any(kind != "bm25" for kind in recipe.retrievers):
        cosines = [question_cosines(dataset, keys, parts.encoder) for keys in key_sets]
        figures["encoder"] = parts.encoder.identity
        figures["similarity"] = [
            cosine_figures(keys, current, cosines[0]) for keys, current in zip(key_sets, cosines, strict=True)
        ]
    return figures


def _config(kind: Kind, recipe: KeyCompressionRecipe) -> RetrievalConfig:
    """Keys contain what SeCom compresses: the words with their speakers."""
    return RetrievalConfig(kind, recipe.unit, "speaker", constant=10.0, depth=_WIDTH)


def _key_sets(parts: RetrievalParts, dataset: Dataset, recipe: KeyCompressionRecipe) -> list[KeySet]:
    """Uncompressed keys first, then every compressor from its highest rate on."""
    config = _config("bm25", recipe)
    key_sets = [uncompressed_keys(dataset, lambda sessions: parts.units(config, sessions))]
    for name in recipe.compressors:
        compressor = load_compressor(name, recipe.seed)
        for rate in sorted({rate for rate in recipe.rates if rate < 1}, reverse=True):
            parts.notify(f"compressing to {rate:g} with {name}")
            key_sets.append(compressed_keys(key_sets[0], name, compressor, rate))
    return key_sets


def _weights_checksum(name: str) -> str | None:
    """The sha256 of a compressor's weights."""
    from localmem.weights.folder import checksum, model_folder

    files = sorted(model_folder(name).glob("*.safetensors")) if name != RANDOM else []
    return checksum(files[0]) if files else None


# -- measures ----------------------------------------------------------------------------------------------------------


def uncompressed_keys(dataset: Dataset, units: Builder) -> KeySet:
    """The units as they are."""
    return KeySet(UNCOMPRESSED, 1.0, {episode.sessions: units(episode.sessions) for episode in dataset.episodes})


def compressed_keys(keys: KeySet, name: str, compressor: Compressor, rate: float) -> KeySet:
    """Compressed keys; all units of an episode are compressed together, as at the end of a session."""
    by_sessions = {sessions: compress_keys(units, compressor, rate) for sessions, units in keys.units.items()}
    return KeySet(name, rate, by_sessions)


def kept_share(keys: KeySet, original: KeySet, count: Count) -> float:
    """The share of the original keys' tokens that compression kept."""
    after, before = (
        sum(sum(count([unit.key for unit in units])) for units in each.units.values() if units)
        for each in (keys, original)
    )
    return after / max(1, before)


def question_cosines(dataset: Dataset, keys: KeySet, encoder: Encoder) -> list[Cosines]:
    """For each question with evidence in some units but not in all, in order."""
    cosines: list[Cosines] = []
    for episode in dataset.episodes:
        probes, units = probes_with_evidence(episode, "turns"), keys.of(episode.sessions)
        if not probes or not units:
            continue
        questions = encoder.encode([probe.question for probe in probes], "query")
        matrix = questions @ encoder.encode([unit.key for unit in units], "passage").T
        for probe, row in zip(probes, matrix.tolist(), strict=True):
            sides: dict[bool, list[float]] = {True: [], False: []}
            for unit, cosine in zip(units, row, strict=True):
                sides[not set(unit.sources).isdisjoint(probe.evidence)].append(cosine)
            if all(sides.values()):
                cosines.append(Cosines(episode.id, *(sum(values) / len(values) for values in sides.values())))
    return cosines


_SIDES: Mapping[str, Callable[[Cosines], float]] = {
    "related": lambda cosines: cosines.related,
    "unrelated": lambda cosines: cosines.unrelated,
    "gap": lambda cosines: cosines.related - cosines.unrelated,
}


def cosine_figures(keys: KeySet, current: Sequence[Cosines], original: Sequence[Cosines]) -> Figures:
    """Mean cosines with intervals, and their paired change by compression; `gap` is related - unrelated."""
    figures: Figures = {"compressor": keys.compressor, "rate": keys.rate}
    episodes = [each.episode for each in current]
    for name, side in _SIDES.items():
        values = [side(each) for each in current]
        figures[name] = estimate(values, episodes).as_dict()
        if keys.compressor != UNCOMPRESSED:
            figures[f"{name}_change"] = difference(values, [side(each) for each in original], episodes).as_dict()
    return figures


def recall_figures(search: KeySearch, measures: Sequence[str]) -> Figures:
    """A retriever's recall with some keys, with intervals."""
    return {
        "retriever": search.retriever,
        "compressor": search.keys.compressor,
        "rate": search.keys.rate,
        "kept": round(search.kept, 4),
        "units": search.result.units,
        "measures": {name: estimate(search.values(name), search.episodes).as_dict() for name in measures},
    }


def difference_figures(searches: Sequence[KeySearch], control: str, measures: Sequence[str]) -> list[Figures]:
    """Every compression minus none, and minus the control compressor at the same rate, paired by question."""

    def compares(ours: KeySearch, other: KeySearch) -> bool:
        if ours.retriever != other.retriever or ours is other or ours.keys.compressor == UNCOMPRESSED:
            return False
        is_control = other.keys.compressor == control != ours.keys.compressor and other.keys.rate == ours.keys.rate
        return is_control or other.keys.compressor == UNCOMPRESSED

    return [
        {
            "what": f"{ours.keys.compressor} - {other.keys.compressor}",
            "retriever": ours.retriever,
            "rate": ours.keys.rate,
            "measure": name,
            **difference(ours.values(name), other.values(name), ours.episodes).as_dict(),
        }
        for ours in searches
        for other in searches
        if compares(ours, other)
        for name in measures
    ]


# -- tables and plot ---------------------------------------------------------------------------------------------------


def _tables(figures: Figures) -> tuple[Table, ...]:
    recall = [
        {name: row[name] for name in ("retriever", "compressor", "rate")}
        | {"kept": f"{row['kept']:.2f}"}
        | {name: Estimate.of(measure).as_text() for name, measure in row["measures"].items()}
        for row in figures["recall"]
    ]
    differences = [
        {name: row[name] for name in ("retriever", "what", "rate", "measure")} | {"mean": Estimate.of(row).as_text("+")}
        for row in figures["differences"]
    ]
    cosines = [
        {name: row[name] for name in ("compressor", "rate")}
        | {side: Estimate.of(row[side]).as_text() for side in _SIDES}
        | {
            f"{side}, change": Estimate.of(row[f"{side}_change"]).as_text("+")
            for side in _SIDES
            if f"{side}_change" in row
        }
        for row in figures.get("similarity", ())
    ]
    tables = {
        "Recall (mean and 95 % interval)": recall,
        "Paired differences (mean and 95 % interval)": differences,
        "Cosine of questions to keys (mean and 95 % interval)": cosines,
    }
    return tuple(Table.of(caption, rows) for caption, rows in tables.items() if rows)


def _draw_recall(axes: "Axes", rows: list[Figures]) -> None:
    """Recall against the rate, a line for each retriever and compressor that starts at uncompressed keys."""
    measures = list(rows[0]["measures"])
    name = measures[len(measures) // 2]
    for retriever in dict.fromkeys(row["retriever"] for row in rows):
        original, *compressed = [row for row in rows if row["retriever"] == retriever]
        for compressor in dict.fromkeys(row["compressor"] for row in compressed):
            points = [original, *(row for row in compressed if row["compressor"] == compressor)]
            means = [row["measures"][name] for row in points]
            rates, heights = [row["rate"] for row in points], [mean["mean"] for mean in means]
            intervals = [Estimate.of(mean) for mean in means]
            errors = [
                [0 if low is None else mean - low for mean, low, _ in intervals],
                [0 if high is None else high - mean for mean, _, high in intervals],
            ]
            axes.errorbar(rates, heights, yerr=errors, marker="o", capsize=3, label=f"{retriever}, {compressor}")
    axes.set(xlabel="share of tokens kept", ylabel=name, ylim=(0, 1))
    axes.invert_xaxis()
