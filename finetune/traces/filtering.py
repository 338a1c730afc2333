"""Filtering of traces: drops what a student should not learn and divides conversations into parts, counting both.

A conversation is in one part of every division. Facts of a text are approximated by words: a fact is a sentence, and
those of a JSON answer are in its strings. A paraphrase with other words counts as missing, and a distortion with the
same words as present: the figures compare models, they prove nothing. A local judge may score answers too, one at a
time; its scores are stored, so that no answer is judged twice. Does not depend on any model.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import jsonschema  # type: ignore[import-untyped]  # its stubs are a separate package
from pydantic import TypeAdapter

from finetune.traces.trace import Trace
from localmem.errors import BadInput
from localmem.evaluation.answers import JudgeSetup
from localmem.evaluation.judging.judges import Item, Judge, get_judge
from localmem.evaluation.judging.verdicts import Verdict
from localmem.evaluation.metrics.text import match_sentences, rouge_similarities
from localmem.files import JsonlLog
from localmem.text.parse import sentences

Part = Literal["train", "valid", "test"]
Reason = str

GROUNDED = 0.5  # share of a text's content words that must occur in its source
PARTS: tuple[Part, ...] = ("train", "valid", "test")
TEXT_STAGES = frozenset({"summarize", "refine", "blend", "respond", "day", "events", "compress"})

_WORD = re.compile(r"\w+")
_LONG = 4  # letters from which a word counts as a content word


@dataclass(frozen=True, slots=True)
class FilteredTraces:
    """The remaining traces by part, and the number of dropped ones by reason."""

    parts: Mapping[Part, tuple[Trace, ...]]
    dropped: Mapping[Reason, int] = field(default_factory=dict)


def filter_traces(
    traces: Iterable[Trace],
    stage: str,
    *,
    seed: int = 0,
    reject: Callable[[Trace], Reason | None] = lambda _: None,
) -> FilteredTraces:
    """The traces that are complete, well-formed, grounded and new, divided 80 : 10 : 10 by conversation.

    `reject` may give a reason to drop a trace that passes all other checks. Raises BadInput if nothing remains.
    """
    parts: dict[Part, list[Trace]] = {part: [] for part in PARTS}
    dropped: Counter[Reason] = Counter()
    ids: set[str] = set()
    for trace in traces:
        reason = "duplicate" if trace.id in ids else find_problem(trace, stage) or reject(trace)
        ids.add(trace.id)
        if reason:
            dropped[reason] += 1
        else:
            parts[part_of(trace, seed)].append(trace)
    if not any(parts.values()):
        raise BadInput(f"none of {len(ids)} traces of {stage!r} can be learned from ({dict(dropped)}); collect more")
    return FilteredTraces({part: tuple(remaining) for part, remaining in parts.items()}, dict(dropped))


def part_of(trace: Trace, seed: int = 0) -> Part:
    """The part of the trace's conversation, whatever system read it."""
    work = trace.metadata.work
    number = sha256(f"{seed}/{work.dataset}/{work.episode}".encode()).digest()[0]
    return "train" if number < 205 else "valid" if number < 230 else "test"  # of 256


def find_problem(trace: Trace, stage: str) -> Reason | None:
    """Why a student should not learn this trace, or None."""
    if not trace.answer.strip():
        return "empty"
    if trace.metadata.finish == "length":
        return "cut short"
    if not is_valid(trace.answer, trace):
        return "wrong format"
    if stage in TEXT_STAGES and groundedness(trace) < GROUNDED:
        return "not grounded in the prompt"
    return None


def is_valid(answer: str, trace: Trace) -> bool:
    """Whether an answer is one of the trace's options, or fits its schema."""
    metadata = trace.metadata
    if metadata.options:
        return answer in metadata.options
    if metadata.schema is None:
        return True
    try:
        jsonschema.validate(json.loads(answer), metadata.schema)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def groundedness(trace: Trace) -> float:
    """Share of the answer's content words that occur in the prompt; 1 for an answer without any."""
    return overlap(trace.answer, [message.content for message in trace.context])


class FactScores(NamedTuple):
    """Share of an answer's facts that its source supports, and share of the expected facts that it states."""

    precision: float
    recall: float


def score_facts(answer: str, expected: str, source: str) -> FactScores:
    """Compare an answer with the expected one, both derived from a source; expected facts outside it do not count.

    An answer without any fact has precision 1; recall is 1 if no fact is expected.
    """
    facts, targets = facts_of(answer), [fact for fact in facts_of(expected) if is_supported(fact, source)]
    supported = sum(is_supported(fact, source) for fact in facts)
    compared = facts and targets
    recall = match_sentences(rouge_similarities(facts, targets)).recall if compared else float(not targets)
    return FactScores(supported / len(facts) if facts else 1.0, recall)


def facts_of(answer: str) -> list[str]:
    """The sentences of an answer, without duplicates."""
    return list(dict.fromkeys(sentence for text in texts_of(answer) for sentence in sentences(text)))


def texts_of(answer: str) -> list[str]:
    """The strings of a JSON answer, in order; any other answer is one text."""
    try:
        value = json.loads(answer)
    except ValueError:
        return [answer]
    return list(_strings(value)) if isinstance(value, dict | list) else [answer]


def is_supported(fact: str, source: str) -> bool:
    """Whether every name and number of the fact and half of its content words occur in the source."""
    words = {word.lower() for word in _WORD.findall(source)}
    return names_and_numbers(fact) <= words and overlap(fact, [source]) >= GROUNDED


def names_and_numbers(fact: str) -> set[str]:
    """Numbers, and capitalised words that do not open the sentence, in lower case."""
    words = _WORD.findall(fact)
    return {word.lower() for word in words if word.isdigit()} | {
        word.lower() for word in words[1:] if word[0].isupper() and len(word) > 1
    }


def overlap(text: str, sources: Sequence[str]) -> float:
    """Share of a text's content words that occur in the sources; 1 for a text without any."""
    words = content_words([text])
    return len(words & content_words(sources)) / len(words) if words else 1.0


def content_words(texts: Sequence[str]) -> set[str]:
    """Numbers, and words of four letters or more, in lower case."""
    return {word.lower() for text in texts for word in _WORD.findall(text) if len(word) >= _LONG or word.isdigit()}


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)


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

        def reason(trace: Trace) -> Reason | None:
            score = scores.get(trace.id)
            if score is None:
                return "the judge gave no score"
            return f"the judge gave less than {self._minimum:g}" if score < self._minimum else None

        return reason

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
