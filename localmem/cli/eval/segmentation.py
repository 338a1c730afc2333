"""`localmem eval segmentation`: segmenters against people's segments, and a rubric learned from their mistakes."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, cast

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of
from localmem.errors import BadInput

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue
    from localmem.evaluation.rubric_learning import PredictedSegments
    from localmem.llm.base import LLM
    from localmem.segmentation.segmenters import LLMSegmenter
    from localmem.text.base import Segmenter

Row = dict[str, object]


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Labelled dialogues: TIAGE or SuperDialSeg JSONL, DialSeg711 JSON.",
    metavar="FILE",
)
@click.option(
    "--segmenter",
    "names",
    multiple=True,
    default=("llm",),
    show_default=True,
    help="llm, tiling, even, random, or a trained one by name or folder; may be given again.",
    metavar="S",
)
@click.option("--rubric", type=click.Path(path_type=Path), help="A rubric that joins the LLM's prompt.", metavar="FILE")
@click.option("--skip", type=click.IntRange(0), default=0, help="Leave out the first so many dialogues.")
@click.option("--limit", type=click.IntRange(1), help="Then only so many dialogues.")
@click.option("--chunk", type=click.IntRange(1), default=3, show_default=True, help="Exchanges of an even segment.")
@click.option("--width", type=click.IntRange(1), default=2, show_default=True, help="Exchanges a side; for tiling.")
@click.option("--cut", type=float, default=0.5, show_default=True, help="Deviations above the mean; for tiling.")
@click.option("--seed", type=int, default=0, show_default=True, help="For random.")
@click.option("--out", type=click.Path(path_type=Path), help="Keep the figures here.", metavar="DIR")
@click.option("--reflect", is_flag=True, help="Learn a rubric from the LLM's worst dialogues; needs --learned.")
@click.option("--learned", type=click.Path(path_type=Path), help="Where the rubric goes, YAML.", metavar="FILE")
@click.option("--hard", type=click.IntRange(1), default=100, show_default=True, help="How many worst dialogues.")
@click.option("--batches", type=click.IntRange(1), default=10, show_default=True, help="In how many mini-batches.")
@click.option("--items", type=click.IntRange(1), default=10, show_default=True, help="Rubric items at most.")
@click.option("--examples", type=click.IntRange(0), default=2, show_default=True, help="Examples in the rubric.")
@config_option
@model_option
@json_option
def segmentation(
    data: Path,
    names: tuple[str, ...],
    rubric: Path | None,
    skip: int,
    limit: int | None,
    chunk: int,
    width: int,
    cut: float,
    seed: int,
    out: Path | None,
    reflect: bool,
    learned: Path | None,
    hard: int,
    batches: int,
    items: int,
    examples: int,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """How far topical segments are from those that people marked: F1, P_k, WindowDiff, and their Score (1 is best).

    With --reflect the backbone then looks at the dialogues it got most wrong and writes a rubric, which SeCom takes as
    its option `rubric`.
    """
    if reflect != (learned is not None):
        raise click.UsageError("--reflect and --learned go together: the learned rubric needs a file to go to")
    if reflect and names != ("llm",):
        raise click.UsageError("--reflect learns from the llm's mistakes: give no other --segmenter with it")
    from localmem.evaluation.datasets.segmented_dialogues import read_segmented_dialogues
    from localmem.evaluation.rubric_learning import RubricLearner
    from localmem.reporting.provenance import versions

    dialogues = read_segmented_dialogues(data)[skip:][:limit]
    if not dialogues:
        raise BadInput(f"{data} has no dialogue after the first {skip}; lower --skip")
    makers = _Makers(settings_of(config, model=model), rubric, chunk, width, cut, seed)
    with makers.closing:
        rows, judged = zip(*(_row(name, makers.make(name), dialogues) for name in names), strict=True)
        report: dict[str, object] = {
            "data": data.name,
            "skipped": skip,
            "dialogues": len(dialogues),
            "segmenters": list(rows),
            "versions": versions(),
        }
        if learned is not None:
            learner = RubricLearner(makers.llm, hard=hard, batches=batches, items=items, examples=examples)
            found = learner.learn(judged[0], _progress)
            found.save(learned)
            unused = learner.fallbacks.total()
            report |= {"rubric": str(learned), "unused_answers": unused, "items": list(found.items)}
    _show(report, out, as_json)


class _Makers:
    """Segmenters by name; what they load is loaded when asked for, and closed in the end."""

    def __init__(
        self, settings: "Settings", rubric: Path | None, chunk: int, width: int, cut: float, seed: int
    ) -> None:
        self._settings = settings
        self._rubric = rubric
        self._chunk = chunk
        self._width = width
        self._cut = cut
        self._seed = seed
        self._llm: LLM | None = None
        self.closing = ExitStack()

    @property
    def llm(self) -> "LLM":
        """The backbone of the settings."""
        if self._llm is None:
            from localmem import factory

            backbone = factory.backbone(self._settings, note)
            self.closing.callback(backbone.close)
            self._llm = backbone.llm
        return self._llm

    def make(self, name: str) -> "Segmenter":
        """The segmenter; a name that is none of the known ones is a trained model's."""
        known: dict[str, Callable[[], Segmenter]] = {
            "llm": self._by_llm,
            "tiling": self._tiling,
            "even": self._even,
            "random": self._random,
        }
        return known[name]() if name in known else self._trained(name)

    def _by_llm(self) -> "LLMSegmenter":
        from localmem.segmentation.rubric import Rubric
        from localmem.segmentation.segmenters import LLMSegmenter

        guidance = Rubric.load(self._rubric) if self._rubric else None
        return LLMSegmenter(self.llm, rubric=guidance, chunk=self._chunk)

    def _tiling(self) -> "Segmenter":
        from localmem.factory.parts import bare_encoder
        from localmem.segmentation.texttiling import TextTiling

        return TextTiling(bare_encoder(self._settings), width=self._width, cut=self._cut)

    def _even(self) -> "Segmenter":
        from localmem.segmentation.segmenters import EvenSegmenter

        return EvenSegmenter(self._chunk)

    def _random(self) -> "Segmenter":
        from localmem.segmentation.segmenters import RandomSegmenter

        return RandomSegmenter(self._seed)

    def _trained(self, name: str) -> "Segmenter":
        from localmem.factory.parts import trained_segmenter

        return trained_segmenter(name, self._settings.retrieval.device)


