"""The demo: answers from memory next to answers without it, on a shipped conversation of three sessions.

Reads the conversation into a temporary store, then asks the shipped questions on a later day, each as the first turn of
a new session, of the same model with and without memory. Weights, store and index are real.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from localmem.chat.responder import Responder, Speakers
from localmem.config import load_settings
from localmem.evaluation import DATA
from localmem.evaluation.metrics.text import contains_answer
from localmem.files import parse, read_yaml
from localmem.runtime import Runtime
from localmem.store.conversation_files import SpeakerNames, read_sessions
from localmem.systems.baselines import NoMemory
from localmem.types import Reply, Session, Turn

CONVERSATION = DATA / "demo" / "conversation.jsonl"


class DemoQuestion(BaseModel):
    """A question: a reply with an accepted text is right, one with a rejected text (an outdated fact) is wrong."""

    model_config = ConfigDict(extra="forbid")

    question: str
    accept: tuple[str, ...]
    reject: tuple[str, ...] = ()
    about: str = ""


class DemoScene(BaseModel):
    """Who talks, when the last session opens, and its first words."""

    model_config = ConfigDict(extra="forbid")

    user: str
    today: AwareDatetime
    opening: str


class DemoReply(BaseModel):
    """A reply, the memory it was based on, and whether it is right (None for the opening)."""

    answer: str
    recalled: str
    right: bool | None = None


class DemoPair(BaseModel):
    """The replies to one text, with and without memory."""

    question: str
    about: str = ""
    accept: tuple[str, ...] = ()
    with_memory: DemoReply
    without_memory: DemoReply


class DemoReport(BaseModel):
    """All replies of the demo."""

    model: str
    system: str
    opening: DemoPair
    questions: tuple[DemoPair, ...]

    def count_right(self) -> tuple[int, int]:
        """The numbers of right answers with and without memory."""
        with_memory = sum(bool(pair.with_memory.right) for pair in self.questions)
        return with_memory, sum(bool(pair.without_memory.right) for pair in self.questions)


def read_scene() -> DemoScene:
    """The shipped scene."""
    return DemoScene.model_validate(read_yaml(DATA / "demo" / "demo.yaml"))


def read_questions(file: Path = DATA / "demo" / "questions.yaml") -> list[DemoQuestion]:
    """The questions of a file; by default the shipped ones. Raises BadInput."""
    cure = "give a mapping with `questions`"
    return parse(str(file), read_yaml(file).get("questions"), TypeAdapter(list[DemoQuestion]), cure)


def run_demo(config: Path | None, flags: Mapping[str, object], notify: Callable[[str], None]) -> DemoReport:
    """Run the demo with the settings of `config` and `flags`, in a temporary data directory."""
    scene, questions = read_scene(), read_questions()
    with tempfile.TemporaryDirectory(prefix="localmem-demo-") as folder:
        demo_flags = {"data": Path(folder), "user": scene.user, "chat": {"user_name": scene.user}}
        settings = load_settings(config, {**flags, **demo_flags})
        with Runtime(settings, progress=notify) as runtime:
            sessions = read_sessions(CONVERSATION, SpeakerNames(scene.user, settings.chat.assistant_name))
            notify(f"reading {len(sessions)} sessions of {scene.user}")
            agent = runtime.agent(scene.user)
            agent.writer.read(sessions)
            notify(f"asking {len(questions)} questions, with memory and without")
            plain = Responder(memory=NoMemory(), llm=runtime.llm, speakers=Speakers(*agent.responder.speakers))
            responders = agent.responder, plain
            opening = DemoQuestion(question=scene.opening, accept=(), about="")
            (opening_pair,) = _ask_both(responders, [opening], scene.today)
            pairs = _ask_both(responders, questions, scene.today)
    return DemoReport(model=settings.model, system=settings.system, opening=opening_pair, questions=tuple(pairs))


def ask_each(responder: Responder, texts: Sequence[str], today: datetime) -> list[Reply]:
    """The reply to each text as the first turn of its own session; nothing is logged."""
    user = responder.speakers.user
    dialogues = [
        Session(f"probe{number}", (Turn(f"probe{number}.0", "user", user, text, today),))
        for number, text in enumerate(texts)
    ]
    with ThreadPoolExecutor(8) as pool:  # the backbone answers concurrent requests as one batch
        return list(pool.map(responder.answer, dialogues))


def _ask_both(
    responders: tuple[Responder, Responder], questions: Sequence[DemoQuestion], today: datetime
) -> list[DemoPair]:
    texts = [question.question for question in questions]
    columns = [map(_judge, ask_each(responder, texts, today), questions) for responder in responders]
    return [
        DemoPair(
            question=question.question,
            about=question.about,
            accept=question.accept,
            with_memory=with_memory,
            without_memory=without_memory,
        )
        for question, with_memory, without_memory in zip(questions, *columns, strict=True)
    ]


def _judge(reply: Reply, question: DemoQuestion) -> DemoReply:
    right = contains_answer(reply.turn.text, question.accept, question.reject) if question.accept else None
    return DemoReply(answer=reply.turn.text, recalled=reply.recall.text, right=right)
