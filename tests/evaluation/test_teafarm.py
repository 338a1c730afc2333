"""TeaFarm: questions are written, led up to, checked and mended; and the shipped set is sound."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from localmem.evaluation.answers import Answer, Work
from localmem.evaluation.datasets import teabag
from localmem.evaluation.datasets.dialogues import session as dated
from localmem.evaluation.episodes import Dataset, Episode
from localmem.evaluation.judgements import Case, Judgement
from localmem.evaluation.teafarm import FEWEST, MOST, Farm, Question, Said, settled, sided, speakers_of, successes
from localmem.llm.scripted import ScriptedLLM
from localmem.resources import resource
from localmem.types import Completion, Prompt, Session
from tests.fakes import START

ASKED = Question("Ana", "Ben", "Ben sold his boat.", "Is your boat dry?", "I sold it.")


def chat(count: int, *, last: Said | None = None) -> list[Said]:
    """Ana and Ben in turn, so that Ben says the last of an even number."""
    said = [(("Ana", "Ben")[n % 2], f"Word {n}.") for n in range(count)]
    return [*said, last] if last else said


def ended(said: list[Said], counted: Counter[str] | None = None) -> tuple[Said, ...] | None:
    return settled(said, ASKED, Counter() if counted is None else counted)


QUESTION: Said = ("Ana", "Is your boat dry?")


def test_a_session_that_ends_in_the_question_stays_as_it_is() -> None:
    counted: Counter[str] = Counter()
    said = chat(10, last=QUESTION)
    assert ended(said, counted) == tuple(said)
    assert not counted


def test_small_slips_of_the_question_are_set_right() -> None:
    told = ended(chat(10, last=("Ana", "Ana: is your  boat dry")))
    assert told is not None
    assert told[-1] == QUESTION


def test_what_follows_the_question_is_cut_off() -> None:
    counted: Counter[str] = Counter()
    told = ended([*chat(10, last=QUESTION), ("Ben", "I sold it."), ("Ana", "Oh!")], counted)
    assert told == tuple(chat(10, last=QUESTION))
    assert counted == {"leading sessions cut off behind the question": 1}


def test_a_missing_question_takes_the_place_of_the_askers_last_words_or_comes_behind_the_others() -> None:
    counted: Counter[str] = Counter()
    assert ended(chat(11), counted) == tuple(chat(10, last=QUESTION))  # Ana spoke last
    assert ended(chat(10), counted) == tuple(chat(10, last=QUESTION))  # Ben did
    assert counted == {
        "leading sessions whose last words became the question": 1,
        "leading sessions that the question was put behind": 1,
    }


def test_the_question_from_the_wrong_mouth_is_asked_by_the_asker() -> None:
    told = ended([*chat(9), ("Ben", "Is your boat dry?")])
    assert told is not None
    assert told[-1] == QUESTION


def test_a_long_session_loses_its_beginning_and_a_short_one_is_dropped() -> None:
    counted: Counter[str] = Counter()
    long = ended(chat(20), counted)
    assert long is not None
    assert (len(long), long[-1]) == (MOST, QUESTION)
    assert ended(chat(8), counted) is None
    assert ended(chat(9), counted) is None  # the question takes the place of the ninth
    assert counted["leading sessions shortened"] == 1
    assert counted[f"questions dropped: a leading session of fewer than {FEWEST} utterances"] == 2


def test_a_session_of_one_speaker_is_dropped() -> None:
    counted: Counter[str] = Counter()
    assert ended([("Ana", f"Word {n}.") for n in range(12)], counted) is None
    assert ended([("Ben", f"Word {n}.") for n in range(12)], counted) is None  # Ana has the question and nothing else
    assert counted["questions dropped: a leading session of one speaker"] == 2
    assert ended([], counted) is None


def test_a_session_that_repeats_itself_is_dropped() -> None:
    counted: Counter[str] = Counter()
    assert ended([(who, "How are you?") for who in ("Ana", "Ben") * 6], counted) is None
    assert counted["questions dropped: a leading session that repeats itself"] == 1


# -- the whole of it


def episode(name: str = "e1", count: int = 6) -> Episode:
    def session(number: int) -> Session:
        said = ((who, f"Talk {number} {n}") for n, who in enumerate(("Ana", "Ben") * 2))
        return dated(f"{name}/{number}", said, "Ana", START + timedelta(days=number))

    return Episode(name, "report", tuple(session(number) for number in range(1, count + 1)), ())


def writer(**changed: Callable[[Prompt], str]) -> ScriptedLLM:
    """A backbone that does everything right, but for what is changed."""

    def lead(prompt: Prompt) -> str:
        question = prompt.messages[1].content.partition("Last words, said by ")[2]
        asker, _, words = question.partition(": ")
        said = [*chat(10), (asker, words.partition("\n")[0])]
        return json.dumps({"utterances": [{"speaker": who, "text": text} for who, text in said]})

    def question(prompt: Prompt) -> str:
        asker = prompt.messages[1].content.partition("Asker: ")[2].partition("\n")[0]
        return json.dumps({"fact": f"A fact for {asker}.", "question": f"{asker} asks?", "answer": "No, never."})

    said = {
        "summarize": lambda prompt: json.dumps({"memories": [f"They said {prompt.messages[1].content[-30:]!r}."]}),
        "question": question,
        "lead": lead,
        **changed,
    }
    return ScriptedLLM(lambda prompt: said[prompt.name.partition("/")[2]](prompt))


def test_five_sessions_become_a_question_of_each_speaker() -> None:
    seen: list[Prompt] = []
    inner = writer()

    class Seen(ScriptedLLM):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            seen.extend(prompts)
            return inner.generate(prompts)

    farm = Farm(Seen(lambda _: ""))
    made = farm.make(episode())
    assert made is not None
    assert [session.id for session in made.sessions] == [f"e1/{number}" for number in range(1, 6)]
    ana, ben = made.probes
    assert (ana.question, ana.answer, ana.speaker) == ("Ana asks?", "No, never.", "Ben")
    assert (ben.question, ben.speaker) == ("Ben asks?", "Ana")
    assert [turn.role for turn in ana.dialogue if turn.speaker == "Ana"] == ["user"] * 5
    assert [turn.role for turn in ben.dialogue if turn.speaker == "Ana"] == ["assistant"] * 5
    assert ana.time is not None
    assert ana.time > made.sessions[-1].turns[-1].time
    assert farm.counted["questions made"] == 2
    shown = next(p for p in seen if p.name == "teafarm/question").messages[1].content
    places = [shown.index(f"Conversation {number}:") for number in range(1, 6)]
    assert places == sorted(places)  # in order, so that the latest state of things is last
    led = next(p for p in seen if p.name == "teafarm/lead").messages[1].content
    assert "Talk 5 0" in led
    assert "Talk 4 0" not in led


def test_what_was_made_is_read_back(tmp_path: Path) -> None:
    made = Farm(writer()).make(episode())
    assert made is not None
    path = tmp_path / "set.jsonl"
    teabag.write(path, [made], "by hand")
    (again,) = teabag.read(path).episodes
    assert [(one.question, one.answer, one.speaker) for one in again.probes] == [
        (one.question, one.answer, one.speaker) for one in made.probes
    ]
    assert [turn.text for turn in again.probes[0].dialogue] == [turn.text for turn in made.probes[0].dialogue]
    assert len(again.sessions) == 5


def test_a_question_that_cannot_be_used_leaves_the_other() -> None:
    def cut(prompt: Prompt) -> str:
        return '{"fact": "A' if "Asker: Ana" in prompt.messages[1].content else _question("Ben sold it?")

    farm = Farm(writer(question=cut))
    made = farm.make(episode())
    assert made is not None
    assert [probe.question for probe in made.probes] == ["Ben sold it?"]
    assert farm.counted["teafarm/question"] == 1
    assert farm.counted["questions dropped: not written, or the instructions' own"] == 1


def test_the_instructions_example_is_no_question() -> None:
    farm = Farm(writer(question=lambda _: _question("Could you drive me to the station in your car tomorrow, Ben?")))
    assert farm.make(episode()) is None
    assert farm.counted["questions dropped: not written, or the instructions' own"] == 2
    assert farm.counted["episodes left out: no question came out"] == 1


def test_a_leading_session_that_was_cut_off_drops_its_question() -> None:
    farm = Farm(writer(lead=lambda _: '{"utterances": ['))
    assert farm.make(episode()) is None
    assert farm.counted["teafarm/lead"] == 2


def test_episodes_without_two_speakers_or_without_a_word_are_left_out() -> None:
    alone = episode()
    turns = tuple(replace(turn, speaker="Ana") for turn in alone.sessions[0].turns)
    farm = Farm(writer(summarize=lambda _: '{"memories": []}'))
    assert farm.make(replace(alone, sessions=(Session("e1/1", turns),))) is None
    assert farm.make(episode("e2")) is None
    assert farm.counted == {
        "episodes left out: 1 speakers in place of two": 1,
        "episodes left out: nothing to summarise": 1,
    }


def test_each_question_is_asked_of_a_memory_that_heard_it_from_that_side() -> None:
    made = Farm(writer()).make(episode())
    assert made is not None
    data = sided(Dataset("teabag", "0" * 64, (made,)))
    ana, ben = data.episodes
    assert (ana.id, ben.id) == ("e1@Ben", "e1@Ana")  # who answers
    for one, asker in ((ana, "Ana"), (ben, "Ben")):
        assert {turn.speaker for session in one.sessions for turn in session.turns if turn.role == "user"} == {asker}
        (probe,) = one.probes
        assert probe.kind == "next"  # the agent is not told that it is being tested


def _question(words: str) -> str:
    return json.dumps({"fact": "Ben sold his boat.", "question": words, "answer": "No, never."})


# -- success


def _answer(system: str, probe: str, error: str = "") -> Answer:
    return Answer(Work(system, "teabag", "e"), probe, "next", "counterfactual", "s", "Q?", ("A",), error=error)


def _verdict(system: str, probe: str, label: str | None) -> Judgement:
    scores = {"right": float(label == "correct")} if label else {}
    case = Case(Work(system, "teabag", "e"), probe)
    return Judgement("correct", "m", "", believable=False, case=case, label=label, scores=scores)


def test_success_is_the_share_of_all_questions_that_were_answered_rightly() -> None:
    answers = [_answer("a", str(n)) for n in range(4)] + [_answer("a", "4", "failed"), _answer("b", "0")]
    labels = ["correct", "incorrect", "abstained", None]
    verdicts = [_verdict("a", str(n), label) for n, label in enumerate(labels)]
    found = successes(["b", "a", "c"], answers, [*verdicts, _verdict("b", "0", "correct")])
    assert [one.system for one in found] == ["b", "a"]
    b, a = found
    assert (a.questions, a.rate.mean, a.abstained, a.failed, a.unjudged) == (5, 0.2, 1, 1, 1)
    assert a.rate.low <= 0.2 <= a.rate.high
    assert (b.rate.mean, b.failed, b.unjudged) == (1.0, 0, 0)


# -- the shipped set

SHIPPED = teabag.read(resource("configs/eval/teafarm.json")).episodes


def test_three_episodes_of_five_sessions_are_shipped() -> None:
    assert [len(one.sessions) for one in SHIPPED] == [5, 5, 5]
    for one in SHIPPED:
        times = [turn.time for session in one.sessions for turn in session.turns]
        assert times == sorted(times)


@pytest.mark.parametrize("one", SHIPPED, ids=lambda one: one.id)
def test_each_shipped_question_is_led_up_to(one: Episode) -> None:
    speakers = speakers_of(one.sessions)
    assert {probe.speaker for probe in one.probes} == set(speakers)
    for probe in one.probes:
        assert FEWEST <= len(probe.dialogue) + 1 <= MOST
        assert probe.dialogue[-1].speaker == probe.speaker  # so that the asker comes next
        assert speakers_of([Session("s", probe.dialogue)]) in (speakers, speakers[::-1])
        assert probe.answer
