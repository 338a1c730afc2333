"""`localmem eval retrieval`: is what answers a question found? Wires parts into `evaluation`.

Knows how results look and which options there are; measures nothing itself.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of
from localmem.errors import BadInput
from localmem.experiments.retrieval_grid import Parts, Way, combined
from localmem.files import writing

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.episodes import Dataset
    from localmem.evaluation.evidence_retrieval import Result


Option = Callable[[Callable[..., object]], Callable[..., object]]


@dataclass(frozen=True, slots=True)
class Given:
    """The options of the command that say what is measured, by their names."""

    data: str
    path: Path
    half: Literal["all", "choose", "report"]
    limit: int | None
    pool: int | None
    gold: Literal["turns", "sessions"]
    query: Literal["question", "dialogue"]
    width: int
    seed: int
    resamples: int
    against: Path | None


def _again(*names: str, kind: object, default: object, text: str) -> Option:
    """An option that may be given again; all ways are then compared in one table."""
    shown = {"multiple": True, "default": [default], "show_default": True, "help": text}
    return click.option(*names, type=kind, **shown)  # type: ignore[arg-type]  # click types its options loosely


@click.command()
@click.option(
    "--data",
    type=click.Choice(["locomo", "longmemeval", "mtbenchplus", "coqa", "jsonl"]),
    required=True,
    help="The data set; jsonl is one's own.",
)
@click.option("--path", type=click.Path(path_type=Path), required=True, help="Its file, as published.", metavar="FILE")
@click.option(
    "--half",
    type=click.Choice(["all", "choose", "report"]),
    default="all",
    show_default=True,
    help="Choose settings on one half of the data and report on the other; ids decide which is which.",
)
@click.option(
    "--pool",
    type=click.IntRange(1),
    help="LongMemEval, evidence only: sessions that each question is searched for among; default: all.",
    metavar="N",
)
@click.option("--limit", type=click.IntRange(1), help="The first so many questions only.")
@click.option(
    "--gold", type=click.Choice(["turns", "sessions"]), default="turns", show_default=True, help="What is to be found."
)
@click.option(
    "--query",
    type=click.Choice(["question", "dialogue"]),
    default="question",
    show_default=True,
    help="What is searched for.",
)
@_again(
    "--unit",
    kind=click.Choice(["turn", "exchange", "segment", "session", "memory"]),
    default="turn",
    text="What a unit is.",
)
@_again(
    "--key",
    kind=click.Choice(["plain", "speaker", "dated"]),
    default="plain",
    text="What a key holds: the words, who said them, and when.",
)
@_again("--before", kind=click.IntRange(0), default=0, text="How many units before it lend a key their words.")
@_again("--after", kind=click.IntRange(0), default=0, text="How many units after it do.")
@_again(
    "--rate",
    kind=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    text="Share of a key's tokens that compression keeps.",
)
@_again("--retriever", kind=click.Choice(["dense", "bm25", "hybrid"]), default="dense", text="What searches.")
@_again(
    "--weight", kind=click.FloatRange(0, min_open=True), default=1.0, text="Hybrid: bm25's weight beside dense's 1."
)
@_again("--constant", kind=click.FloatRange(0), default=60.0, text="Hybrid: the constant of reciprocal rank fusion.")
@_again(
    "--depth",
    kind=click.IntRange(1),
    default=50,
    text="Hybrid: matches of each retriever that are fused, or --width if that is more.",
)
@_again(
    "--dense-reads",
    kind=click.Choice(["key", "text", "sentences", "both"]),
    default="key",
    text="Dense: vectors of keys, of what is shown, of a key's sentences, or of keys and sentences.",
)
@_again(
    "--rerank",
    kind=str,
    default="none",
    text="A cross-encoder over the first matches: a name of the manifest, or a folder.",
)
@click.option("--encoder", help="The encoder's name in the manifest; default: that of the settings.", metavar="E")
@click.option(
    "--segmenter",
    type=click.Choice(["even", "topics"]),
    default="even",
    show_default=True,
    help="How segments are cut: evenly, or by the backbone.",
)
@click.option("--chunk", type=click.IntRange(1), default=3, show_default=True, help="Exchanges of an even segment.")
@click.option(
    "--compressor",
    default="llmlingua-2-xlm-roberta-large",
    show_default=True,
    help="A compressor of the manifest, or random.",
    metavar="C",
)
@click.option(
    "--width", type=click.IntRange(1), default=200, show_default=True, help="How many units are searched for."
)
@click.option("--seed", type=int, default=0, show_default=True, help="For resampling, and for random compression.")
@click.option("--resamples", type=click.IntRange(1), default=2000, show_default=True, help="For the 95% intervals.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="The rows.jsonl of an earlier --out, to compare with.",
    metavar="FILE",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="A folder for report.json, rows.jsonl, recall.png and vectors.",
    metavar="DIR",
)
@config_option
@model_option
@json_option
def retrieval(
    config: Path | None,
    model: str | None,
    encoder: str | None,
    out: Path | None,
    as_json: bool,
    segmenter: Literal["even", "topics"],
    chunk: int,
    compressor: str,
    **options: object,
) -> None:
    """Whether memory finds the turns that answer a question, at how many units and at how many tokens.

    Options that may be given again are combined, and all ways are compared in one table, with the differences of every
    two of them question by question.
    """
    from localmem.evaluation.retrieval_report import PICTURE, differences, document, earlier, summaries, tables, write
    from localmem.reporting.pages import terminal
    from localmem.reporting.sections import Section

    lists = {name: value for name, value in options.items() if isinstance(value, tuple)}
    given = Given(**{name: value for name, value in options.items() if name not in lists})  # type: ignore[arg-type]  # checked by click
    settings = settings_of(config, model=model, retrieval={"encoder": encoder})
    data = _data(given)
    with ExitStack() as stack:
        folder = stack.enter_context(_folder(out))
        parts = Parts(
            settings,
            folder,
            stack,
            segmenter=segmenter,
            chunk=chunk,
            compressor=compressor,
            seed=given.seed,
            notify=note,
        )
        ways = combined(lists)
        _check(given, ways, data)
        results = _results(ways, given, data, parts)
        about = _about(given, ways, settings, data, parts)
    before = earlier(given.against, results) if given.against else []
    runs = summaries(results, given.seed, given.resamples)
    compared = differences(results, given.seed, given.resamples, before)
    held, shown, notes = about | document(runs, compared), tables(runs, compared), _said(about)
    if out:
        section = Section(f"Retrieval {out.name}", tuple(notes), tuple(shown), (PICTURE,))
        write(out, held, results, section)
    if as_json:
        print_json(held)
    else:
        click.echo("\n".join([terminal(shown), "", *notes]))


def _data(given: Given) -> "Dataset":
    from localmem.evaluation.datasets import read_dataset

    data = read_dataset(given.data, given.path)
    if given.pool is not None:
        data = _pooled(data, given.pool)
    return data.select(None if given.half == "all" else given.half, given.limit)


def _check(given: Given, ways: Sequence[Way], data: "Dataset") -> None:
    """Raises BadInput for what cannot be measured."""
    from localmem.evaluation.evidence_retrieval import asked

    probes = [probe for episode in data.episodes for probe in asked(episode, given.gold)]
    if not probes:
        raise BadInput(f"{given.path} has no question with evidence in half {given.half!r}; try --half all")
    if given.query == "dialogue" and not any(probe.dialogue for probe in probes):
        raise BadInput(f"the questions of {given.data} stand in no dialogue; leave --query at question")
    if given.gold == "turns" and any(way.unit == "memory" for way in ways):
        raise BadInput("a memory sentence is about a whole session and shows none of its turns; give --gold sessions")


def _pooled(data: "Dataset", size: int) -> "Dataset":
    from localmem.evaluation.datasets import longmemeval

    if data.name != "longmemeval":
        raise BadInput(f"the questions of {data.name} are searched for in their own sessions; leave --pool away")
    return longmemeval.among(data, size)


def _results(ways: Sequence[Way], given: Given, data: "Dataset", parts: Parts) -> "list[Result]":
    """Every way over every episode; a bar on a terminal."""
    from tqdm import tqdm

    from localmem.evaluation.evidence_retrieval import Measuring, Run, joined, measure

    how = Measuring(given.gold, given.query, given.width, parts.counter[1])
    results: list[Result] = []
    with tqdm(total=len(ways) * len(data.episodes), desc="searching", unit="episode", disable=None) as bar:
        for way in ways:
            run = Run(way.name(ways), partial(parts.units, way), partial(parts.retriever, way))
            bar.set_postfix_str(run.name)
            found: list[Result] = []
            for result in measure(run, data, how):
                found.append(result)
                bar.update()
            results.append(joined(found))
    return results


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """Where vectors and sentences are kept: in --out, or nowhere for long."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="localmem-retrieval-") as place:
            yield Path(place)
        return
    with writing(out, "choose another --out"):
        out.mkdir(parents=True, exist_ok=True)
    yield out


