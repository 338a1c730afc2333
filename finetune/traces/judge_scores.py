"""What a local judge says of a teacher's or a student's answers, as one number each; asked once and kept in a file.

Knows judges by their bench and no backend. Only judges that look at one answer by itself can be asked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter

from finetune.traces.trace import Trace
from localmem.errors import BadInput
from localmem.evaluation.judgements import JudgeSetup
from localmem.evaluation.judging import Item, Judge, Verdict, get_judge
from localmem.files import JsonlLog

FOLDER = "opinions"

# Of a verdict, the scales whose mean is its score; the judges of this list look at one answer by itself.
SCALES: Mapping[str, tuple[str, ...]] = {
    "score": ("score",),
    "rating": ("fluency", "coherence", "consistency"),
    "entailment": ("entail",),
    "correct": ("right",),
}
_BLOCK = 16  # answers asked about together; what is asked by then is not lost


@dataclass(frozen=True, slots=True)
class Opinion:
    """`score` is None where the judge gave nothing usable; `model` holds its checksum."""

    trace: str
    judge: str
    model: str
    score: float | None


_FORM: TypeAdapter[Opinion] = TypeAdapter(Opinion)


def judge_of_answers(name: str) -> Judge:
    """The judge of this name. Raises BadInput for one that needs more than an answer and what was asked."""
    judge = get_judge(name)
    if name not in SCALES:
        raise BadInput(f"the judge {name!r} does not look at one answer by itself; give one of {', '.join(SCALES)}")
    return judge


def opinions_in(folder: Path, stage: str) -> JsonlLog[Opinion]:
    """The file of a collection's opinions on a stage, to be opened with `with` and written to."""
    return JsonlLog(folder / FOLDER / f"{stage}.jsonl", _FORM)


def scores_of(
    bench: JudgeSetup, traces: Iterable[Trace], kept: JsonlLog[Opinion], *, track: Callable[[int], object] = lambda _: None
) -> dict[str, float | None]:
    """The judge's score of each trace by its id; what it said before is not asked again."""
    mine = (bench.judge.name, bench.model)
    scores = {one.trace: one.score for one in kept.records if (one.judge, one.model) == mine}
    asked = [trace for trace in traces if trace.id not in scores and _can(bench.judge, trace)]
    for start in range(0, len(asked), _BLOCK):
        part = asked[start : start + _BLOCK]
        for trace, score in zip(part, ask(bench, part), strict=True):
            scores[trace.id] = score
            kept.append(Opinion(trace.id, *mine, score))
        track(len(part))
    return scores


def ask(bench: JudgeSetup, traces: Sequence[Trace]) -> list[float | None]:
    """A score for each answer, in their order."""
    verdicts = bench.ask([item_of(trace) for trace in traces])
    return [_score(bench.judge, verdict) for verdict in verdicts]


def item_of(trace: Trace) -> Item:
    """What is asked last is the question; what stands before it is the dialogue; both are what is known."""
    *before, last = trace.asked
    said = "\n".join(message.content for message in before if message.role != "system")
    return {
        "question": last.content,
        "dialogue": "\n".join(filter(None, [said, last.content])),
        "past": "\n".join(message.content for message in trace.asked if message.role != "system"),
        "gold": trace.metadata.gold or "",
        "answer": trace.answer,
    }


def _can(judge: Judge, trace: Trace) -> bool:
    """Whether a right answer can be told from a wrong one needs gold."""
    return judge.name != "correct" or trace.metadata.gold is not None


def _score(judge: Judge, verdict: Verdict) -> float | None:
    found = [verdict.scores[name] for name in SCALES[judge.name] if name in verdict.scores]
    return fmean(found) if found else None
