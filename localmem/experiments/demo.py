"""Replies about shipped conversations: the demo, abstention, and what the memory systems cost.

The demo reads a conversation of three sessions into a temporary store and asks, on a later day, each question as the
first turn of a new session, of the same model with and without memory; so are requests that need none. Abstention asks
what a conversation does not answer too, and counts the replies that admit it by a rule of words, not of truth: a reply
that admits not knowing and then guesses counts all the same. For the costs each system replays a conversation turn by
turn; replies come from the conversation, so only the memory's own calls and tokens are counted. Weights, store and
index are real.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import fmean

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from localmem import factory
from localmem.bank import Bank
from localmem.chat.responder import Responder, Speakers
from localmem.config import Settings, load_settings
from localmem.evaluation import DATA
from localmem.evaluation.metrics.replies import abstains, contains_answer
from localmem.experiments.runs import Notify, system_settings
from localmem.files import parse, read_yaml
from localmem.llm.wrappers import AnswerCache, Meter, PromptUsage
from localmem.memory import Memory
from localmem.runtime import Runtime
from localmem.systems.baselines import NoMemory
from localmem.transfer import FileDefaults, read_sessions
from localmem.types import Exchange, Reply, Session, Turn

CONVERSATION = DATA / "nina" / "conversation.jsonl"  # what the systems' costs are measured on
_DEMO = DATA / "demo"
DEMO_CONVERSATION = _DEMO / "conversation.jsonl"


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
    ordinary: tuple[DemoPair, ...] = ()

    def count_refused(self) -> tuple[int, int]:
        """The numbers of ordinary requests that were refused with and without memory."""
        with_memory = sum(abstains(pair.with_memory.answer) for pair in self.ordinary)
        return with_memory, sum(abstains(pair.without_memory.answer) for pair in self.ordinary)

    def count_right(self) -> tuple[int, int]:
        """The numbers of right answers with and without memory."""
        with_memory = sum(bool(pair.with_memory.right) for pair in self.questions)
        return with_memory, sum(bool(pair.without_memory.right) for pair in self.questions)


def read_scene() -> DemoScene:
    """The shipped scene."""
    return DemoScene.model_validate(read_yaml(_DEMO / "demo.yaml"))


def read_ordinary() -> list[DemoQuestion]:
    """The demo's requests that need no memory. Raises BadInput."""
    file = _DEMO / "questions.yaml"
    texts = parse(str(file), read_yaml(file).get("ordinary"), TypeAdapter(list[str]), "give a list of `ordinary`")
    return [DemoQuestion(question=text, accept=()) for text in texts]


def read_questions(file: Path = _DEMO / "questions.yaml") -> list[DemoQuestion]:
    """The questions of a file; by default the shipped ones. Raises BadInput."""
    cure = "give a mapping with `questions`"
    return parse(str(file), read_yaml(file).get("questions"), TypeAdapter(list[DemoQuestion]), cure)


def run_demo(config: Path | None, flags: Mapping[str, object], notify: Callable[[str], None]) -> DemoReport:
    """Run the demo with the settings of `config` and `flags`, in a temporary data directory."""
    scene, questions, ordinary = read_scene(), read_questions(), read_ordinary()
    with tempfile.TemporaryDirectory(prefix="localmem-demo-") as folder:
        demo_flags = {"data": Path(folder), "user": scene.user, "chat": {"user_name": scene.user}}
        settings = load_settings(config, {**flags, **demo_flags})
        with Runtime(settings, progress=notify) as runtime:
            names = FileDefaults(scene.user, settings.chat.assistant_name)
            sessions = read_sessions(DEMO_CONVERSATION, names)
            notify(f"reading {len(sessions)} sessions of {scene.user}")
            agent = runtime.agent(scene.user)
            agent.writer.read(sessions)
            notify(f"asking {len(questions)} questions and {len(ordinary)} other requests, with memory and without")
            plain = Responder(memory=NoMemory(), llm=runtime.llm, speakers=Speakers(*agent.responder.speakers))
            responders = agent.responder, plain
            opening = DemoQuestion(question=scene.opening, accept=(), about="")
            (opening_pair,) = _ask_both(responders, [opening], scene.today)
            pairs = _ask_both(responders, [*questions, *ordinary], scene.today)
    return DemoReport(
        model=settings.model,
        system=settings.system,
        opening=opening_pair,
        questions=tuple(pairs[: len(questions)]),
        ordinary=tuple(pairs[len(questions) :]),
    )


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


