"""TeaFarm: questions are written, led up to, checked and mended; and the shipped set is sound."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from localmem.evaluation import DATA
from localmem.evaluation.answers import Answer, Case, Judgement, Work
from localmem.evaluation.datasets import teabag
from localmem.evaluation.datasets.readers import build_session, speakers_of
from localmem.evaluation.episodes import Dataset, Episode
from localmem.evaluation.teafarm import (
    MAX_UTTERANCES,
    MIN_UTTERANCES,
    Farm,
    Question,
    Utterance,
    repair_lead,
    split_by_replier,
    success_rates,
)
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Completion, Prompt, Session
from tests.fakes import START

QUESTION_OF_ANA = Question("Ana", "Ben", "Ben sold his boat.", "Is your boat dry?", "I sold it.")


def chat(count: int, *, last: Utterance | None = None) -> list[Utterance]:
    """Ana and Ben in turn, so that Ben says the last of an even number."""
    utterances = [(("Ana", "Ben")[n % 2], f"Word {n}.") for n in range(count)]
    return [*utterances, last] if last else utterances


def repair(utterances: list[Utterance], counts: Counter[str] | None = None) -> tuple[Utterance, ...] | None:
    return repair_lead(utterances, QUESTION_OF_ANA, Counter() if counts is None else counts)


QUESTION: Utterance = ("Ana", "Is your boat dry?")


def test_a_session_that_ends_in_the_question_stays_as_it_is() -> None:
    counts: Counter[str] = Counter()
    utterances = chat(10, last=QUESTION)
    assert repair(utterances, counts) == tuple(utterances)
    assert not counts


def test_small_slips_of_the_question_are_set_right() -> None:
    lead = repair(chat(10, last=("Ana", "Ana: is your  boat dry")))
    assert lead is not None
    assert lead[-1] == QUESTION


def test_what_follows_the_question_is_cut_off() -> None:
    counts: Counter[str] = Counter()
    lead = repair([*chat(10, last=QUESTION), ("Ben", "I sold it."), ("Ana", "Oh!")], counts)
    assert lead == tuple(chat(10, last=QUESTION))
    assert counts == {"leading sessions cut off after the question": 1}


def test_a_missing_question_takes_the_place_of_the_askers_last_words_or_comes_behind_the_others() -> None:
    counts: Counter[str] = Counter()
    assert repair(chat(11), counts) == tuple(chat(10, last=QUESTION))  # Ana spoke last
    assert repair(chat(10), counts) == tuple(chat(10, last=QUESTION))  # Ben did
    assert counts == {
        "leading sessions whose last words became the question": 1,
        "leading sessions with the question appended": 1,
    }


def test_the_question_from_the_wrong_mouth_is_asked_by_the_asker() -> None:
    lead = repair([*chat(9), ("Ben", "Is your boat dry?")])
    assert lead is not None
    assert lead[-1] == QUESTION


def test_a_long_session_loses_its_beginning_and_a_short_one_is_dropped() -> None:
    counts: Counter[str] = Counter()
    long = repair(chat(20), counts)
    assert long is not None
    assert (len(long), long[-1]) == (MAX_UTTERANCES, QUESTION)
    assert repair(chat(8), counts) is None
    assert repair(chat(9), counts) is None  # the question takes the place of the ninth
    assert counts["leading sessions shortened"] == 1
    assert counts[f"questions dropped: a leading session of fewer than {MIN_UTTERANCES} utterances"] == 2


def test_a_session_of_one_speaker_is_dropped() -> None:
    counts: Counter[str] = Counter()
    assert repair([("Ana", f"Word {n}.") for n in range(12)], counts) is None
    assert repair([("Ben", f"Word {n}.") for n in range(12)], counts) is None  # Ana has the question and nothing else
    assert counts["questions dropped: a leading session of one speaker"] == 2
    assert repair([], counts) is None


def test_a_session_that_repeats_itself_is_dropped() -> None:
    counts: Counter[str] = Counter()
    assert repair([(who, "How are you?") for who in ("Ana", "Ben") * 6], counts) is None
    assert counts["questions dropped: a leading session that repeats itself"] == 1


# -- the whole of it


def episode(name: str = "e1", count: int = 6) -> Episode:
    def session(number: int) -> Session:
        utterances = ((who, f"Talk {number} {n}") for n, who in enumerate(("Ana", "Ben") * 2))
        return build_session(f"{name}/{number}", utterances, "Ana", START + timedelta(days=number))

    return Episode(name, "report", tuple(session(number) for number in range(1, count + 1)), ())


def writer(**changed: Callable[[Prompt], str]) -> ScriptedLLM:
    """A backbone that does everything right, but for what is changed."""

    def lead(prompt: Prompt) -> str:
        question = prompt.messages[1].content.partition("Last words, said by ")[2]
        asker, _, words = question.partition(": ")
        utterances = [*chat(10), (asker, words.partition("\n")[0])]
        return json.dumps({"utterances": [{"speaker": who, "text": text} for who, text in utterances]})

    def question(prompt: Prompt) -> str:
        asker = prompt.messages[1].content.partition("Asker: ")[2].partition("\n")[0]
        return json.dumps({"fact": f"A fact for {asker}.", "question": f"{asker} asks?", "answer": "No, never."})

    utterances = {
        "summarize": lambda prompt: json.dumps({"memories": [f"They said {prompt.messages[1].content[-30:]!r}."]}),
        "question": question,
        "lead": lead,
        **changed,
    }
    return ScriptedLLM(lambda prompt: utterances[prompt.name.partition("/")[2]](prompt))


def test_five_sessions_become_a_question_of_each_speaker() -> None:
    requests: list[Prompt] = []
    inner = writer()

    class Seen(ScriptedLLM):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            requests.extend(prompts)
            return inner.generate(prompts)

    farm = Farm(Seen(lambda _: ""))
    result = farm.make(episode())
    assert result is not None
    assert [session.id for session in result.sessions] == [f"e1/{number}" for number in range(1, 6)]
    ana, ben = result.probes
    assert (ana.question, ana.answer, ana.speaker) == ("Ana asks?", "No, never.", "Ben")
    assert (ben.question, ben.speaker) == ("Ben asks?", "Ana")
    assert [turn.role for turn in ana.dialogue if turn.speaker == "Ana"] == ["user"] * 5
    assert [turn.role for turn in ben.dialogue if turn.speaker == "Ana"] == ["assistant"] * 5
    assert ana.time is not None
    assert ana.time > result.sessions[-1].turns[-1].time
    assert farm.counts["questions made"] == 2
    text = next(p for p in requests if p.name == "teafarm/question").messages[1].content
    places = [text.index(f"Conversation {number}:") for number in range(1, 6)]
    assert places == sorted(places)  # in order, so that the latest state of things is last
    led = next(p for p in requests if p.name == "teafarm/lead").messages[1].content
    assert "Talk 5 0" in led
    assert "Talk 4 0" not in led


def test_what_was_made_is_read_back(tmp_path: Path) -> None:
    result = Farm(writer()).make(episode())
    assert result is not None
    path = tmp_path / "set.jsonl"
    teabag.write(path, [result], "by hand")
    (again,) = teabag.read(path).episodes
    assert [(item.question, item.answer, item.speaker) for item in again.probes] == [
        (item.question, item.answer, item.speaker) for item in result.probes
    ]
    assert [turn.text for turn in again.probes[0].dialogue] == [turn.text for turn in result.probes[0].dialogue]
    assert len(again.sessions) == 5


def test_a_question_that_cannot_be_used_leaves_the_other() -> None:
    def cut(prompt: Prompt) -> str:
        return '{"fact": "A' if "Asker: Ana" in prompt.messages[1].content else _question("Ben sold it?")

    farm = Farm(writer(question=cut))
    result = farm.make(episode())
    assert result is not None
    assert [probe.question for probe in result.probes] == ["Ben sold it?"]
    assert farm.counts["teafarm/question"] == 1
    assert farm.counts["questions dropped: missing, or copied from the instructions"] == 1


def test_the_instructions_example_is_no_question() -> None:
    farm = Farm(writer(question=lambda _: _question("Could you drive me to the station in your car tomorrow, Ben?")))
    assert farm.make(episode()) is None
    assert farm.counts["questions dropped: missing, or copied from the instructions"] == 2
    assert farm.counts["episodes left out: no usable question"] == 1


def test_a_leading_session_that_was_cut_off_drops_its_question() -> None:
    farm = Farm(writer(lead=lambda _: '{"utterances": ['))
    assert farm.make(episode()) is None
    assert farm.counts["teafarm/lead"] == 2


def test_episodes_without_two_speakers_or_without_a_word_are_left_out() -> None:
    alone = episode()
    turns = tuple(replace(turn, speaker="Ana") for turn in alone.sessions[0].turns)
    farm = Farm(writer(summarize=lambda _: '{"memories": []}'))
    assert farm.make(replace(alone, sessions=(Session("e1/1", turns),))) is None
    assert farm.make(episode("e2")) is None
    assert farm.counts == {
        "episodes left out: 1 speakers instead of two": 1,
        "episodes left out: nothing to summarise": 1,
    }


def test_each_question_is_asked_of_a_memory_that_heard_it_from_that_side() -> None:
    result = Farm(writer()).make(episode())
    assert result is not None
    data = split_by_replier(Dataset("teabag", "0" * 64, (result,)))
    ana, ben = data.episodes
    assert (ana.id, ben.id) == ("e1@Ben", "e1@Ana")  # who answers
    for item, asker in ((ana, "Ana"), (ben, "Ben")):
        assert {turn.speaker for session in item.sessions for turn in session.turns if turn.role == "user"} == {asker}
        (probe,) = item.probes
        assert probe.kind == "next"  # the agent is not told that it is being tested


def _question(words: str) -> str:
    return json.dumps({"fact": "Ben sold his boat.", "question": words, "answer": "No, never."})


# -- success


def _answer(system: str, probe: str, error: str = "") -> Answer:
    return Answer(
        Work(system, "teabag", f"e{int(probe) % 2}"), probe, "next", "counterfactual", "s", "Q?", ("A",), error=error
    )


def _verdict(system: str, probe: str, label: str | None) -> Judgement:
    scores = {"right": float(label == "correct")} if label else {}
    case = Case(Work(system, "teabag", f"e{int(probe) % 2}"), probe)
    return Judgement("correct", "m", "", believable=False, case=case, label=label, scores=scores)


def test_success_is_the_share_of_all_questions_that_were_answered_rightly() -> None:
    answers = [_answer("a", str(n)) for n in range(4)] + [_answer("a", "4", "failed"), _answer("b", "0")]
    labels = ["correct", "incorrect", "abstained", None]
    verdicts = [_verdict("a", str(n), label) for n, label in enumerate(labels)]
    rates = success_rates(["b", "a", "c"], answers, [*verdicts, _verdict("b", "0", "correct")])
    assert [item.system for item in rates] == ["b", "a"]
    b, a = rates
    assert (a.questions, a.rate.mean, a.abstained, a.failed, a.unjudged) == (5, 0.2, 1, 1, 1)
    assert a.rate.low is not None
    assert a.rate.high is not None
    assert a.rate.low <= 0.2 <= a.rate.high
    assert (b.rate.mean, b.failed, b.unjudged) == (1.0, 0, 0)


# -- the shipped set

SHIPPED = teabag.read(DATA / "teafarm.json").episodes


def test_three_episodes_of_five_sessions_are_shipped() -> None:
    assert [len(item.sessions) for item in SHIPPED] == [5, 5, 5]
    for item in SHIPPED:
        times = [turn.time for session in item.sessions for turn in session.turns]
        assert times == sorted(times)


@pytest.mark.parametrize("item", SHIPPED, ids=lambda item: item.id)
def test_each_shipped_question_is_led_up_to(item: Episode) -> None:
    speakers = speakers_of(item.sessions)
    assert {probe.speaker for probe in item.probes} == set(speakers)
    for probe in item.probes:
        assert MIN_UTTERANCES <= len(probe.dialogue) + 1 <= MAX_UTTERANCES
        assert probe.dialogue[-1].speaker == probe.speaker  # so that the asker comes next
        assert speakers_of([Session("s", probe.dialogue)]) in (speakers, speakers[::-1])
        assert probe.answer
