"""`localmem eval abstention`: does the chatbot say that it does not know what it was never told?"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.demo import ask_each
from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of
from localmem.evaluation.metrics.text import contains_answer
from localmem.files import read_yaml
from localmem.resources import resource

if TYPE_CHECKING:
    from localmem.config import Settings
    from localmem.evaluation.abstention import Case, Told

QUESTIONS = "configs/eval/abstention/questions.yaml"


@click.command()
@config_option
@model_option
@click.option("--system", help="The memory system to ask.", metavar="S")
@click.option("--plain", is_flag=True, help="The same once more without the adapters that localmem ships.")
@json_option
def abstention(config: Path | None, model: str | None, system: str | None, plain: bool, as_json: bool) -> None:
    """Ask for what shipped conversations never mention, and for what they tell.

    The right reply to the first says that it does not know; to the second that would be a false abstention. What
    counts as saying so is a rule of words, RULE in localmem/evaluation/abstention.py.
    """
    from localmem.evaluation.abstention import read_cases

    cases = read_cases(resource(QUESTIONS))
    rows: list[dict[str, object]] = []
    replies: list[dict[str, object]] = []
    for shipped in (True, False) if plain else (True,):
        name = "as set" if shipped else "without shipped adapters"
        found = [
            {**row, "replies": name}
            for case in cases
            for row in _asked(case, config, {"model": model, "system": system}, shipped=shipped)
        ]
        replies += found
        rows.append({"replies": name, **_figures(found)})
    if as_json:
        print_json({"rows": rows, "replies": replies})
    else:
        from tabulate import tabulate

        click.echo(tabulate(rows, headers="keys", floatfmt=".2f"))


def _asked(
    case: "Case", config: Path | None, wishes: dict[str, str | None], *, shipped: bool
) -> list[dict[str, object]]:
    """The replies to a case's questions, each the first turn of a session of its own, in memory of the conversation."""
    from localmem.runtime import Runtime
    from localmem.store.conversation_files import Names, read_sessions

    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-abstention-")))
        settings = _settings(config, place, case, wishes, shipped=shipped)
        runtime = stack.enter_context(Runtime(settings, progress=note))
        names = Names(user=case.user, assistant=settings.chat.assistant_name)
        agent = runtime.agent(case.user)
        agent.writer.read(read_sessions(resource(case.conversation), names))
        told = _told(case)
        note(f"asking {case.user}'s {len(told)} questions with an answer and {len(case.never)} without")
        texts = [*(one.question for one in told), *case.never]
        answers = [reply.turn.text for reply in ask_each(agent, texts, case.today)]
    golds = [*told, *[None] * len(case.never)]
    return [_row(case, *one) for one in zip(texts, answers, golds, strict=True)]


def _settings(
    config: Path | None, place: Path, case: "Case", wishes: dict[str, str | None], *, shipped: bool
) -> "Settings":
    settings = settings_of(
        config, place, case.user, wishes["system"], model=wishes["model"], chat={"user_name": case.user}
    )
    if shipped:
        return settings
    return settings.model_copy(update={"llm": settings.llm.model_copy(update={"shipped_adapters": False})})


def _told(case: "Case") -> "Sequence[Told]":
    from localmem.evaluation.abstention import Told

    more = read_yaml(resource(case.questions))["questions"] if case.questions else []
    if not isinstance(more, list):
        raise TypeError(f"{case.questions} is no list of questions")
    return [*case.told, *(Told.model_validate(one) for one in more)]


def _row(case: "Case", question: str, answer: str, told: "Told | None") -> dict[str, object]:
    from localmem.evaluation.abstention import abstains

    right = contains_answer(answer, told.accept, told.reject) if told else None
    return {"user": case.user, "question": question, "answer": answer, "right": right, "abstains": abstains(answer)}


def _figures(found: Sequence[dict[str, object]]) -> dict[str, object]:
    never = [row for row in found if row["right"] is None]
    told = [row for row in found if row["right"] is not None]
    return {
        "never told": len(never),
        "says it does not know": _share(never, "abstains"),
        "told": len(told),
        "right": _share(told, "right"),
        "false abstention": _share(told, "abstains"),
    }


def _share(rows: Sequence[dict[str, object]], key: str) -> float:
    return sum(bool(row[key]) for row in rows) / len(rows)
