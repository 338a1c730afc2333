"""Judging a run: answers become items for a judge, and verdicts are stored beside the answers.

Asks a judge through the function in `JudgeSetup`, so it does not depend on a backend. Items that already have a verdict
are skipped.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from localmem.bank import Bank
from localmem.evaluation.answers import Answer, Line, Read, Work, answers_of
from localmem.evaluation.judging.calibration import Calibration
from localmem.evaluation.judging.judges import Item, Judge
from localmem.evaluation.judging.verdicts import Verdict
from localmem.files import JsonlLog, read_log

FILE = "verdicts.jsonl"

Ask = Callable[[Sequence[Item]], Sequence[Verdict]]


class Case(NamedTuple):
    """The subject of a verdict: an answer, or a complete memory (no probe); `other` is the system compared with it."""

    work: Work
    probe: str
    other: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One verdict of a judge on a model. Its scores are empty if no answer of the judge was usable.

    `calibration` summarises the judge's agreement with labelled verdicts ("" if unknown), and `believable` follows from
    it.
    """

    judge: str
    model: str
    calibration: str
    believable: bool
    case: Case
    label: str | None
    scores: Mapping[str, float] = field(default_factory=dict)


_JUDGEMENT: TypeAdapter[Judgement] = TypeAdapter(Judgement)


def open_judgements(folder: Path) -> JsonlLog[Judgement]:
    """The file of a run's verdicts, to be opened with `with` and appended to."""
    return JsonlLog(folder / FILE, _JUDGEMENT)


def read_judgements(folder: Path) -> list[Judgement]:
    """The verdicts of a run so far."""
    path = folder / FILE
    return list(read_log(path, _JUDGEMENT)) if path.exists() else []


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """A judge on a model: the model's name and checksum, the function that asks it, and its calibration, if any."""

    judge: Judge
    model: str
    ask: Ask
    calibration: Calibration | None


def judge_all(
    setup: JudgeSetup, lines: Sequence[Line], baseline: str, log: JsonlLog[Judgement], *, block: int = 64
) -> int:
    """Append a verdict for each case that has none, block by block, and return their number. Failed answers have none.

    Judges that compare two compare each system with `baseline`.
    """
    name, calibration = setup.judge.name, setup.calibration
    judged = {record.case for record in log.records if (record.judge, record.model) == (name, setup.model)}
    pairs = [(case, item) for case, item in cases_of(setup.judge, lines, baseline) if case not in judged]
    summary, believable = (calibration.line, calibration.believable) if calibration else ("", False)
    for start in range(0, len(pairs), block):
        part = pairs[start : start + block]
        verdicts = setup.ask([item for _, item in part])
        for (case, _), verdict in zip(part, verdicts, strict=True):
            log.append(Judgement(name, setup.model, summary, believable, case, verdict.label, verdict.scores))
    return len(pairs)


def cases_of(judge: Judge, lines: Sequence[Line], baseline: str) -> list[tuple[Case, Item]]:
    """The cases that this judge can judge; an item that lacks one of its inputs is left out."""
    pairs = _memory_cases(lines) if judge.unit == "memory" else _answer_cases(judge, answers_of(lines), baseline)
    return [(case, item) for case, item in pairs if all(item.get(name) for name in judge.inputs if name != "gold")]


def _answer_cases(judge: Judge, answers: Sequence[Answer], baseline: str) -> Iterator[tuple[Case, Item]]:
    successful = [answer for answer in answers if not answer.error]
    if judge.unit == "answer":
        for answer in successful:
            if "question" not in judge.inputs or answer.kind == "question":
                yield Case(answer.work, answer.probe), _item(answer)
        return
    others = {_probe_key(answer): answer for answer in successful if answer.work.system == baseline}
    compared = "recalled" if judge.unit == "two recalls" else "answer"
    for answer in successful:
        other = others.get(_probe_key(answer))
        if other and answer.work.system != baseline:
            yield Case(answer.work, answer.probe, baseline), {**_item(answer), "other": _item(other)[compared]}


def _probe_key(answer: Answer) -> tuple[str, str, str]:
    return answer.work.dataset, answer.work.episode, answer.probe


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


def _memory_cases(lines: Iterable[Line]) -> Iterator[tuple[Case, Item]]:
    """The final memory of each system and episode, with everything that was said."""
    reads_by_work: defaultdict[Work, list[Read]] = defaultdict(list)
    for line in lines:
        if isinstance(line, Read):
            reads_by_work[line.work].append(line)
    for work, reads in reads_by_work.items():
        bank = Bank().apply(change for read in reads for change in read.changes)
        texts = [*(unit.text for unit in bank.live()), *bank.notes.values()]
        dialogue = "\n".join(read.transcript for read in reads)
        yield Case(work, ""), {"speaker": reads[0].user, "dialogue": dialogue, "memory": "\n".join(texts)}