class AbstentionCase(BaseModel):
    """A conversation, the day of the questions, and questions with and without an answer in it.

    `questions` is a file with further answered questions. Paths are relative to `localmem.evaluation.DATA`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    conversation: str
    user: str
    today: AwareDatetime
    unanswered: tuple[str, ...]
    answered: tuple[DemoQuestion, ...] = ()
    questions: str | None = None


def read_cases(path: Path) -> list[AbstentionCase]:
    """The cases of a file, in order, each with the questions of its `questions` file. Raises BadInput."""
    cure = "give a mapping with `cases`"
    cases = parse(str(path), read_yaml(path).get("cases"), TypeAdapter(list[AbstentionCase]), cure)
    answered = [(*case.answered, *(read_questions(DATA / case.questions) if case.questions else ())) for case in cases]
    return [case.model_copy(update={"answered": own}) for case, own in zip(cases, answered, strict=True)]


def measure_abstention(
    settings: "Settings", cases: Sequence[AbstentionCase], *, notify: Notify = lambda _: None
) -> dict[str, list[dict[str, object]]]:
    """`rows`, a single one with the figures, and all `replies`.

    Abstaining is right for an unanswered question and a false abstention for an answered one.
    """
    replies = [row for case in cases for row in _ask_case(case, settings, notify)]
    return {"rows": [_figures(replies)], "replies": replies}


def _ask_case(case: AbstentionCase, settings: "Settings", notify: Notify) -> list[dict[str, object]]:
    """The replies to a case's questions, in a temporary memory of its conversation."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-abstention-")))
        chat = settings.chat.model_copy(update={"user_name": case.user})
        own = settings.model_copy(update={"data": folder, "database": None, "user": case.user, "chat": chat})
        agent = stack.enter_context(Runtime(own, progress=notify)).agent(case.user)
        names = FileDefaults(user=case.user, assistant=settings.chat.assistant_name)
        agent.writer.read(read_sessions(DATA / case.conversation, names))
        count = len(case.answered)
        notify(f"asking {case.user}'s {count} answered and {len(case.unanswered)} unanswered questions")
        texts = [*(question.question for question in case.answered), *case.unanswered]
        replies = [reply.turn.text for reply in ask_each(agent.responder, texts, case.today)]
    answered = zip(case.answered, replies, strict=False)  # the replies to unanswered questions come last
    right = [contains_answer(reply, gold.accept, gold.reject) for gold, reply in answered]
    rows = zip(texts, replies, [*right, *[None] * len(case.unanswered)], strict=True)
    return [
        {"user": case.user, "question": text, "answer": reply, "right": right, "abstains": abstains(reply)}
        for text, reply, right in rows
    ]


def _figures(results: Sequence[dict[str, object]]) -> dict[str, object]:
    unanswered = [row for row in results if row["right"] is None]
    answered = [row for row in results if row["right"] is not None]
    return {
        "unanswered": len(unanswered),
        "abstains": fmean(bool(row["abstains"]) for row in unanswered),
        "answered": len(answered),
        "right": fmean(bool(row["right"]) for row in answered),
        "false abstention": fmean(bool(row["abstains"]) for row in answered),
    }


@dataclass(frozen=True, slots=True)
class SystemCost:
    """Totals over `turns` replies. `recalled_tokens` is the memory text in their prompts; `prompts` is by name.

    `refused` counts the model's texts that did not become memory, by reason, `fallbacks` unusable answers by prompt.
    `remembered` are the notes, units and links at the end, a line each.
    """

    turns: int
    sessions: int
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    recalled_tokens: int
    units: int
    prompts: dict[str, PromptUsage]
    refused: dict[str, int]
    fallbacks: dict[str, int]
    remembered: tuple[str, ...]

    def per_turn(self, total: int) -> float:
        """A total divided by the number of replies."""
        return total / max(self.turns, 1)


