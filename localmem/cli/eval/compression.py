"""`localmem eval compression`: what compressing keys does to the search. Wires parts into `evaluation.compression`.

Knows how results look and which options there are; measures nothing itself.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from localmem.cli.options import config_option, json_option, note, print_json, settings_of
from localmem.errors import BadInput
from localmem.experiments.retrieval_grid import NONE, RANDOM, Parts, Way, shortener

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from localmem.evaluation.compression import Draws, Keys, Searched
    from localmem.evaluation.episodes import Dataset
    from localmem.reporting.sections import Section, Table

Document = dict[str, Any]

_WIDTH = 50  # units that are searched for
_SIDES = ("related", "unrelated", "gap")
_PICTURE = "recall.png"


class Rates(click.ParamType[tuple[float, ...]]):
    """Shares above 0 and at most 1 with commas between them, such as 0.9,0.75."""

    name = "rates"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            rates = tuple(float(rate) for rate in str(value).split(","))
        except ValueError:
            rates = ()
        if not rates or not all(0 < rate <= 1 for rate in rates):
            self.fail(f"{value!r} are no rates; write them like 0.9,0.75,0.5", param, ctx)
        return tuple(sorted({rate for rate in rates if rate < 1}, reverse=True))


@click.command()
@click.option(
    "--data", type=click.Choice(["locomo", "longmemeval", "mtbenchplus"]), required=True, help="The data set."
)
@click.option("--path", type=click.Path(path_type=Path), required=True, help="Its file, as published.", metavar="FILE")
@click.option("--half", type=click.Choice(["all", "choose", "report"]), default="all", show_default=True)
@click.option("--limit", type=click.IntRange(1), help="The first so many questions only.")
@click.option(
    "--compressor",
    "compressors",
    multiple=True,
    default=("llmlingua-2-xlm-roberta-large", RANDOM),
    show_default=True,
    help="By name or folder; random drops words by chance. May be given again.",
    metavar="C",
)
@click.option(
    "--rates", type=Rates(), default="0.9,0.75,0.5", show_default=True, help="Shares of a key's tokens that stay."
)
@click.option(
    "--retriever",
    "retrievers",
    type=click.Choice(["dense", "bm25", "hybrid"]),
    multiple=True,
    default=("dense", "bm25"),
    show_default=True,
    help="May be given again.",
)
@click.option(
    "--unit",
    type=click.Choice(["turn", "exchange", "segment", "session"]),
    default="segment",
    show_default=True,
    help="What a unit is; segments are cut evenly.",
)
@click.option("--chunk", type=click.IntRange(1), default=3, show_default=True, help="Exchanges of a segment.")
@click.option("--k", type=click.IntRange(1, _WIDTH), multiple=True, default=(1, 3, 5, 10), show_default=True)
@click.option("--encoder", help="The encoder's name in the manifest; default: that of the settings.", metavar="E")
@click.option("--seed", type=int, default=0, show_default=True, help="Of random dropping and of resampling.")
@click.option("--resamples", type=click.IntRange(1), default=2000, show_default=True, help="For the 95% intervals.")
@click.option("--out", type=click.Path(path_type=Path), help="A folder for report.json and recall.png.", metavar="DIR")
@config_option
@json_option
def compression(
    data: str,
    path: Path,
    half: Literal["all", "choose", "report"],
    limit: int | None,
    compressors: tuple[str, ...],
    rates: tuple[float, ...],
    retrievers: tuple[Literal["dense", "bm25", "hybrid"], ...],
    unit: str,
    chunk: int,
    k: tuple[int, ...],
    encoder: str | None,
    seed: int,
    resamples: int,
    out: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Whether compressed keys are found better: recall at each rate, and how near related and unrelated texts are.

    Each rate is measured with every compressor; without compression everything is measured once.
    """
    from localmem.evaluation.datasets import read_dataset
    from localmem.evaluation.evidence_retrieval import DEPTHS, asked
    from localmem.reporting.pages import terminal
    from localmem.reporting.sections import Section

    if not set(k) <= set(DEPTHS):
        raise BadInput(f"recall is measured at {', '.join(map(str, DEPTHS))} units; choose --k among them")
    held = read_dataset(data, path).select(None if half == "all" else half, limit)
    questions = sum(len(asked(episode, "turns")) for episode in held.episodes)
    if not questions:
        raise BadInput(f"{path} has no question with evidence in half {half!r}; try --half all")
    settings = settings_of(config, retrieval={"encoder": encoder})
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-compression-")))
        parts = Parts(settings, folder, stack, segmenter="even", chunk=chunk, compressor=NONE, seed=seed, notify=note)
        runs = _Runs(parts, held, unit, (seed, resamples))
        document: Document = {
            "data": {"name": held.name, "file": path.name, "sha256": held.sha256, "notes": list(held.notes)},
            "half": half,
            "limit": limit,
            "questions": questions,
            "seed": seed,
            "resamples": resamples,
            "unit": f"segment of {chunk} exchanges" if unit == "segment" else unit,
            **runs.document(compressors, rates, retrievers, [f"recall@{depth}" for depth in sorted(k)]),
        }
    tables = _tables(document)
    said = f"{held.name}, half {half}: {questions} questions; a unit is a {document['unit']}"
    if out:
        _write(out, document, Section(f"Compression {out.name}", (said,), tuple(tables), (_PICTURE,)))
    if as_json:
        print_json(document)
    else:
        click.echo(f"{terminal(tables)}\n\n{said}")


