"""The runner: every session read and every probe answered once, whatever is interrupted; failures are written down."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep

import pytest
from localmem.chat.conversation import Conversation

from localmem.errors import BadInput, LLMUnavailable
from localmem.evaluation import corpus_metrics
from localmem.evaluation.answers import Answer, Line, Read, open_answers, answers_of, read_answers, reads_of, successful
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Probe
from localmem.evaluation.file_scoring import ScoringModels
from localmem.evaluation.runner import AgentSpec, count_probes, run
from localmem.evaluation.scores import all_scores
from localmem.evaluation.summary import section
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.sections import Table
from localmem.systems.full_history import FullHistory
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Prompt, Session, Turn, Unit

NO_MODELS = ScoringModels(pytest.fail, pytest.fail)
START = datetime(2026, 3, 1, 9, tzinfo=UTC)


def session(episode: str, number: int) -> Session:
    time = START + timedelta(days=number)
    name = f"{episode}-s{number}"
    turns = (
        Turn(f"{name}.0", "user", "Ana", f"Fact {number} of {episode}.", time),
        Turn(f"{name}.1", "assistant", "Ada", "I see.", time),
    )
    return Session(name, turns)


def probe(name: str, **changed: object) -> Probe:
    plain = Probe(name, f"What is {name}?", "Gold.", "single", None, (), ())
    return replace(plain, **changed)  # type: ignore[arg-type]


def episode(name: str, sessions: int = 3, *probes: Probe) -> Episode:
    asked = probes or (probe(f"{name}/q1"), probe(f"{name}/q2"))
    return Episode(name, "report", tuple(session(name, number) for number in range(sessions)), asked)


DATA = Dataset("made", "0" * 64, tuple(episode(f"e{number}") for number in range(4)))


def script(asked: Prompt) -> str:
    """A summary that grows by what it was shown; an answer that tells what it was asked."""
    last = asked.messages[-1].content
    return f"Summary of {len(last)} letters." if asked.name == "rsum/update" else f"Answer to {last[-20:]}"


def new_agent(seat: AgentSpec) -> Conversation:
    if seat.work.system == "full_history":
        held: FullHistory | RecursiveSummary = FullHistory(llm=seat.llm, bank=seat.bank)
    else:
        held = RecursiveSummary(llm=seat.llm, bank=seat.bank)
    return Conversation(memory=held, llm=seat.llm, journal=seat.journal, user=seat.user, assistant=seat.assistant)


def lines(path: Path, llm: ScriptedLLM | None = None, data: Dataset = DATA, threads: int = 4) -> list[Line]:
    with open_answers(path) as answers:
        run(["full_history", "rsum"], [data], new_agent, llm or ScriptedLLM(script), answers, threads=threads)
    return read_answers(path)


def timeless(found: list[Line]) -> list[Line]:
    """What must be alike in two runs, in an order that does not depend on threads."""
    reads: list[Line] = [replace(line, seconds=0.0) for line in reads_of(found)]
    return reads + [replace(line, seconds={}) for line in answers_of(found)]


def test_every_session_is_read_and_every_probe_answered_once(tmp_path: Path) -> None:
    found = lines(tmp_path / "a.jsonl")
    assert len(reads_of(found)) == 2 * 4 * 3
    assert (
        len({(line.work, line.probe) for line in answers_of(found)}) == 2 * count_probes([DATA]) == len(answers_of(found))
    )


def test_two_runs_are_alike(tmp_path: Path) -> None:
    assert timeless(lines(tmp_path / "a.jsonl")) == timeless(lines(tmp_path / "b.jsonl", threads=1))


@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.81])
def test_a_killed_run_goes_on_to_what_an_uninterrupted_one_gives(tmp_path: Path, share: float) -> None:
    whole = lines(tmp_path / "whole.jsonl")
    text = (tmp_path / "whole.jsonl").read_bytes()
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(text[: int(share * len(text))])  # in the middle of a line, as a kill leaves it
    assert timeless(lines(cut)) == timeless(whole)


def test_a_run_that_was_killed_reports_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    """A process of its own is killed in the middle, as it answers; the report is that of its file gone on with."""
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-m", "tests.evaluation.slow_run", str(path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as child:
        deadline = monotonic() + 120
        while not (path.exists() and path.read_bytes().count(b"\n") > 12) and monotonic() < deadline:
            sleep(0.01)
        child.kill()
    done = len(read_answers(path))
    whole = lines(tmp_path / "whole.jsonl")
    assert 12 < done < len(whole)
    assert reported(lines(path), tmp_path) == reported(whole, tmp_path)


def reported(found: list[Line], folder: Path) -> list[Table]:
    """All tables of the report but for what is in seconds."""
    still = timeless(found)
    scores = all_scores(answers_of(still), [])
    return [
        *section("Run", [], still, scores, folder, against=("rsum",)).tables,
        *corpus_metrics.tables(still, (), NO_MODELS),
    ]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl")

    def refuse(asked: Prompt) -> str:
        raise AssertionError(f"asked again: {asked.name}")

    size = (tmp_path / "a.jsonl").stat().st_size
    lines(tmp_path / "a.jsonl", ScriptedLLM(refuse))
    assert (tmp_path / "a.jsonl").stat().st_size == size


def failing(name: str, on: str) -> Callable[[Prompt], str]:
    def answer(asked: Prompt) -> str:
        if asked.name == name and on in asked.messages[-1].content:
            raise LLMUnavailable("the server went away; start it again")
        return script(asked)

    return answer


def test_a_probe_that_fails_is_written_down_and_the_others_go_on(tmp_path: Path) -> None:
    found = lines(tmp_path / "a.jsonl", ScriptedLLM(failing("rsum/respond", "e2/q1")))
    failed = [line for line in answers_of(found) if line.error]
    assert [(line.work.system, line.probe, line.error) for line in failed] == [
        ("rsum", "e2/q1", "LLMUnavailable: the server went away; start it again")
    ]
    assert len(answers_of(found)) == 2 * count_probes([DATA])


def test_a_session_that_cannot_be_remembered_is_written_down_and_the_next_is_read(tmp_path: Path) -> None:
    found = lines(tmp_path / "a.jsonl", ScriptedLLM(failing("rsum/update", "Fact 1 of e0")))
    unread = [line for line in reads_of(found) if line.error]
    assert [(line.work.system, line.session) for line in unread] == [("rsum", "e0-s1")]
    after = next(line for line in reads_of(found) if line.work.system == "rsum" and line.session == "e0-s2")
    assert after.changes
    assert not after.error


def test_what_failed_is_done_again_when_asked_for(tmp_path: Path) -> None:
    whole = lines(tmp_path / "whole.jsonl")
    path = tmp_path / "failed.jsonl"
    lines(path, ScriptedLLM(failing("rsum/update", "Fact 1 of e0")))
    with open_answers(path) as answers:
        run(
            ["full_history", "rsum"],
            [DATA],
            new_agent,
            ScriptedLLM(failing("rsum/respond", "e2/q1")),
            answers,
            again=True,
        )
    assert [line.probe for line in answers_of(read_answers(path)) if line.error] == []  # done before, so not asked again
    assert timeless(read_answers(path)) == timeless(whole)


def test_a_session_read_again_takes_what_came_after_it_along(tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    lines(path, ScriptedLLM(failing("rsum/update", "Fact 1 of e0")))
    held = successful(read_answers(path))
    left = [line.session for line in reads_of(held) if line.work == ("rsum", "made", "e0")]
    assert left == ["e0-s0"]
    assert [line for line in answers_of(held) if line.work == ("rsum", "made", "e0")] == []
    assert len(reads_of(held)) == 2 * 4 * 3 - 2


def test_a_probe_is_asked_after_its_session_and_changes_nothing(tmp_path: Path) -> None:
    probes = (probe("before", after=BEFORE_ALL), probe("first", after="e-s0"), probe("last"))
    data = Dataset("made", "0" * 64, (episode("e", 3, *probes),))
    found = [line for line in answers_of(lines(tmp_path / "a.jsonl", data=data)) if line.work.system == "full_history"]
    seen = {line.probe: line.recalled for line in found}
    assert "Fact" not in seen["before"]
    assert "Fact 0" in seen["first"]
    assert "Fact 1" not in seen["first"]
    assert "Fact 2" in seen["last"]
    assert "What is" not in seen["last"]


def test_a_next_turn_is_said_by_the_speaker_that_the_probe_names(tmp_path: Path) -> None:
    heard = (Turn("d.0", "assistant", "Ana", "Hello.", START),)
    data = Dataset(
        "made",
        "0" * 64,
        (episode("e", 1, probe("n", question="How was your week?", kind="next", dialogue=heard, speaker="Ana")),),
    )
    prompts: list[Prompt] = []

    def answer(asked: Prompt) -> str:
        prompts.append(asked)
        return "It was fine."

    found = answers_of(lines(tmp_path / "a.jsonl", ScriptedLLM(answer), data))
    assert [line.text for line in found] == ["It was fine."] * 2
    replies = [asked for asked in prompts if asked.name == "agent/respond"]
    assert replies[0].messages[-1].content.endswith("How was your week?")
    assert "You are Ana" in replies[0].messages[0].content


def test_given_memories_are_told_to_every_system_before_the_first_session(tmp_path: Path) -> None:
    time = START - timedelta(days=9)
    given = (Unit("m1", "Ana keeps bees.", "Ana keeps bees.", "memory", "Ana", "old", (), time, time),)
    data = Dataset("made", "0" * 64, (replace(episode("e", 1), memories=given),))
    found = lines(tmp_path / "a.jsonl", data=data)
    full = next(line for line in answers_of(found) if line.work.system == "full_history")
    assert full.recalled.index("Ana keeps bees.") < full.recalled.index("Fact 0")
    assert [line.session for line in found if isinstance(line, Read) and line.work.system == "rsum"] == [
        "given-old",
        "e-s0",
    ]


def test_cost_is_told_by_stage_and_prompt(tmp_path: Path) -> None:
    found = lines(tmp_path / "a.jsonl")
    answer = next(line for line in answers_of(found) if line.work.system == "rsum")
    assert list(answer.spent["respond"]) == ["rsum/respond"]
    assert answer.spent["respond"]["rsum/respond"].calls == 1
    assert answer.spent["recall"] == {}
    assert set(answer.seconds) == {"recall", "respond"}
    read = next(line for line in reads_of(found) if line.work.system == "rsum")
    assert read.spent["rsum/update"].calls == 1


def test_a_file_of_something_else_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"type": "answer"}\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"a\.jsonl, line 1"), open_answers(path):
        pass


def test_a_defect_is_an_answer_too(tmp_path: Path) -> None:
    def broken(asked: Prompt) -> str:
        raise ZeroDivisionError("by nothing")

    found = [line for line in lines(tmp_path / "a.jsonl", ScriptedLLM(broken)) if isinstance(line, Answer)]
    assert {line.error for line in found} == {"ZeroDivisionError: by nothing"}
