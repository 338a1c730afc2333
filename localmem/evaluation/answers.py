"""The files of a run: what was read and answered, and the verdicts of judges on it.

One line for each session that was read and each probe that was answered. What a system remembered is stored as changes,
so that an interrupted run can resume from the file alone. Answers become items for a judge, and verdicts are stored
beside the answers; items that already have one are skipped unless they have changed. A judge is asked through the
function in `JudgeSetup`, so nothing here depends on a backend, on the runner or on any measure.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, TypeAdapter

from localmem.bank import Bank
from localmem.evaluation.episodes import Kind
from localmem.evaluation.judging.calibration import Calibration
from localmem.evaluation.judging.judges import Item, Judge
from localmem.evaluation.judging.verdicts import Verdict
from localmem.evaluation.metrics.model_based import Likelihood
from localmem.files import JsonlLog, read_log
from localmem.llm.wrappers import PromptUsage
from localmem.types import Change

FIRST = "first token"  # in the seconds of an answer


class Work(NamedTuple):
    """The unit of work of one thread: one system reads one episode of one data set."""

    system: str
    dataset: str
    episode: str


@dataclass(frozen=True, slots=True)
class Read:
    """A session that was read.

    `changes` are what the system remembered of it, `gold` the sentences that a memory should hold by then, where the
    data set has them; `error` is the reason of a failure.
    """

    work: Work
    session: str
    user: str
    transcript: str
    changes: tuple[Change, ...]
    seconds: float
    spent: Mapping[str, PromptUsage]
    gold: tuple[str, ...] = ()
    error: str = ""
    type: Literal["read"] = "read"


FALLBACKS = "fallbacks: memory that was cut to fit, or an LLM answer that could not be used"  # as reports say it


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe that was answered, or that failed (`error`).

    `about` is the probe's type in the data set and `session` the session after which it was asked. `units` are the
    recalled units, each by the ids of its source turns, `evidence` the turns that contain the answer and `past` their
    text. `rests_on` are the gold memory's sentences that the reply uses, see `memory_turns`. `dialogue` is the
    conversation up to the question, `speaker` who answers. `likelihood` is that of the gold
    answer under the backbone, where it was computed. `seconds` and `spent` are by stage: recall, respond. A streamed
    reply also has the seconds from the question to its first piece. `fallbacks` are those of the memory to recall,
    None if they were not counted.
    """

    work: Work
    probe: str
    kind: Kind
    about: str
    session: str
    question: str
    gold: tuple[str, ...]
    evidence: tuple[str, ...] = ()
    past: str = ""
    rests_on: tuple[str, ...] = ()
    dialogue: str = ""
    speaker: str = ""
    text: str = ""
    recalled: str = ""
    units: tuple[tuple[str, ...], ...] = ()
    likelihood: Likelihood | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    spent: Mapping[str, Mapping[str, PromptUsage]] = field(default_factory=dict)
    fallbacks: int | None = None
    error: str = ""
    type: Literal["answer"] = "answer"


Line = Read | Answer

_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="type")])


def open_answers(path: Path) -> JsonlLog[Line]:
    """The file of a run, to be opened with `with` and appended to."""
    return JsonlLog(path, _LINE)


def read_answers(path: Path) -> list[Line]:
    """The valid lines of a run's file, see `resolve`. Raises BadInput."""
    return resolve(read_log(path, _LINE))


def resolve(lines: Iterable[Line]) -> list[Line]:
    """The lines that are valid after retries, by system and episode, sessions before answers.

    A session that was read again replaces its earlier line and invalidates everything after it.
    """
    reads: defaultdict[Work, dict[str, Read]] = defaultdict(dict)
    answers: defaultdict[Work, dict[str, Answer]] = defaultdict(dict)
    for line in lines:
        if isinstance(line, Answer):
            answers[line.work][line.probe] = line
            continue
        if line.session in (previous := reads[line.work]):
            names = list(previous)
            stale = set(names[names.index(line.session) :])
            reads[line.work] = {name: read for name, read in previous.items() if name not in stale}
            current = answers[line.work]
            answers[line.work] = {probe: answer for probe, answer in current.items() if answer.session not in stale}
        reads[line.work][line.session] = line
    return [
        line
        for work in dict.fromkeys([*reads, *answers])
        for lines_of_work in (reads[work], answers[work])
        for line in lines_of_work.values()
    ]


