"""TeaFarm: counterfactual questions that test whether an agent remembers (Theanine, section 5), made from any episodes.

Past sessions are summarised in order; for each speaker a question is written that assumes something untrue, with its
right answer; then a sixth session that leads up to it. The result is a TeaBag episode. Does not depend on a data set's
format, a memory system or a judge.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from localmem.evaluation.answers import Answer, Case, Judgement
from localmem.evaluation.datasets.readers import build_session, set_role, speakers_of
from localmem.evaluation.datasets.teabag import TYPE
from localmem.evaluation.episodes import Dataset, Episode, Probe
from localmem.evaluation.judging.judges import RIGHT
from localmem.grounding.gate import is_usable
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, generate_usable, record, string
from localmem.prompts import render
from localmem.reporting.intervals import Estimate, estimate
from localmem.summaries.summarize import Summarizer
from localmem.text.dialogue import transcript
from localmem.types import Session

log = logging.getLogger(__name__)

SESSIONS = 5  # before the question (appendix D)
MIN_UTTERANCES, MAX_UTTERANCES = 10, 15  # of the session that leads up to it (Figure 28)

_MAX_TEXT = 200  # characters of a fact, a question, an answer, an utterance
_MAX_SENTENCES = 12  # of a session's summary

_MIN_DISTINCT = 0.75  # share of a leading session's utterances
_MIN_SHARE = 0.25  # of its utterances for either speaker

Utterance = tuple[str, str]  # speaker, text


@dataclass(frozen=True, slots=True)
class Question:
    """A question of `asker` that assumes something untrue, the `fact` that it contradicts, and the right answer."""

    asker: str
    replier: str
    fact: str
    question: str
    answer: str


class Farm:
    """Makes TeaBag episodes. `counts` has how many were made, repaired and dropped, and why; safe for many threads."""

    def __init__(self, llm: LLM, *, sessions: int = SESSIONS) -> None:
        self._llm = llm
        self._sessions = sessions
        self._summarizer = Summarizer(llm, prompt="theanine/summarize", limit=_MAX_SENTENCES)
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()

    def make(self, episode: Episode) -> Episode | None:
        """The episode's first sessions with a question by each speaker; None if neither question was usable."""
        counts: Counter[str] = Counter()
        result, reason = self._make(episode, counts)
        if result is None:
            log.warning("episode %s: %s; it is left out", episode.id, reason)
            counts[f"episodes left out: {reason}"] += 1
        with self._lock:
            self.counts += counts
        return result

    def _make(self, episode: Episode, counts: Counter[str]) -> tuple[Episode | None, str]:
        """The episode, or the reason why there is none."""
        sessions = episode.sessions[: self._sessions]
        speakers = speakers_of(sessions)
        if len(speakers) != 2:
            return None, f"{len(speakers)} speakers instead of two"
        summaries = [self._summarizer(session.turns) for session in sessions]
        if not any(summaries):
            return None, "nothing to summarise"
        questions = write_questions(self._llm, speakers, summaries, counts)
        leads = write_leads(self._llm, questions, sessions[-1], counts)
        pairs = zip(questions, leads, strict=True)
        probes = tuple(_probe(episode.id, question, lead, sessions[-1]) for question, lead in pairs if lead)
        counts["questions made"] += len(probes)
        return (Episode(episode.id, episode.half, sessions, probes), "") if probes else (None, "no usable question")


def write_questions(
    llm: LLM, speakers: Sequence[str], summaries: Sequence[Sequence[str]], counts: Counter[str]
) -> list[Question]:
    """One question by each of two speakers, from the summaries of all sessions in order (Figure 27)."""
    text = "\n\n".join(
        f"Conversation {number}:\n" + "\n".join(f"- {sentence}" for sentence in sentences)
        for number, sentences in enumerate(summaries, start=1)
        if sentences
    )
    form = answer_format(fact=string(_MAX_TEXT), question=string(_MAX_TEXT), answer=string(_MAX_TEXT))
    pairs = [(speakers[0], speakers[1]), (speakers[1], speakers[0])]
    prompts = [render("teafarm/question", form=form, asker=pair[0], other=pair[1], summaries=text) for pair in pairs]
    questions = []
    replies = generate_usable(llm, prompts, counts)
    for (asker, replier), prompt, reply in zip(pairs, prompts, replies, strict=True):
        fields = {name: " ".join(value.split()) for name, value in json.loads(reply.text).items()} if reply else {}
        if fields and all(is_usable(prompt, fields[name]) for name in ("fact", "question", "answer")):
            questions.append(Question(asker, replier, **fields))
        else:
            counts["questions dropped: missing, or copied from the instructions"] += 1
    return questions


def write_leads(
    llm: LLM, questions: Sequence[Question], last: Session, counts: Counter[str]
) -> list[tuple[Utterance, ...] | None]:
    """For each question the session that leads up to it and ends with it; None if it cannot be repaired (Figure 28)."""
    prompts = []
    for question in questions:
        asker, other = question.asker, question.replier
        items = record(speaker={"type": "string", "enum": [asker, other]}, text=string(_MAX_TEXT))
        form = answer_format(
            utterances={"type": "array", "items": items, "minItems": MIN_UTTERANCES, "maxItems": MAX_UTTERANCES}
        )
        inputs = {"asker": asker, "other": other, "dialogue": transcript(last.turns), "question": question.question}
        prompts.append(render("teafarm/lead", form=form, **inputs))
    leads: list[tuple[Utterance, ...] | None] = []
    for question, reply in zip(questions, generate_usable(llm, prompts, counts), strict=True):
        utterances = json.loads(reply.text)["utterances"] if reply else []
        leads.append(repair_lead([(item["speaker"], item["text"]) for item in utterances], question, counts))
    return leads


