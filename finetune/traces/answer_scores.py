"""A local judge's scores of traces, one answer at a time; they are stored, so that no answer is judged twice.

Does not depend on which model judges.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter

from finetune.traces.filtering import Reason, Score, find_problem
from finetune.traces.trace import Trace
from localmem.errors import BadInput
from localmem.evaluation.answers import JudgeSetup
from localmem.evaluation.judging.judges import Item, Judge, get_judge
from localmem.evaluation.judging.verdicts import Verdict
from localmem.files import JsonlLog

FOLDER = "opinions"

# The scales of a verdict whose mean is its score, for the judges that look at a single answer.
SCALES: dict[str, tuple[str, ...]] = {
    "score": ("score",),
    "rating": ("fluency", "coherence", "consistency"),
    "entailment": ("entail",),
    "correct": ("right",),
}
_BLOCK = 16  # answers that are judged before their scores are written


@dataclass(frozen=True, slots=True)
class StoredScore:
    """A line of the file; `score` is None if the judge gave nothing usable, and `model` includes its checksum."""

    trace: str
    judge: str
    model: str
    score: float | None


def find_answer_judge(criterion: str) -> Judge:
    """The judge of this criterion. Raises BadInput for one that needs more than an answer and its prompt."""
    judge = get_judge(criterion)
    if criterion not in SCALES:
        raise BadInput(
            f"the judge {criterion!r} does not look at a single answer; use one of {', '.join(SCALES)} as --criterion"
        )
    return judge


class StoredScores:
    """A judge's scores of a collection's traces, requested as needed and stored in the collection."""

    def __init__(self, judge: JudgeSetup, folder: Path, minimum: float) -> None:
        self._judge, self._folder, self._minimum = judge, folder, minimum
        self._scores: dict[str, float | None] = {}
        self.judged = 0

    def rejection(
        self, traces: Iterable[Trace], stage: str, track: Callable[[int], object] = lambda _: None
    ) -> Callable[[Trace], Reason | None]:
        """A function that gives the reason to drop a trace: a score below the minimum, or none at all.

        Earlier scores of the same judge and model are reused.
        """
        candidates = [trace for trace in traces if find_problem(trace, stage) is None]
        key = (self._judge.judge.name, self._judge.model)
        with JsonlLog(self._folder / FOLDER / f"{stage}.jsonl", TypeAdapter(StoredScore)) as log:
            scores = {record.trace: record.score for record in log.records if (record.judge, record.model) == key}
            missing = [trace for trace in candidates if trace.id not in scores and self._can_judge(trace)]
            for start in range(0, len(missing), _BLOCK):
                block = missing[start : start + _BLOCK]
                for trace, score in zip(block, score_answers(self._judge, block), strict=True):
                    scores[trace.id] = score
                    log.append(StoredScore(trace.id, *key, score))
                track(len(block))
        self.judged += len(candidates)
        self._scores |= scores

        def reason(trace: Trace) -> Reason | None:
            score = scores.get(trace.id)
            if score is None:
                return "the judge gave no score"
            return f"the judge gave less than {self._minimum:g}" if score < self._minimum else None

        return reason

    def score(self, trace: Trace) -> Score:
        """The score of a trace that `rejection` asked about; None if there is none."""
        return self._scores.get(trace.id)

    def _can_judge(self, trace: Trace) -> bool:
        """Correctness can only be judged against gold."""
        return self._judge.judge.name != "correct" or trace.metadata.gold is not None


def score_answers(judge: JudgeSetup, traces: Sequence[Trace]) -> list[float | None]:
    """A score for each answer, in order."""
    verdicts = judge.ask([_judge_item(trace) for trace in traces])
    return [_mean_score(judge.judge, verdict) for verdict in verdicts]


def _judge_item(trace: Trace) -> Item:
    """The last message is the question, what precedes it is the dialogue, and both are what is known."""
    past = [message.content for message in trace.context if message.role != "system"]
    return {
        "question": trace.context[-1].content,
        "dialogue": "\n".join(filter(None, past)),
        "past": "\n".join(past),
        "gold": trace.metadata.gold or "",
        "answer": trace.answer,
    }


def _mean_score(judge: Judge, verdict: Verdict) -> float | None:
    scores = [verdict.scores[name] for name in SCALES[judge.name] if name in verdict.scores]
    return fmean(scores) if scores else None
