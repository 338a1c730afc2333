"""Key compression experiments: recall and cosines of compressed and uncompressed keys.

Prints nothing.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from localmem.errors import BadInput
from localmem.experiments.retrieval_parts import RANDOM, Kind, RetrievalConfig, RetrievalParts, load_compressor
from localmem.experiments.runs import Notify, Split
from localmem.reporting.plots import save_plot
from localmem.reporting.sections import Report, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from localmem.config import Settings
    from localmem.evaluation.compression import KeySearch, KeySet
    from localmem.evaluation.episodes import Dataset

PLOT = "recall.png"
_WIDTH = 50  # units to search for
_SIDES = ("related", "unrelated", "gap")

Rate = Annotated[float, Field(gt=0, le=1)]


class KeyCompressionRecipe(BaseModel):
    """What to measure: every compressor at every rate with every retriever."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    compressors: tuple[str, ...] = ("llmlingua-2-xlm-roberta-large", RANDOM)
    """Compressor by name or folder; random drops words at random."""
    rates: tuple[Rate, ...] = (0.9, 0.75, 0.5)
    """Share of a key's tokens to keep."""
    retrievers: tuple[Kind, ...] = Field(default=("dense", "bm25"), min_length=1)
    """Retriever."""
    unit: Literal["turn", "exchange", "segment", "session"] = "segment"
    """Unit size; segments are of equal size."""
    chunk: int = Field(default=3, ge=1)
    """Exchanges of a segment."""
    depths: tuple[Annotated[int, Field(ge=1, le=_WIDTH)], ...] = Field(default=(1, 3, 5, 10), min_length=1)
    """Numbers of units at which recall is reported."""
    split: Split | None = None
    """Half of the data: choose (development) or report (test); both by default."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first N questions."""
    encoder: str | None = None
    """Encoder in the manifest; that of the settings by default."""
    seed: int = 0
    """Seed for random compression and resampling."""
    resamples: int = Field(default=2000, ge=1)
    """Bootstrap resamples of the 95 % intervals."""


def measure_key_compression(
    settings: "Settings",
    recipe: KeyCompressionRecipe,
    name: str,
    path: Path,
    *,
    out: Path | None = None,
    notify: Notify = lambda _: None,
) -> Report:
    """Measure over the data set `name` in the file `path`; `out` receives the report and a plot. Raises BadInput."""
    from localmem.evaluation.datasets import read_dataset
    from localmem.evaluation.evidence_retrieval import DEPTHS, probes_with_evidence

    if not set(recipe.depths) <= set(DEPTHS):
        raise BadInput(f"recall is measured at {', '.join(map(str, DEPTHS))} units; choose depths from these")
    dataset = read_dataset(name, path).select(recipe.split, recipe.limit)
    questions = sum(len(probes_with_evidence(episode, "turns")) for episode in dataset.episodes)
    if not questions:
        split = f"split {recipe.split!r} of {name}" if recipe.split else name
        raise BadInput(f"{split} has no question with evidence; use another split or data set")
    if recipe.encoder:
        retrieval = settings.retrieval.model_copy(update={"encoder": recipe.encoder})
        settings = settings.model_copy(update={"retrieval": retrieval})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-compression-")))
        parts = RetrievalParts(
            settings, folder, stack,
            segmenter="even", chunk=recipe.chunk, compressor=RANDOM, seed=recipe.seed, notify=notify,
        )  # fmt: skip
        figures = {
            "data": {"name": dataset.name, "file": path.name, "sha256": dataset.sha256, "notes": list(dataset.notes)},
            "split": recipe.split,
            "limit": recipe.limit,
            "questions": questions,
            "seed": recipe.seed,
            "resamples": recipe.resamples,
            "unit": f"segment of {recipe.chunk} exchanges" if recipe.unit == "segment" else recipe.unit,
            **_Measurement(parts, dataset, recipe, notify).figures(),
        }
    unit, split = figures["unit"], recipe.split or "all"
    report = Report(figures, _tables(figures), (f"{name}, split {split}: {questions} questions; unit: {unit}",))
    if out:
        report.save(out, f"Compression {out.name}", (PLOT,))
        save_plot(out / PLOT, lambda axes: _draw_recall(axes, figures["recall"]), width=7, height=4.5)
    return report