def _row(
    name: str, segmenter: "Segmenter", dialogues: "Sequence[SegmentedDialogue]"
) -> "tuple[Row, list[PredictedSegments]]":
    """The measures over all dialogues; the first call, which loads what there is to load, is not in the time."""
    from localmem.evaluation.metrics.segmentation import mean_agreement
    from localmem.evaluation.rubric_learning import evaluate_segmenter

    segmenter.segment([dialogues[0].session])
    began = perf_counter()
    judged = evaluate_segmenter(segmenter, dialogues, _progress)
    seconds = perf_counter() - began
    found = mean_agreement([one.agreement for one in judged])
    row: Row = {
        "segmenter": name,
        **found._asdict(),
        "score": found.score,
        "ms_per_dialogue": 1000 * seconds / len(judged),
    }
    for counted in ("fallbacks", "repairs"):
        if hasattr(segmenter, counted):
            row[counted] = getattr(segmenter, counted).total()
    return row, judged


def _show(report: dict[str, object], out: Path | None, as_json: bool) -> None:
    from localmem.reporting.pages import terminal
    from localmem.reporting.sections import Section, Table, save_report

    rows = cast("list[Row]", report["segmenters"])
    table = Table.of(f"{report['data']}, {report['dialogues']} dialogues", rows)
    if out is not None:
        save_report(out, Section(f"Segmentation {out.name}", (f"skipped: {report['skipped']}",), (table,)), report)
    if as_json:
        print_json(report)
        return
    click.echo(terminal([table]))
    for name in ("rubric", "unused_answers", "items"):
        if name in report:
            value = report[name]
            lines = (
                [f"{name}:", *(f"  - {item}" for item in value)] if isinstance(value, list) else [f"{name}: {value}"]
            )
            click.echo("\n".join(lines))


def _progress(step: str, done: int, of: int) -> None:
    """A line that is written over on a terminal; nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r{step} {done}/{of}", nl=done == of, err=True)