def repair_lead(
    utterances: Sequence[Utterance], question: Question, counts: Counter[str]
) -> tuple[Utterance, ...] | None:
    """The session, repaired so that the asker's question ends it; None if it is still unusable.

    What follows the question is cut off. A missing question replaces the asker's last words or follows the other's. Of
    more than 15 utterances the first are cut off.
    """
    clean = [(speaker, " ".join(text.split()).removeprefix(f"{speaker}:").strip()) for speaker, text in utterances]
    lead = _end_with_question([utterance for utterance in clean if utterance[1]], question, counts)
    if len(lead) > MAX_UTTERANCES:
        counts["leading sessions shortened"] += 1
        lead = lead[-MAX_UTTERANCES:]
    if problem := _problem(lead):
        counts[f"questions dropped: a leading session {problem}"] += 1
        return None
    return tuple(lead)


def split_by_replier(dataset: Dataset) -> Dataset:
    """Every question as an episode of its own, in which its asker is the user and the other speaker the assistant.

    The agent speaks for the replier (section 5.1), so it remembers all sessions from that side. It is not told that the
    question is about the past: it ends a chat.
    """
    episodes = []
    for episode in dataset.episodes:
        for probe in episode.probes:
            sessions = tuple(
                replace(session, turns=tuple(set_role(turn, probe.speaker) for turn in session.turns))
                for session in episode.sessions
            )
            name = f"{episode.id}@{probe.speaker}"
            episodes.append(Episode(name, episode.half, sessions, (replace(probe, kind="next"),)))
    return replace(dataset, episodes=tuple(episodes))


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """How often one system was not misled. `abstained` counts answers that admit not knowing, which is no success.

    Neither is a failed answer or one without a verdict; `failed` and `unjudged` count them.
    """

    system: str
    questions: int
    rate: Estimate
    abstained: int
    failed: int
    unjudged: int


def success_rates(
    systems: Sequence[str], answers: Iterable[Answer], judgements: Iterable[Judgement]
) -> list[SuccessRate]:
    """The success rate of each system, from its answers and one judge's verdicts on them (Table 4)."""
    verdicts = {judgement.case: judgement for judgement in judgements}
    by_system: dict[str, list[tuple[Answer, Judgement | None]]] = {system: [] for system in systems}
    for answer in answers:
        by_system.get(answer.work.system, []).append((answer, verdicts.get(Case(answer.work, answer.probe))))
    return [
        SuccessRate(
            system=system,
            questions=len(pairs),
            rate=estimate(
                [verdict.scores.get(RIGHT, 0.0) if verdict else 0.0 for _, verdict in pairs],
                [answer.work.episode for answer, _ in pairs],
            ),
            abstained=sum(verdict is not None and verdict.label == "abstained" for _, verdict in pairs),
            failed=sum(bool(answer.error) for answer, _ in pairs),
            unjudged=sum(not answer.error and not (verdict and verdict.scores) for answer, verdict in pairs),
        )
        for system, pairs in by_system.items()
        if pairs
    ]


def _end_with_question(utterances: Sequence[Utterance], question: Question, counts: Counter[str]) -> list[Utterance]:
    last = (question.asker, question.question)
    target = question.asker, _letters(question.question)
    places = [place for place, (speaker, text) in enumerate(utterances) if (speaker, _letters(text)) == target]
    if places:
        if places[0] < len(utterances) - 1:
            counts["leading sessions cut off after the question"] += 1
        return [*utterances[: places[0]], last]
    if utterances and utterances[-1][0] == question.asker:
        counts["leading sessions whose last words became the question"] += 1
        return [*utterances[:-1], last]
    if utterances:
        counts["leading sessions with the question appended"] += 1
    return [*utterances, last]


def _problem(lead: Sequence[Utterance]) -> str:
    """Why a session that ends with its question is unusable; "" if it is usable.

    Small models repeat one sentence, or give one speaker all the lines.
    """
    if len(lead) < MIN_UTTERANCES:
        return f"of fewer than {MIN_UTTERANCES} utterances"
    if len({_letters(text) for _, text in lead}) < len(lead) * _MIN_DISTINCT:
        return "that repeats itself"
    shares = Counter(speaker for speaker, _ in lead)
    if len(shares) < 2 or min(shares.values()) < len(lead) * _MIN_SHARE:
        return "of one speaker"
    return ""


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _probe(name: str, question: Question, lead: Sequence[Utterance], last: Session) -> Probe:
    """The question as a probe, a day after the last session; the replier is the assistant."""
    key = f"{name}/{question.asker}"
    dialogue = build_session(key, lead[:-1], question.asker, last.turns[-1].time + timedelta(days=1)).turns
    return Probe(
        id=key,
        question=question.question,
        answer=question.answer,
        type=TYPE,
        time=dialogue[-1].time + timedelta(seconds=1),
        dialogue=dialogue,
        speaker=question.replier,
    )
