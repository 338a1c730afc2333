"""TeaFarm: counterfactual questions that test whether an agent remembers (Theanine, section 5), made of any episodes.

Past sessions are summarised in order; for each speaker a question is written that takes something for true which is
not, with its right answer; a sixth session is written that leads up to it. What comes out is a TeaBag episode. Knows
no data set's format, no memory system and no judge.
"""

import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from localmem.evaluation.answers import Answer
from localmem.evaluation.datasets.dialogues import as_heard_by
from localmem.evaluation.datasets.dialogues import session as dated_session
from localmem.evaluation.episodes import Dataset, Episode, Probe
from localmem.evaluation.judgements import Case, Judgement
from localmem.evaluation.judging.judges import RIGHT
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, generate_usable, is_informative, record, string
from localmem.prompts import render
from localmem.reporting.bootstrap import Estimate, estimate
from localmem.text.dialogue import transcript
from localmem.text.summarize import Summarizer
from localmem.types import JsonSchema, Session

log = logging.getLogger(__name__)

SESSIONS = 5  # before the question (appendix D)
FEWEST, MOST = 10, 15  # utterances of the session that leads up to it (Figure 28)
TYPE = "counterfactual"

_LONGEST = 200  # characters of a fact, a question, an answer, an utterance
_SENTENCES = 12  # of a session's summary

_DIFFERENT = 0.75  # of a leading session's utterances, at least
_SHARE = 0.25  # of them that either speaker has, at least

Said = tuple[str, str]  # speaker, text


@dataclass(frozen=True, slots=True)
class Question:
    """What `asker` says as if something untrue were true, the `fact` that it goes against, and the right answer."""

    asker: str
    replier: str
    fact: str
    question: str
    answer: str


class Farm:
    """Makes TeaBag episodes. `counted` says how many were made, mended and dropped, and why; safe for many threads."""

    def __init__(self, llm: LLM, *, sessions: int = SESSIONS) -> None:
        self._llm = llm
        self._sessions = sessions
        self._summarizer = Summarizer(llm, prompt="theanine/summarize", limit=_SENTENCES)
        self._guard = threading.Lock()
        self.counted: Counter[str] = Counter()

    def make(self, episode: Episode) -> Episode | None:
        """The episode's first sessions with a question of each speaker; None where neither question came out."""
        counted: Counter[str] = Counter()
        made, why = self._made(episode, counted)
        if made is None:
            log.warning("episode %s: %s; it is left out", episode.id, why)
            counted[f"episodes left out: {why}"] += 1
        with self._guard:
            self.counted += counted
        return made

    def _made(self, episode: Episode, counted: Counter[str]) -> tuple[Episode | None, str]:
        """The episode, or why there is none."""
        sessions = episode.sessions[: self._sessions]
        speakers = speakers_of(sessions)
        if len(speakers) != 2:
            return None, f"{len(speakers)} speakers in place of two"
        summaries = [self._summarizer(session.turns) for session in sessions]
        if not any(summaries):
            return None, "nothing to summarise"
        found = questions(self._llm, speakers, summaries, counted)
        led = zip(found, leads(self._llm, found, sessions[-1], counted), strict=True)
        probes = tuple(_probe(episode.id, asked, said, sessions[-1]) for asked, said in led if said)
        counted["questions made"] += len(probes)
        return (Episode(episode.id, episode.half, sessions, probes), "") if probes else (None, "no question came out")


def speakers_of(sessions: Sequence[Session]) -> tuple[str, ...]:
    """Everybody who speaks, in the order in which they begin."""
    return tuple(dict.fromkeys(turn.speaker for session in sessions for turn in session.turns))


def questions(
    llm: LLM, speakers: Sequence[str], summaries: Sequence[Sequence[str]], counted: Counter[str]
) -> list[Question]:
    """One question of each of two speakers, from the summaries of all sessions in order (Figure 27)."""
    shown = "\n\n".join(
        f"Conversation {number}:\n" + "\n".join(f"- {one}" for one in sentences)
        for number, sentences in enumerate(summaries, start=1)
        if sentences
    )
    form = answer_format(fact=string(_LONGEST), question=string(_LONGEST), answer=string(_LONGEST))
    sides = [(speakers[0], speakers[1]), (speakers[1], speakers[0])]
    prompts = [
        render("teafarm/question", form=form, asker=asker, other=other, summaries=shown) for asker, other in sides
    ]
    found = []
    for (asker, other), prompt, given in zip(sides, prompts, generate_usable(llm, prompts, counted), strict=True):
        held = {name: " ".join(value.split()) for name, value in json.loads(given.text).items()} if given else {}
        if held and all(is_informative(held[name], prompt) for name in ("fact", "question", "answer")):
            found.append(Question(asker, other, **held))
        else:
            counted["questions dropped: not written, or the instructions' own"] += 1
    return found


def leads(llm: LLM, asked: Sequence[Question], last: Session, counted: Counter[str]) -> list[tuple[Said, ...] | None]:
    """For each question the session that leads up to it and ends in it; None where it cannot be mended (Figure 28)."""
    prompts = [
        render(
            "teafarm/lead",
            form=_lead_form(one),
            asker=one.asker,
            other=one.replier,
            dialogue=transcript(last.turns),
            question=one.question,
        )
        for one in asked
    ]
    led: list[tuple[Said, ...] | None] = []
    for one, given in zip(asked, generate_usable(llm, prompts, counted), strict=True):
        said = [(said["speaker"], said["text"]) for said in json.loads(given.text)["utterances"]] if given else []
        led.append(settled(said, one, counted))
    return led


