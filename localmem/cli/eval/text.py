"""`localmem eval text`: how near replies in a file are to what should have been said.

Wires models into `localmem.evaluation.file_scoring`; measures nothing itself.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, json_option, model_option, print_json, settings_of
from localmem.files import write_jsonl

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.file_scoring import Measured, ScorableReply
    from localmem.evaluation.metrics.likelihood import Scorer
    from localmem.evaluation.metrics.model_based import BertScore

_NAMES = ("bleu", "rouge", "f1", "distinct", "bertscore", "mauve", "perplexity")
_COUNTED = _NAMES[:4]


@click.command()
@click.option(
    "--predictions",
    type=click.Path(path_type=Path),
    help="JSONL of prediction and reference (or references), maybe id and prompt.",
    metavar="FILE",
)
@click.option("--data", type=click.Choice(["msc_cc"]), help="Score the replies that a data set ships instead.")
@click.option("--path", type=click.Path(path_type=Path), help="The data set's file.", metavar="FILE")
@click.option(
    "--metrics",
    "names",
    type=click.Choice(_NAMES),
    multiple=True,
    default=_COUNTED,
    show_default=True,
    help="A measure; may be given again.",
)
@click.option("--stem", is_flag=True, help="ROUGE over Porter stems.")
@click.option("--encoder", help="BERTScore: a name of the manifest, or a folder; default: the settings' encoder.")
@click.option("--layers", type=click.IntRange(1), help="BERTScore: whose vectors are taken; default: the last.")
@click.option(
    "--adapter", type=click.Path(path_type=Path), help="MAUVE, perplexity: an adapter on the backbone.", metavar="DIR"
)
@click.option("--device", default="auto", show_default=True, help="Where models run: auto, cpu or cuda.")
@click.option("--out", type=click.Path(path_type=Path), help="JSONL with the measures of each reply.", metavar="FILE")
@config_option
@model_option
@json_option
def text(
    predictions: Path | None,
    data: str | None,
    path: Path | None,
    names: tuple[str, ...],
    stem: bool,
    encoder: str | None,
    layers: int | None,
    adapter: Path | None,
    device: str,
    out: Path | None,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """How near replies are to what should have been said: BLEU, ROUGE, F1, Distinct, BERTScore, MAUVE, perplexity.

    BLEU is from 0 to 100, all others but perplexity from 0 to 1. MAUVE takes its vectors from the backbone, perplexity
    is that of the reference under it.
    """
    if (predictions is None) == (path is None) or (data is None) != (path is None):
        raise click.UsageError("give --predictions FILE, or --data msc_cc and --path FILE")
    from localmem.evaluation.file_scoring import ScoringModels, read_replies, score_replies, shipped

    replies = read_replies(predictions) if predictions else shipped(path or Path())
    models = AskedModels(settings_of(config, model=model), encoder, layers, device, adapter)
    asked = tuple(dict.fromkeys(names))
    found = score_replies(replies, asked, models=ScoringModels(models.encoder, models.backbone), stem=stem)  # type: ignore[arg-type]  # checked by click
    if out is not None:
        _write(out, replies, found)
    _show(replies, found, models.told, as_json)


class AskedModels:
    """The models that measures ask, and what they were."""

    def __init__(
        self,
        settings: "Settings",
        encoder: str | None = None,
        layers: int | None = None,
        device: str = "auto",
        adapter: Path | None = None,
    ) -> None:
        self._settings, self._encoder, self._layers, self._device = settings, encoder, layers, device
        self._adapter = adapter
        self._scorer: Scorer | None = None
        self.told: dict[str, str] = {}

    def encoder(self) -> "BertScore":
        """BERTScore's encoder."""
        from localmem.evaluation.metrics.model_based import BertScore

        name = self._encoder or self._settings.retrieval.encoder
        made = BertScore(_folder(name), layers=self._layers, device=self._device)
        self.told["encoder"] = f"{name}, layer {made.layers}"
        return made

    def backbone(self) -> "Scorer":
        """The model of the settings, once for all measures."""
        from localmem.evaluation.metrics.likelihood import Scorer

        if self._scorer is None:
            self._scorer = Scorer(_folder(self._settings.model), adapter=self._adapter, device=self._device)
            self.told["model"] = self._settings.model + (f" with {self._adapter.name}" if self._adapter else "")
        return self._scorer


def _folder(name: str) -> Path:
    from localmem.weights import model_path

    folder = Path(name).expanduser()
    return folder if folder.is_dir() else model_path(name)


def _write(out: Path, replies: "list[ScorableReply]", found: "Measured") -> None:
    rows = ({name: values[place] for name, values in found.each.items()} for place in range(len(replies)))
    lines = ({"id": reply.id, **row} for reply, row in zip(replies, rows, strict=True))
    write_jsonl(out, lines, "choose another --out")


def _show(replies: "list[ScorableReply]", found: "Measured", told: dict[str, str], as_json: bool) -> None:
    if as_json:
        print_json({"replies": len(replies), **told, "measures": dict(found.overall)})
        return
    from tabulate import tabulate

    click.echo(", ".join([f"{len(replies)} replies", *(f"{what} {name}" for what, name in told.items())]))
    click.echo(tabulate(found.overall.items(), ["measure", "value"], floatfmt=".4f"))