def successful(lines: Iterable[Line]) -> list[Line]:
    """The lines that need no retry: no failed answer, and nothing from the first failed session on."""
    stale: defaultdict[Work, set[str]] = defaultdict(set)
    result: list[Line] = []
    for line in resolve(lines):
        sessions = stale[line.work]
        if isinstance(line, Read) and (line.error or sessions):
            sessions.add(line.session)
        elif not line.error and line.session not in sessions:
            result.append(line)
    return result


def answers_of(lines: Sequence[Line]) -> list[Answer]:
    """The answers, in an order that does not depend on thread timing."""
    return sorted((line for line in lines if isinstance(line, Answer)), key=lambda line: (line.work, line.probe))


def reads_of(lines: Sequence[Line]) -> list[Read]:
    """The sessions that were read, in an order that does not depend on thread timing."""
    return sorted((line for line in lines if isinstance(line, Read)), key=lambda line: (line.work, line.session))


FILE = "verdicts.jsonl"
_BLOCK = 64  # cases that are asked about together

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
    it. `item` is a digest of what was judged, "" in files of earlier versions; `seed` and `samples` are what was asked
    with.
    """

    judge: str
    model: str
    calibration: str
    believable: bool
    case: Case
    label: str | None
    scores: Mapping[str, float] = field(default_factory=dict)
    item: str = ""
    seed: int = 0
    samples: int = 1


_JUDGEMENT: TypeAdapter[Judgement] = TypeAdapter(Judgement)


def open_judgements(folder: Path) -> JsonlLog[Judgement]:
    """The file of a run's verdicts, to be opened with `with` and appended to."""
    return JsonlLog(folder / FILE, _JUDGEMENT)


def read_judgements(folder: Path) -> list[Judgement]:
    """The verdicts of a run so far, a model's latest one for each case."""
    path = folder / FILE
    records = read_log(path, _JUDGEMENT) if path.exists() else ()
    return list({(record.judge, record.model, record.case): record for record in records}.values())


@dataclass(frozen=True, slots=True)
class JudgeSetup:
    """A judge on a model: the model's name and checksum, the function that asks it, and its calibration, if any.

    `seed` is that of its samples.
    """

    judge: Judge
    model: str
    ask: Ask
    calibration: Calibration | None
    seed: int = 0


def judge_all(setup: JudgeSetup, lines: Sequence[Line], baseline: str, log: JsonlLog[Judgement]) -> list[Judgement]:
    """Append a verdict for each case without a usable one, block by block, and return these; failed answers have none.

    A case whose item has changed is judged again; one without a usable verdict only with another seed or number of
    samples, since the same question gets the same answer. Judges that compare two compare each system with `baseline`.
    """
    name, calibration, samples = setup.judge.name, setup.calibration, setup.judge.samples
    records = [record for record in log.records if (record.judge, record.model) == (name, setup.model)]
    judged = {case: record.item for case, record in {each.case: each for each in records}.items() if record.scores}
    attempts = {(each.case, each.item, each.seed, each.samples) for each in records if not each.scores}
    pairs = [
        (case, item)
        for case, item in cases_of(setup.judge, lines, baseline)
        if judged.get(case) not in ("", digest := _digest(setup.judge, item))
        and (case, digest, setup.seed, samples) not in attempts
    ]
    summary, believable = (calibration.line, calibration.believable) if calibration else ("", False)
    judgements = []
    for start in range(0, len(pairs), _BLOCK):
        part = pairs[start : start + _BLOCK]
        verdicts = setup.ask([item for _, item in part])
        for (case, item), verdict in zip(part, verdicts, strict=True):
            digest = _digest(setup.judge, item)
            entry = Judgement(
                name, setup.model, summary, believable, case, verdict.label, verdict.scores, digest, setup.seed, samples
            )
            log.append(entry)
            judgements.append(entry)
    return judgements


def _digest(judge: Judge, item: Item) -> str:
    """Of what the judge is shown of an item."""
    return sha256(dumps([item.get(name) for name in (*judge.inputs, *judge.optional)]).encode()).hexdigest()[:16]


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