class _Runs:
    """The keys of all ways, searched by every retriever."""

    def __init__(self, parts: Parts, data: "Dataset", unit: str, draws: "Draws") -> None:
        self._parts, self._data, self._unit, self._draws = parts, data, unit, draws

    def document(
        self,
        compressors: Sequence[str],
        rates: Sequence[float],
        retrievers: Sequence[Literal["dense", "bm25", "hybrid"]],
        measures: Sequence[str],
    ) -> Document:
        """Every figure, as plain data."""
        from localmem.evaluation.compression import compared, nearness, recalled, similarity
        from localmem.reporting.provenance import versions

        keys = self._keys(compressors, rates)
        found = [self._searched(one, keys[0], retriever) for retriever in retrievers for one in keys]
        document: Document = {
            "compressors": {name: _weights(name) for name in compressors},
            "tokens_of": self._parts.counter[0],
            "recall": [recalled(one, measures, self._draws) for one in found],
            "differences": compared(found, RANDOM, measures, self._draws),
            "versions": versions(),
        }
        if any(retriever != "bm25" for retriever in retrievers):
            near = [nearness(self._data, one, self._parts.encoder) for one in keys]
            document["encoder"] = self._parts.encoder.identity
            document["similarity"] = [
                similarity(one, now, near[0], self._draws) for one, now in zip(keys, near, strict=True)
            ]
        return document

    def _keys(self, compressors: Sequence[str], rates: Sequence[float]) -> "list[Keys]":
        """Those that nothing was left out of come first."""
        from localmem.evaluation.compression import compressed, plain

        way = self._way("bm25")
        keys = [plain(self._data, lambda sessions: self._parts.units(way, sessions))]
        for name in compressors:
            shorter = shortener(name, self._draws[0])
            for rate in rates:
                note(f"compressing to {rate:g} with {name}")
                keys.append(compressed(keys[0], name, shorter, rate))
        return keys

    def _searched(self, keys: "Keys", before: "Keys", kind: Literal["dense", "bm25", "hybrid"]) -> "Searched":
        from localmem.evaluation.compression import Searched, kept
        from localmem.evaluation.evidence_retrieval import Measuring, Run, joined, measure

        how = Measuring("turns", "question", _WIDTH, self._parts.counter[1])
        run = Run(f"{kind} {keys.compressor} {keys.rate:g}", keys.of, lambda: self._parts.retriever(self._way(kind)))
        return Searched(keys, kept(keys, before, how.count), kind, joined(measure(run, self._data, how)))

    def _way(self, kind: Literal["dense", "bm25", "hybrid"]) -> Way:
        """Keys are what SeCom compresses: the words with their speakers."""
        return Way(kind, self._unit, "speaker", 0, 0, 1.0, NONE, "key", 1.0, 10.0, _WIDTH)


def _weights(name: str) -> str | None:
    """The sha256 of a compressor's weights."""
    from localmem.weights import model_path
    from localmem.weights.folder import checksum

    if name == RANDOM:
        return None
    folder = Path(name).expanduser()
    files = sorted((folder if folder.is_dir() else model_path(name)).glob("*.safetensors"))
    return checksum(files[0]) if files else None


def _tables(document: Document) -> "list[Table]":
    """The figures for a person."""
    from localmem.reporting.sections import Table

    found = [
        {
            **{name: row[name] for name in ("retriever", "compressor", "rate")},
            "kept": f"{row['kept']:.2f}",
            **{name: _shown(measure) for name, measure in row["measures"].items()},
        }
        for row in document["recall"]
    ]
    changed = [
        {**{name: row[name] for name in ("retriever", "what", "rate", "measure")}, "mean": _shown(row, sign="+")}
        for row in document["differences"]
    ]
    near = [
        {
            **{name: row[name] for name in ("compressor", "rate")},
            **{side: _shown(row[side]) for side in _SIDES},
            **{
                f"{side}, changed by": _shown(row[f"{side}_change"], sign="+")
                for side in _SIDES
                if f"{side}_change" in row
            },
        }
        for row in document.get("similarity", ())
    ]
    tables = {"Recall (mean and 95 % interval)": found, "Differences": changed, "Cosines": near}
    return [Table.of(caption, rows) for caption, rows in tables.items() if rows]


def _shown(found: Document, sign: str = "") -> str:
    return f"{found['mean']:{sign}.3f} [{found['low']:{sign}.3f}, {found['high']:{sign}.3f}]"


def _write(folder: Path, document: Document, section: "Section") -> None:
    from localmem.reporting.plots import save_plot
    from localmem.reporting.sections import save_report

    save_report(folder, section, document)
    save_plot(folder / _PICTURE, lambda axes: _draw(axes, document["recall"]), width=7, height=4.5)


def _draw(axes: "Axes", rows: "list[Document]") -> None:
    """Recall against the rate, a line for each retriever and compressor; all begin at what nothing was left out of."""
    name = list(rows[0]["measures"])[len(rows[0]["measures"]) // 2]
    for retriever in dict.fromkeys(row["retriever"] for row in rows):
        own = [row for row in rows if row["retriever"] == retriever]
        for compressor in dict.fromkeys(row["compressor"] for row in own[1:]):
            points = [own[0], *(row for row in own if row["compressor"] == compressor)]
            found = [row["measures"][name] for row in points]
            spread = [[one["mean"] - one["low"] for one in found], [one["high"] - one["mean"] for one in found]]
            axes.errorbar(
                [row["rate"] for row in points],
                [one["mean"] for one in found],
                yerr=spread,
                marker="o",
                capsize=3,
                label=f"{retriever}, {compressor}",
            )
    axes.set(xlabel="share of the tokens that stay", ylabel=name, ylim=(0, 1))
    axes.invert_xaxis()
