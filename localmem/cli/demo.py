"""`localmem demo`: memory at work on a shipped conversation, beside the same model without it.

Reads the conversation, closes its sessions, opens another on a later day, and asks the shipped questions both ways.
Everything is real: the weights, the store (in a folder of its own, made anew), the index.
"""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of
from localmem.evaluation.metrics.text import contains_answer
from localmem.files import read_yaml
from localmem.resources import resource

if TYPE_CHECKING:
    from localmem.chat.conversation import Conversation
    from localmem.config import Settings
    from localmem.runtime import Runtime
    from localmem.types import Reply


class Question(BaseModel):
    """One question: any accepted text makes an answer right, any rejected one (an outdated fact) makes it wrong."""

    model_config = ConfigDict(extra="forbid")

    question: str
    accept: tuple[str, ...]
    reject: tuple[str, ...] = ()
    about: str


class Scene(BaseModel):
    """Who talks, when the last session opens, and its first words."""

    model_config = ConfigDict(extra="forbid")

    user: str
    today: AwareDatetime
    opening: str


@click.command()
@config_option
@model_option
@click.option("--system", help="The memory system to show.", metavar="S")
@json_option
def demo(config: Path | None, model: str | None, system: str | None, as_json: bool) -> None:
    """Read a shipped three-session conversation, then answer from memory and without it, side by side."""
    folder = resource("configs/demo")
    scene = Scene.model_validate(read_yaml(folder / "demo.yaml"))
    questions = TypeAdapter(list[Question]).validate_python(read_yaml(folder / "questions.yaml")["questions"])
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-demo-")))
        settings = settings_of(config, place, scene.user, system, model=model, chat={"user_name": scene.user})
        report = _run(settings, scene, questions, folder / "conversation.jsonl", stack)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _run(
    settings: "Settings", scene: Scene, questions: Sequence[Question], conversation: Path, stack: ExitStack
) -> dict[str, object]:
    from localmem.runtime import Runtime
    from localmem.store.conversation_files import Names, read_sessions

    runtime = stack.enter_context(Runtime(settings, progress=note))
    sessions = read_sessions(conversation, Names(user=scene.user, assistant=settings.chat.assistant_name))
    note(f"reading {len(sessions)} sessions of {scene.user}")
    remembering = runtime.agent(scene.user)
    remembering.writer.read(sessions)
    forgetful = _without_memory(runtime)
    note(f"asking {len(questions)} questions, with memory and without")
    return {
        "model": settings.model,
        "system": settings.system,
        "opening": scene.opening,
        "with_memory": _said(ask_each(remembering, [scene.opening], scene.today)[0]),
        "without_memory": _said(ask_each(forgetful, [scene.opening], scene.today)[0]),
        "questions": _both_ways(remembering, forgetful, questions, scene.today),
    }


def _without_memory(runtime: "Runtime") -> "Conversation":
    """The same model with nothing remembered and nothing kept."""
    from localmem.chat.conversation import Conversation
    from localmem.chat.responder import Speakers
    from localmem.systems.none import NoMemory

    chat = runtime.settings.chat
    speakers = Speakers(chat.user_name, chat.assistant_name)
    return Conversation(memory=NoMemory(), llm=runtime.llm, speakers=speakers)


def _both_ways(
    remembering: "Conversation", forgetful: "Conversation", questions: Sequence[Question], today: datetime
) -> list[dict[str, object]]:
    texts = [question.question for question in questions]
    rows = zip(questions, ask_each(remembering, texts, today), ask_each(forgetful, texts, today), strict=True)
    return [
        {
            "question": question.question,
            "about": question.about,
            "accept": question.accept,
            "with_memory": {**_said(told), "right": contains_answer(told.turn.text, question.accept, question.reject)},
            "without_memory": {
                **_said(blank),
                "right": contains_answer(blank.turn.text, question.accept, question.reject),
            },
        }
        for question, told, blank in rows
    ]


def ask_each(agent: "Conversation", texts: Sequence[str], today: datetime) -> list["Reply"]:
    """Each text as the first turn of a session of its own; nothing is kept."""
    from localmem.types import Session, Turn

    probes = [
        Session(f"probe{n}", (Turn(f"probe{n}.0", "user", agent.responder.speakers.user, text, today),)) for n, text in enumerate(texts)
    ]
    with ThreadPoolExecutor(8) as pool:  # the backbone makes one batch of them
        return list(pool.map(agent.responder.answer, probes))


def _said(reply: "Reply") -> dict[str, object]:
    return {"answer": reply.turn.text, "recalled": reply.recall.text}


def _print(report: dict[str, object]) -> None:
    from tabulate import tabulate

    rows = report["questions"]
    told, blank = report["with_memory"], report["without_memory"]
    if not (isinstance(rows, list) and isinstance(told, dict) and isinstance(blank, dict)):
        raise TypeError("the report lacks its parts")
    click.echo(f"\nA new day. The user says: {report['opening']}\n")
    click.echo(f"Recalled:\n{told['recalled']}\n")
    click.echo(f"{report['model']} with memory ({report['system']}):\n  {told['answer']}\n")
    click.echo(f"{report['model']} without memory:\n  {blank['answer']}\n")
    table = [
        [_mark(row["with_memory"]), row["question"], row["with_memory"]["answer"], row["without_memory"]["answer"]]
        for row in rows
    ]
    widths = [None, 38, 38, 38]
    click.echo(tabulate(table, ["", "question", "with memory", "without"], maxcolwidths=widths))
    right = {way: sum(row[way]["right"] for row in rows) for way in ("with_memory", "without_memory")}
    click.echo(f"\nright with memory:    {right['with_memory']} of {len(rows)}")
    click.echo(f"right without memory: {right['without_memory']} of {len(rows)}")


def _mark(said: dict[str, object]) -> str:
    return "✓" if said["right"] else "✗"