class _Measurement:
    """The keys of all compressors and rates, searched by every retriever."""

    def __init__(self, parts: RetrievalParts, dataset: "Dataset", recipe: KeyCompressionRecipe, notify: Notify) -> None:
        self._parts, self._dataset, self._recipe, self._notify = parts, dataset, recipe, notify

    def figures(self) -> dict[str, Any]:
        """Every figure as plain data."""
        from localmem.evaluation.compression import (
            Resampling,
            cosine_figures,
            difference_figures,
            question_cosines,
            recall_figures,
        )
        from localmem.reporting.provenance import versions

        recipe = self._recipe
        resampling = Resampling(recipe.seed, recipe.resamples)
        measures = [f"recall@{depth}" for depth in sorted(recipe.depths)]
        key_sets = self._key_sets()
        searches = [self._search(keys, key_sets[0], kind) for kind in recipe.retrievers for keys in key_sets]
        figures: dict[str, Any] = {
            "compressors": {name: _weights_checksum(name) for name in recipe.compressors},
            "tokens_of": self._parts.token_counter[0],
            "recall": [recall_figures(search, measures, resampling) for search in searches],
            "differences": difference_figures(searches, RANDOM, measures, resampling),
            "versions": versions(),
        }
        if any(kind != "bm25" for kind in recipe.retrievers):
            cosines = [question_cosines(self._dataset, keys, self._parts.encoder) for keys in key_sets]
            figures["encoder"] = self._parts.encoder.identity
            figures["similarity"] = [
                cosine_figures(keys, current, cosines[0], resampling)
                for keys, current in zip(key_sets, cosines, strict=True)
            ]
        return figures

    def _key_sets(self) -> "list[KeySet]":
        """Uncompressed keys first, then every compressor from its highest rate on."""
        from localmem.evaluation.compression import compressed_keys, uncompressed_keys

        config = self._config("bm25")
        original = uncompressed_keys(self._dataset, lambda sessions: self._parts.units(config, sessions))
        key_sets = [original]
        for name in self._recipe.compressors:
            compressor = load_compressor(name, self._recipe.seed)
            for rate in sorted({rate for rate in self._recipe.rates if rate < 1}, reverse=True):
                self._notify(f"compressing to {rate:g} with {name}")
                key_sets.append(compressed_keys(original, name, compressor, rate))
        return key_sets

    def _search(self, keys: "KeySet", original: "KeySet", kind: Kind) -> "KeySearch":
        from localmem.evaluation.compression import KeySearch, kept_share
        from localmem.evaluation.evidence_retrieval import (
            MeasureOptions,
            RetrievalMethod,
            measure_retrieval,
            merge_results,
        )

        options = MeasureOptions("turns", "question", _WIDTH, self._parts.token_counter[1])
        name = f"{kind} {keys.compressor} {keys.rate:g}"
        method = RetrievalMethod(name, keys.of, lambda: self._parts.retriever(self._config(kind)))
        result = merge_results(measure_retrieval(method, self._dataset, options))
        return KeySearch(keys, kept_share(keys, original, options.count), kind, result)

    def _config(self, kind: Kind) -> RetrievalConfig:
        """Keys contain what SeCom compresses: the words with their speakers."""
        return RetrievalConfig(kind, self._recipe.unit, "speaker", constant=10.0, depth=_WIDTH)


def _weights_checksum(name: str) -> str | None:
    """The sha256 of a compressor's weights."""
    from localmem.weights import model_path
    from localmem.weights.folder import checksum

    if name == RANDOM:
        return None
    folder = Path(name).expanduser()
    files = sorted((folder if folder.is_dir() else model_path(name)).glob("*.safetensors"))
    return checksum(files[0]) if files else None


def _tables(figures: dict[str, Any]) -> tuple[Table, ...]:
    recall = [
        {
            **{name: row[name] for name in ("retriever", "compressor", "rate")},
            "kept": f"{row['kept']:.2f}",
            **{name: _interval(measure) for name, measure in row["measures"].items()},
        }
        for row in figures["recall"]
    ]
    differences = [
        {**{name: row[name] for name in ("retriever", "what", "rate", "measure")}, "mean": _interval(row, "+")}
        for row in figures["differences"]
    ]
    cosines = [
        {
            **{name: row[name] for name in ("compressor", "rate")},
            **{side: _interval(row[side]) for side in _SIDES},
            **{f"{side}, change": _interval(row[f"{side}_change"], "+") for side in _SIDES if f"{side}_change" in row},
        }
        for row in figures.get("similarity", ())
    ]
    tables = {
        "Recall (mean and 95 % interval)": recall,
        "Paired differences (mean and 95 % interval)": differences,
        "Cosine of questions to keys (mean and 95 % interval)": cosines,
    }
    return tuple(Table.of(caption, rows) for caption, rows in tables.items() if rows)


def _interval(figures: dict[str, float], sign: str = "") -> str:
    from localmem.reporting.bootstrap import Estimate

    return Estimate(figures["mean"], figures["low"], figures["high"]).as_text(sign)


def _draw_recall(axes: "Axes", rows: list[dict[str, Any]]) -> None:
    """Recall against the rate, a line for each retriever and compressor that starts at uncompressed keys."""
    measures = list(rows[0]["measures"])
    name = measures[len(measures) // 2]
    for retriever in dict.fromkeys(row["retriever"] for row in rows):
        original, *compressed = [row for row in rows if row["retriever"] == retriever]
        for compressor in dict.fromkeys(row["compressor"] for row in compressed):
            points = [original, *(row for row in compressed if row["compressor"] == compressor)]
            means = [row["measures"][name] for row in points]
            errors = [[mean["mean"] - mean["low"] for mean in means], [mean["high"] - mean["mean"] for mean in means]]
            axes.errorbar(
                [row["rate"] for row in points],
                [mean["mean"] for mean in means],
                yerr=errors,
                marker="o",
                capsize=3,
                label=f"{retriever}, {compressor}",
            )
    axes.set(xlabel="share of tokens kept", ylabel=name, ylim=(0, 1))
    axes.invert_xaxis()