def measure_cost(memory: Memory, meter: Meter, sessions: Sequence[Session]) -> SystemCost:
    """Replay the sessions. `meter` must be new and wrap the LLM that the memory uses."""
    turns = recalled_tokens = 0
    for session in sessions:
        for dialogue, exchange in _answered_exchanges(session):
            recall = memory.recall(dialogue)
            turns += 1
            recalled_tokens += meter.count_tokens([recall.text])[0]
            memory.apply(memory.observe(replace(exchange, recall=recall)))
        memory.apply(memory.end_session(session))
    usage = meter.usage()
    return SystemCost(
        turns=turns,
        sessions=len(sessions),
        calls=sum(each.calls for each in usage.values()),
        input_tokens=sum(each.input_tokens for each in usage.values()),
        cached_tokens=sum(each.cached_tokens for each in usage.values()),
        output_tokens=sum(each.output_tokens for each in usage.values()),
        recalled_tokens=recalled_tokens,
        units=sum(1 for _ in memory.bank.live()),
        prompts=usage,
        refused=dict(Counter(refusal.reason for refusal in memory.bank.refused)),
        fallbacks=dict(memory.fallbacks),
        remembered=tuple(_memory_lines(memory.bank)),
    )


def _memory_lines(bank: Bank) -> Iterator[str]:
    yield from (f"note {name}: {' '.join(text.split())}" for name, text in bank.notes.items())
    yield from (f"{unit.kind}: {' '.join(unit.text.split())}" for unit in bank.live())
    for link in bank.links:
        if bank.is_live(link.source) and bank.is_live(link.target):
            yield f"link: {bank.units[link.source].text} --{link.relation}--> {bank.units[link.target].text}"


def _answered_exchanges(session: Session) -> list[tuple[Session, Exchange]]:
    pairs = []
    turns = 0
    for exchange in session.exchanges():
        turns += len(exchange.turns())
        if exchange.user and exchange.reply:
            pairs.append((replace(session, turns=session.turns[: turns - 1]), exchange))
    return pairs


Track = Callable[[Iterable[str]], Iterable[str]]


def measure_systems(
    settings: Settings,
    names: Iterable[str],
    *,
    conversation: Path | None = None,
    notify: Callable[[str], None] = lambda _line: None,
    track: Track = lambda names: names,
) -> dict[str, SystemCost]:
    """The cost of each named system or variant over one conversation (JSONL of sessions; default: Nina's).

    All use one backbone and one encoder; stages are the backbone's own unless a selector is named. What several ask the
    same counts for each and is answered once. `track` may wrap the iteration over the names with a progress bar.
    """
    sessions = read_sessions(conversation or CONVERSATION, FileDefaults())
    costs: dict[str, SystemCost] = {}
    with tempfile.TemporaryDirectory(prefix="localmem-systems-") as folder:
        settings = settings.model_copy(update={"data": Path(folder), "database": None})
        with Runtime(settings, progress=notify) as runtime:
            cache = AnswerCache(runtime.llm.inner)
            for name in track(names):
                meter = Meter(cache)
                own = with_system(settings, name)
                index = partial(factory.retriever, own, runtime.encoder, system=factory.SYSTEMS[own.system])
                llm = meter if own.chat.stages == "model" else factory.stages(own, meter)
                memory = factory.memory(own, factory.Parts(llm, index))
                costs[name] = measure_cost(memory, meter, sessions)
    return costs


def with_system(settings: Settings, name: str, **changes: object) -> Settings:
    """The settings for this system or variant, without the options of another system."""
    if "/" in name:
        return system_settings(settings, name).model_copy(update=changes)
    options = settings.options if settings.system == name else {}
    return settings.model_copy(update={**changes, "system": name, "options": options})
