"""Abstention: does the chatbot admit that it does not know what it was never told?

Puts two kinds of questions about shipped conversations to a system and counts replies that abstain, by a rule of words.
The rule looks for words, not for truth: a reply that admits not knowing and then guesses counts all the same.
"""

import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

from pydantic import AwareDatetime, BaseModel, ConfigDict, TypeAdapter

from localmem.config import Settings
from localmem.evaluation import DATA
from localmem.evaluation.metrics.text import contains_answer
from localmem.experiments.demo import DemoQuestion, ask_each, read_questions
from localmem.experiments.runs import Notify
from localmem.files import parse, read_yaml
from localmem.runtime import Runtime
from localmem.store.conversation_files import SpeakerNames, read_sessions

# "I don't know …", "you haven't told me …", "I'm not sure …", "you never mentioned …", "I have no record of …" and
# the like.
RULE = re.compile(
    r"\b(?:do(?:n't| not)|did(?:n't| not)|can(?:'t|not)|could(?:n't| not)|have(?:n't| not)|has(?:n't| not)|never|not)"
    r"(?: (?:yet|really|actually|currently|ever|even|sure|seem to|been|think that you|think you))*"
    r" (?:know|say|tell|told|mention(?:ed)?|recall|remember|sure|aware|talked about|find"
    r"|have (?:any|that|this|the|enough) (?:information|record|memory|details?))\b"
    r"|\bno (?:information|record|memory|idea|mention)\b|\b(?:unknown|unsure)\b",
    re.IGNORECASE,
)


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


def abstains(reply: str) -> bool:
    """Whether the reply says that it does not know, by `RULE`."""
    return RULE.search(reply.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")) is not None


def read_cases(path: Path) -> list[AbstentionCase]:
    """The cases of a file, in order, each with the questions of its `questions` file. Raises BadInput."""
    cure = "give a mapping with `cases`"
    cases = parse(str(path), read_yaml(path).get("cases"), TypeAdapter(list[AbstentionCase]), cure)
    answered = [(*case.answered, *(read_questions(DATA / case.questions) if case.questions else ())) for case in cases]
    return [case.model_copy(update={"answered": own}) for case, own in zip(cases, answered, strict=True)]


def measure_abstention(
    settings: "Settings", cases: Sequence[AbstentionCase], *, plain: bool = False, notify: Notify = lambda _: None
) -> dict[str, list[dict[str, object]]]:
    """`rows` of figures and all `replies`; with `plain` also without the adapters that localmem ships.

    Abstaining is right for an unanswered question and a false abstention for an answered one.
    """
    rows: list[dict[str, object]] = []
    replies: list[dict[str, object]] = []
    for shipped in (True, False) if plain else (True,):
        name = "as configured" if shipped else "without shipped adapters"
        llm = settings.llm if shipped else settings.llm.model_copy(update={"shipped_adapters": False})
        own = settings.model_copy(update={"llm": llm})
        results = [{**row, "replies": name} for case in cases for row in _ask_case(case, own, notify)]
        replies += results
        rows.append({"replies": name, **_figures(results)})
    return {"rows": rows, "replies": replies}


def _ask_case(case: AbstentionCase, settings: "Settings", notify: Notify) -> list[dict[str, object]]:
    """The replies to a case's questions, in a temporary memory of its conversation."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-abstention-")))
        chat = settings.chat.model_copy(update={"user_name": case.user})
        own = settings.model_copy(update={"data": folder, "database": None, "user": case.user, "chat": chat})
        agent = stack.enter_context(Runtime(own, progress=notify)).agent(case.user)
        names = SpeakerNames(user=case.user, assistant=settings.chat.assistant_name)
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
