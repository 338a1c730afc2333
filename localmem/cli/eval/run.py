"""`localmem eval run`: systems read data sets and answer their probes; `localmem eval report` tells what came of it.

Wires settings into `localmem.evaluation.runner`; measures nothing itself.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, model_option, note, settings_of
from localmem.errors import BadInput
from localmem.experiments.runs import ANSWERS, BM25, FULL, about_run, agents_of, claim, narrowed, progress, settings_for

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.metrics.likelihood import Likelihood
    from localmem.evaluation.runner import Weigh
    from localmem.types import Prompt


class Sources(click.ParamType[tuple[str, Path]]):
    """NAME=FILE."""

    name = "source"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        name, _, path = str(value).partition("=")
        if not path:
            self.fail(f"{value!r} names no file; write NAME=FILE, such as locomo=locomo10.json", param, ctx)
        return name, Path(path)


sources_option = click.option(
    "--data",
    "sources",
    type=Sources(),
    multiple=True,
    required=True,
    help="A data set and its file; may be given again.",
    metavar="NAME=FILE",
)


@click.command(name="run")
@click.option(
    "--systems",
    help="Separated by commas; a variant as in configs/systems is SYSTEM/VARIANT. Default: every system.",
    metavar="S,S",
)
@sources_option
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run's folder.", metavar="DIR")
@click.option("--limit", type=click.IntRange(1), help="The first so many probes of each data set only.")
@click.option(
    "--sessions",
    type=click.IntRange(1),
    help="Read the last so many sessions only, and ask only what they can answer. A look, not a result.",
)
@click.option(
    "--half", type=click.Choice(["all", "choose", "report"]), default="all", show_default=True, help="Of the episodes."
)
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Episodes at once.")
@click.option("--perplexity", is_flag=True, help="Of the gold answers, too, under the backbone's weights in process.")
@click.option("--resume", is_flag=True, help="Go on with the run that --out holds; further systems may join.")
@click.option("--again", is_flag=True, help="With --resume: what failed is done again.")
@config_option
@model_option
def run_(
    systems: str | None,
    sources: Sequence[tuple[str, Path]],
    out: Path,
    limit: int | None,
    sessions: int | None,
    half: str,
    threads: int,
    perplexity: bool,
    resume: bool,
    again: bool,
    config: Path | None,
    model: str | None,
) -> None:
    """Let memory systems read data sets and answer their probes, all on one backbone.

    full_history (all text in the prompt) and utterance_retrieval/bm25 (plain search) always run beside them, with the
    same words asked. Every answer is in DIR at once: an interrupted run goes on with --resume.
    """
    from localmem.evaluation.answers import open_answers
    from localmem.evaluation.datasets import read_dataset
    from localmem.evaluation.runner import count_probes, run

    settings = settings_of(config, model=model)
    wanted = _systems(systems)
    chosen = {name: settings_for(config, model, name) for name in wanted}
    data = [narrowed(read_dataset(name, path), half, limit, sessions) for name, path in sources]
    about = about_run(
        settings, chosen, data, {"half": half, "limit": limit, "sessions": sessions, "perplexity": perplexity}
    )
    claim(out, about, resume=resume)
    with ExitStack() as stack:
        answers = stack.enter_context(open_answers(out / ANSWERS))
        llm, new_agent = agents_of(settings, chosen, stack, note)
        bar = progress(stack, count_probes(data) * len(wanted))
        weigh = _weigh(settings) if perplexity else None
        run(wanted, data, new_agent, llm, answers, threads=threads, track=bar, weigh=weigh, again=again)
    note(f"every answer is in {out / ANSWERS}; look at them with `localmem eval report {out}`")


def _systems(given: str | None) -> list[str]:
    """In the order given, with the two that are always there."""
    from localmem.factory import SYSTEMS

    names = [name.strip() for name in given.split(",")] if given else list(SYSTEMS)
    return list(dict.fromkeys([*filter(None, names), FULL, BM25]))


def _weigh(settings: "Settings") -> "Weigh":
    """The backbone's own weights, beside the server if there is one: a server tells no likelihood of a given text."""
    import threading

    from localmem.evaluation.metrics.likelihood import Scorer
    from localmem.weights import model_path

    scorer, guard = Scorer(model_path(settings.model), device=settings.llm.device), threading.Lock()

    def weigh(prompt: "Prompt", answer: str) -> "Likelihood | None":
        try:
            with guard:
                return scorer.likelihoods([(prompt.messages, answer)])[0]
        except BadInput as error:  # longer than the context
            note(f"no perplexity: {error}")
            return None

    return weigh