def settled(said: Sequence[Said], asked: Question, counted: Counter[str]) -> tuple[Said, ...] | None:
    """The session, mended so that the asker's question ends it; None where it is none for all that.

    What follows the question is cut off. Where the question is missing, it takes the place of the asker's last words or
    is put behind the other's. Of more than 15 utterances the first are cut off.
    """
    clean = [(speaker, " ".join(words.split()).removeprefix(f"{speaker}:").strip()) for speaker, words in said]
    ended = _ending([one for one in clean if one[1]], asked, counted)
    if len(ended) > MOST:
        counted["leading sessions shortened"] += 1
        ended = ended[-MOST:]
    if wrong := _unusable(ended):
        counted[f"questions dropped: a leading session {wrong}"] += 1
        return None
    return tuple(ended)


def sided(data: Dataset) -> Dataset:
    """Every question as an episode of its own, in which its asker is the user and the other speaker the assistant.

    The agent speaks for the one who is asked (section 5.1), so it remembers all sessions from that side. It is not told
    that it is being asked about the past: the question ends a chat.
    """
    episodes = tuple(
        Episode(
            f"{episode.id}@{probe.speaker}",
            episode.half,
            tuple(
                replace(session, turns=tuple(as_heard_by(probe.speaker, turn) for turn in session.turns))
                for session in episode.sessions
            ),
            (replace(probe, kind="next"),),
        )
        for episode in data.episodes
        for probe in episode.probes
    )
    return replace(data, episodes=episodes)


@dataclass(frozen=True, slots=True)
class Success:
    """How often one system was not fooled. `abstained` are answers that own up to not knowing: no success, no error.

    A failed answer and one without a verdict count as no success; `failed` and `unjudged` say how many.
    """

    system: str
    questions: int
    rate: Estimate
    abstained: int
    failed: int
    unjudged: int


def successes(
    systems: Sequence[str], answers: Iterable[Answer], judgements: Iterable[Judgement], *, seed: int = 0
) -> list[Success]:
    """The success rate of each system, from its answers and one judge's verdicts on them (Table 4)."""
    verdicts = {one.case: one for one in judgements}
    given: dict[str, list[Answer]] = {system: [] for system in systems}
    for one in answers:
        given.get(one.work.system, []).append(one)
    return [_success(system, held, verdicts, seed) for system, held in given.items() if held]


def _success(system: str, given: Sequence[Answer], verdicts: Mapping[Case, Judgement], seed: int) -> Success:
    found = [verdicts.get(Case(one.work, one.probe)) for one in given]
    return Success(
        system=system,
        questions=len(given),
        rate=estimate([one.scores.get(RIGHT, 0.0) if one else 0.0 for one in found], seed=seed),
        abstained=sum(one is not None and one.label == "abstained" for one in found),
        failed=sum(bool(one.error) for one in given),
        unjudged=sum(not answer.error and not (one and one.scores) for answer, one in zip(given, found, strict=True)),
    )


def _ending(said: Sequence[Said], asked: Question, counted: Counter[str]) -> list[Said]:
    last = (asked.asker, asked.question)
    places = [place for place, one in enumerate(said) if one[0] == asked.asker and _same(one[1], asked.question)]
    if places:
        if places[0] < len(said) - 1:
            counted["leading sessions cut off behind the question"] += 1
        return [*said[: places[0]], last]
    if said and said[-1][0] == asked.asker:
        counted["leading sessions whose last words became the question"] += 1
        return [*said[:-1], last]
    if said:
        counted["leading sessions that the question was put behind"] += 1
    return [*said, last]


def _unusable(ended: Sequence[Said]) -> str:
    """What makes a session useless that ends in its question; "" where nothing does.

    Small models say one sentence again and again, or let one speaker say it all.
    """
    if len(ended) < FEWEST:
        return f"of fewer than {FEWEST} utterances"
    if len({_letters(words) for _, words in ended}) < len(ended) * _DIFFERENT:
        return "that repeats itself"
    shares = Counter(speaker for speaker, _ in ended)
    if len(shares) < 2 or min(shares.values()) < len(ended) * _SHARE:
        return "of one speaker"
    return ""


def _same(one: str, other: str) -> bool:
    return _letters(one) == _letters(other)


def _letters(words: str) -> str:
    return "".join(character for character in words.casefold() if character.isalnum())


def _lead_form(asked: Question) -> JsonSchema:
    speaker: Mapping[str, object] = {"type": "string", "enum": [asked.asker, asked.replier]}
    said = record(speaker=speaker, text=string(_LONGEST))
    return answer_format(utterances={"type": "array", "items": said, "minItems": FEWEST, "maxItems": MOST})


def _probe(name: str, asked: Question, said: Sequence[Said], last: Session) -> Probe:
    """The question as a probe, a day after the last session; the one who is asked is the assistant."""
    key = f"{name}/{asked.asker}"
    led = dated_session(key, said[:-1], asked.asker, last.turns[-1].time + timedelta(days=1)).turns
    return Probe(
        id=key,
        question=asked.question,
        answer=asked.answer,
        type=TYPE,
        time=led[-1].time + timedelta(seconds=1),
        evidence=(),
        sessions=(),
        dialogue=led,
        speaker=asked.replier,
    )