def _about(given: Given, ways: Sequence[Way], settings: "Settings", data: "Dataset", parts: Parts) -> dict[str, object]:
    """What was measured, on what, with what."""
    from localmem.evaluation.evidence_retrieval import asked
    from localmem.reporting.provenance import versions

    probes = [probe for episode in data.episodes for probe in episode.probes]
    questions = sum(len(asked(episode, given.gold)) for episode in data.episodes)
    return {
        "data": {"name": data.name, "file": given.path.name, "sha256": data.sha256, "notes": list(data.notes)},
        "half": given.half,
        "episodes": len(data.episodes),
        "sessions": len({session.id for episode in data.episodes for session in episode.sessions}),
        "questions": questions,
        "without_evidence": len(probes) - questions,
        **{name: getattr(given, name) for name in ("gold", "query", "width", "limit", "pool", "seed", "resamples")},
        "ways": [asdict(way) for way in ways],
        **parts.told(ways),
        "tokens_of": parts.counter[0],
        "language": settings.retrieval.language,
        "versions": versions(),
    }


def _said(about: Mapping[str, object]) -> list[str]:
    """The same for a person, in short."""
    data = cast("dict[str, object]", about["data"])
    return [
        f"{data['name']}, half {about['half']}: {about['questions']} questions over {about['sessions']} sessions",
        f"{about['without_evidence']} more have no evidence and are not measured",
        f"found are {about['gold']}; tokens of {about['tokens_of']}, units as they are shown, with their dates",
        *cast("list[str]", data["notes"]),
    ]
