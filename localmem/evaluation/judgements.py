"""A run before its judges: answers become what a judge looks at, and verdicts are kept beside the answers.

Asks a judge through the function it is given; knows no backbone. What was judged before is not judged again.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from localmem.bank import Bank
from localmem.evaluation.answers import Answer, Line, Read, Work, answers_of
from localmem.evaluation.judging import Calibration, Item, Judge, Verdict
from localmem.files import JsonlLog, read_log

FILE = "verdicts.jsonl"

Ask = Callable[[Sequence[Item]], Sequence[Verdict]]


class Case(NamedTuple):
    """What a verdict is about: an answer, or a whole memory (no probe); `other` is the system it was compared with."""

    work: Work
    probe: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict of a judge on a model. Its scores are empty when it gave nothing usable.

    `calibration` says in a line how the judge agreed with labelled verdicts, "" when nobody knows; `believable` is
    what follows from that.
    """

    judge: str
    model: str
    calibration: str
    believable: bool
    case: Case
    label: str | None
    scores: Mapping[str, float] = field(default_factory=dict)


_FORM: TypeAdapter[Judgement] = TypeAdapter(Judgement)


def open_judgements(folder: Path) -> JsonlLog[Judgement]:
    """The file of a run's verdicts, to be opened with `with` and written to."""
    return JsonlLog(folder / FILE, _FORM)


def read_judgements(folder: Path) -> list[Judgement]:
    """A run's verdicts so far."""
    path = folder / FILE
    return list(read_log(path, _FORM)) if path.exists() else []


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """Who judges: the judge, its model by name and checksum, how it asks, and its calibration, if it was measured."""

    judge: Judge
    model: str
    ask: Ask
    calibration: Calibration | None


def judge_all(
    bench: JudgeSetup, lines: Sequence[Line], against: str, kept: JsonlLog[Judgement], *, block: int = 64
) -> int:
    """Verdicts on what the judge has not seen yet, written block by block; how many. It sees no failed answer."""
    name, known = bench.judge.name, bench.calibration
    done = {one.case for one in kept.records if (one.judge, one.model) == (name, bench.model)}
    cases = [(case, item) for case, item in cases_of(bench.judge, lines, against) if case not in done]
    for start in range(0, len(cases), block):
        part = cases[start : start + block]
        verdicts = bench.ask([item for _, item in part])
        for (case, _), verdict in zip(part, verdicts, strict=True):
            agreed, believed = (known.line, known.believable) if known else ("", False)
            kept.append(Judgement(name, bench.model, agreed, believed, case, verdict.label, verdict.scores))
    return len(cases)


def cases_of(judge: Judge, lines: Sequence[Line], against: str) -> list[tuple[Case, Item]]:
    """What the judge can look at; an item that lacks a text which the judge needs is left out."""
    found = _memories(lines) if judge.unit == "memory" else _answers(judge, answers_of(lines), against)
    return [(case, item) for case, item in found if all(item.get(name) for name in judge.inputs if name != "gold")]


def _answers(judge: Judge, answers: Sequence[Answer], against: str) -> Iterator[tuple[Case, Item]]:
    given = [answer for answer in answers if not answer.error]
    if judge.unit == "answer":
        fitting = (one for one in given if "question" not in judge.inputs or one.kind == "question")
        yield from ((Case(one.work, one.probe), _item(one)) for one in fitting)
        return
    others = {(one.work.dataset, one.work.episode, one.probe): one for one in given if one.work.system == against}
    of = "recalled" if judge.unit == "two recalls" else "answer"
    for one in given:
        other = others.get((one.work.dataset, one.work.episode, one.probe))
        if other and one.work.system != against:
            yield Case(one.work, one.probe, against), {**_item(one), "other": _item(other)[of]}


def _item(answer: Answer) -> dict[str, str]:
    return {
        "question": answer.question,
        "gold": " or ".join(answer.gold).strip(),
        "answer": answer.text,
        "dialogue": answer.dialogue,
        "past": answer.past or " or ".join(answer.gold).strip(),
        "recalled": answer.recalled,
        "speaker": answer.speaker,
    }


def _memories(lines: Iterable[Line]) -> Iterator[tuple[Case, Item]]:
    """Everything that a system holds in the end, beside all that was said."""
    held: defaultdict[Work, list[Read]] = defaultdict(list)
    for line in lines:
        if isinstance(line, Read):
            held[line.work].append(line)
    for work, reads in held.items():
        bank = Bank().apply(change for read in reads for change in read.changes)
        texts = [*(unit.text for unit in bank.live()), *bank.notes.values()]
        said = "\n".join(read.transcript for read in reads)
        yield Case(work, ""), {"speaker": reads[0].user, "dialogue": said, "memory": "\n".join(texts)}
