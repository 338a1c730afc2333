"""The runner: each session is read and each probe answered once, even after interruptions; failures are recorded."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic, sleep

import pytest

from localmem.chat.conversation import Conversation
from localmem.config import Settings
from localmem.errors import BadInput, LLMUnavailable
from localmem.evaluation.answers import (
    FIRST,
    Answer,
    Line,
    Read,
    answers_of,
    open_answers,
    read_answers,
    reads_of,
    successful,
)
from localmem.evaluation.corpus_tables import corpus_tables
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Probe
from localmem.evaluation.file_scoring import ScoringModels, TextRecipe
from localmem.evaluation.runner import AgentSpec, WrapLLM, count_probes, run_systems
from localmem.evaluation.summary import score_answers, section
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Recorder
from localmem.reporting.sections import Table
from localmem.systems.baselines import FullHistory
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Prompt, Session, Turn, Unit

NO_MODELS = ScoringModels(Settings(model="absent"), TextRecipe(encoder="absent"))
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
SYSTEMS = ["full_history", "rsum"]


def session(episode: str, number: int) -> Session:
    time = START + timedelta(days=number)
    name = f"{episode}-s{number}"
    turns = (
        Turn(f"{name}.0", "user", "Ana", f"Fact {number} of {episode}.", time),
        Turn(f"{name}.1", "assistant", "Ada", "I see.", time),
    )
    return Session(name, turns)


def probe(name: str, **changes: object) -> Probe:
    plain = Probe(name, f"What is {name}?", "Gold.", "single", None, (), ())
    return replace(plain, **changes)  # type: ignore[arg-type]


def episode(name: str, sessions: int = 3, *probes: Probe) -> Episode:
    probes = probes or (probe(f"{name}/q1"), probe(f"{name}/q2"))
    return Episode(name, "report", tuple(session(name, number) for number in range(sessions)), probes)


def dataset(*episodes: Episode) -> Dataset:
    return Dataset("sample", "0" * 64, episodes)


DATASET = dataset(*(episode(f"e{number}") for number in range(4)))


def script(prompt: Prompt) -> str:
    """A summary that depends on the length of the text; an answer that repeats the end of the question."""
    last = prompt.messages[-1].content
    return f"Summary of {len(last)} letters." if prompt.name == "rsum/update" else f"Answer to {last[-20:]}"


def test_history_that_is_cut_to_fit_is_counted_and_reported(tmp_path: Path) -> None:
    tight = ScriptedLLM(lambda _: "Answer.", context_length=700)
    long = episode("e", 200)
    with open_answers(tmp_path / "answers.jsonl") as answers:
        run_systems(["full_history"], [dataset(long)], new_agent, tight, answers)
    lines = read_answers(tmp_path / "answers.jsonl")
    assert [line.fallbacks for line in answers_of(lines)] == [1, 1]
    uncounted = [replace(line, fallbacks=None) if isinstance(line, Answer) else line for line in lines]
    for own, cell in ((lines, "2"), (uncounted, "")):
        costs = section("run", (), own, {}, tmp_path, against=()).tables[-1]
        assert dict(zip(costs.head, costs.rows[0], strict=True))["fallbacks to recall"] == cell


def new_agent(spec: AgentSpec) -> Conversation:
    system = FullHistory if spec.work.system == "full_history" else RecursiveSummary
    memory = system(llm=spec.llm, bank=spec.bank)
    return Conversation(memory=memory, llm=spec.llm, journal=spec.journal, speakers=spec.speakers)


def run_lines(
    path: Path,
    llm: ScriptedLLM | None = None,
    data: Dataset = DATASET,
    threads: int = 4,
    *,
    retry_failed: bool = False,
    wrap: WrapLLM = lambda llm, _: llm,
) -> list[Line]:
    llm = llm or ScriptedLLM(script)
    with open_answers(path) as answers:
        run_systems(SYSTEMS, [data], new_agent, llm, answers, threads=threads, retry_failed=retry_failed, wrap=wrap)
    return read_answers(path)


def without_times(lines: list[Line]) -> list[Line]:
    """What must be equal in two runs, in an order that does not depend on threads."""
    reads: list[Line] = [replace(line, seconds=0.0) for line in reads_of(lines)]
    return reads + [replace(line, seconds={}) for line in answers_of(lines)]


def test_every_session_is_read_and_every_probe_answered_once(tmp_path: Path) -> None:
    lines = run_lines(tmp_path / "a.jsonl")
    assert len(reads_of(lines)) == 2 * 4 * 3
    probes = {(line.work, line.probe) for line in answers_of(lines)}
    assert len(probes) == 2 * count_probes([DATASET]) == len(answers_of(lines))


def test_threads_do_not_change_the_result(tmp_path: Path) -> None:
    single = run_lines(tmp_path / "b.jsonl", threads=1)
    assert without_times(run_lines(tmp_path / "a.jsonl")) == without_times(single)


def test_a_streamed_reply_is_the_same_and_has_the_time_to_its_first_piece(tmp_path: Path) -> None:
    answers = answers_of(run_lines(tmp_path / "whole.jsonl"))
    with open_answers(tmp_path / "streamed.jsonl") as log:
        run_systems(SYSTEMS, [DATASET], new_agent, ScriptedLLM(script), log, stream=True)
    streamed = answers_of(read_answers(tmp_path / "streamed.jsonl"))
    assert [answer.text for answer in streamed] == [answer.text for answer in answers]
    assert all(0 < answer.seconds[FIRST] <= sum(answer.seconds.values()) - answer.seconds[FIRST] for answer in streamed)
    assert not any(FIRST in answer.seconds for answer in answers)


@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.81])
def test_a_truncated_file_is_completed(tmp_path: Path, share: float) -> None:
    complete = run_lines(tmp_path / "complete.jsonl")
    content = (tmp_path / "complete.jsonl").read_bytes()
    truncated = tmp_path / "truncated.jsonl"
    truncated.write_bytes(content[: int(share * len(content))])  # in the middle of a line, as a kill leaves it
    assert without_times(run_lines(truncated)) == without_times(complete)


def test_a_killed_and_resumed_run_has_the_same_report(tmp_path: Path) -> None:
    """A real process is killed while it answers."""
    path = tmp_path / "killed.jsonl"
    command = [sys.executable, "-m", "tests.evaluation.slow_run", str(path)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as child:
        deadline = monotonic() + 120
        while not (path.exists() and path.read_bytes().count(b"\n") > 12) and monotonic() < deadline:
            sleep(0.01)
        child.kill()
    killed_after = len(read_answers(path))
    complete = run_lines(tmp_path / "complete.jsonl")
    assert 12 < killed_after < len(complete)
    assert report_tables(run_lines(path), tmp_path) == report_tables(complete, tmp_path)


def report_tables(lines: list[Line], folder: Path) -> list[Table]:
    """All tables of the report, with all times zero."""
    lines = without_times(lines)
    scores = score_answers(answers_of(lines), [])
    return [
        *section("Run", [], lines, scores, folder, against=("rsum",)).tables,
        *corpus_tables(lines, (), NO_MODELS),
    ]


def test_completed_work_is_not_repeated(tmp_path: Path) -> None:
    run_lines(tmp_path / "a.jsonl")

    def refuse(prompt: Prompt) -> str:
        raise AssertionError(f"unexpected prompt: {prompt.name}")

    size = (tmp_path / "a.jsonl").stat().st_size
    run_lines(tmp_path / "a.jsonl", ScriptedLLM(refuse))
    assert (tmp_path / "a.jsonl").stat().st_size == size


def failing(name: str, text: str) -> ScriptedLLM:
    def answer(prompt: Prompt) -> str:
        if prompt.name == name and text in prompt.messages[-1].content:
            raise LLMUnavailable("no server; start it again")
        return script(prompt)

    return ScriptedLLM(answer)


def test_a_failed_probe_is_recorded_and_the_others_are_answered(tmp_path: Path) -> None:
    lines = run_lines(tmp_path / "a.jsonl", failing("rsum/respond", "e2/q1"))
    failures = [line for line in answers_of(lines) if line.error]
    assert [(line.work.system, line.probe, line.error) for line in failures] == [
        ("rsum", "e2/q1", "LLMUnavailable: no server; start it again")
    ]
    assert len(answers_of(lines)) == 2 * count_probes([DATASET])


def test_a_failed_session_is_recorded_and_the_next_is_read(tmp_path: Path) -> None:
    lines = run_lines(tmp_path / "a.jsonl", failing("rsum/update", "Fact 1 of e0"))
    unread = [line for line in reads_of(lines) if line.error]
    assert [(line.work.system, line.session) for line in unread] == [("rsum", "e0-s1")]
    following = next(line for line in reads_of(lines) if line.work.system == "rsum" and line.session == "e0-s2")
    assert following.changes
    assert not following.error


def test_failures_are_retried_on_request(tmp_path: Path) -> None:
    complete = run_lines(tmp_path / "complete.jsonl")
    path = tmp_path / "failed.jsonl"
    run_lines(path, failing("rsum/update", "Fact 1 of e0"))
    lines = run_lines(path, failing("rsum/respond", "e2/q1"), retry_failed=True)
    assert [line.probe for line in answers_of(lines) if line.error] == []  # answered before, so not asked again
    assert without_times(lines) == without_times(complete)


def test_a_failed_session_invalidates_what_follows_it(tmp_path: Path) -> None:
    path = tmp_path / "failed.jsonl"
    run_lines(path, failing("rsum/update", "Fact 1 of e0"))
    lines = successful(read_answers(path))
    work = ("rsum", "sample", "e0")
    assert [line.session for line in reads_of(lines) if line.work == work] == ["e0-s0"]
    assert [line for line in answers_of(lines) if line.work == work] == []
    assert len(reads_of(lines)) == 2 * 4 * 3 - 2


def test_a_probe_is_asked_after_its_session_and_changes_nothing(tmp_path: Path) -> None:
    probes = (probe("before", after=BEFORE_ALL), probe("first", after="e-s0"), probe("last"))
    lines = run_lines(tmp_path / "a.jsonl", data=dataset(episode("e", 3, *probes)))
    recalled = {line.probe: line.recalled for line in answers_of(lines) if line.work.system == "full_history"}
    assert "Fact" not in recalled["before"]
    assert "Fact 0" in recalled["first"]
    assert "Fact 1" not in recalled["first"]
    assert "Fact 2" in recalled["last"]
    assert "What is" not in recalled["last"]


def test_the_speaker_named_by_the_probe_replies(tmp_path: Path) -> None:
    dialogue = (Turn("d.0", "assistant", "Ana", "Hello.", START),)
    next_turn = probe("n", question="How was your week?", kind="next", dialogue=dialogue, speaker="Ana")
    prompts: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        prompts.append(prompt)
        return "It was fine."

    lines = run_lines(tmp_path / "a.jsonl", ScriptedLLM(answer), dataset(episode("e", 1, next_turn)))
    assert [line.text for line in answers_of(lines)] == ["It was fine."] * 2
    replies = [prompt for prompt in prompts if prompt.name == "agent/respond"]
    assert replies[0].messages[-1].content.endswith("How was your week?")
    assert "You are Ana" in replies[0].messages[0].content


def test_given_memories_are_read_before_the_first_session(tmp_path: Path) -> None:
    time = START - timedelta(days=9)
    memories = (Unit("m1", "Ana keeps bees.", "Ana keeps bees.", "memory", "Ana", "old", (), time, time),)
    lines = run_lines(tmp_path / "a.jsonl", data=dataset(replace(episode("e", 1), memories=memories)))
    full = next(line for line in answers_of(lines) if line.work.system == "full_history")
    assert full.recalled.index("Ana keeps bees.") < full.recalled.index("Fact 0")
    read = [line.session for line in lines if isinstance(line, Read) and line.work.system == "rsum"]
    assert read == ["given-old", "e-s0"]


def test_costs_are_recorded_by_stage_and_prompt(tmp_path: Path) -> None:
    lines = run_lines(tmp_path / "a.jsonl")
    answer = next(line for line in answers_of(lines) if line.work.system == "rsum")
    assert list(answer.spent["respond"]) == ["rsum/respond"]
    assert answer.spent["respond"]["rsum/respond"].calls == 1
    assert answer.spent["recall"] == {}
    assert set(answer.seconds) == {"recall", "respond"}
    read = next(line for line in reads_of(lines) if line.work.system == "rsum")
    assert read.spent["rsum/update"].calls == 1


def test_a_wrapped_llm_sees_every_prompt_with_its_work(tmp_path: Path) -> None:
    """Memory steps and replies alike: traces for students are collected this way."""
    prompts: list[tuple[str, str]] = []
    run_lines(
        tmp_path / "a.jsonl",
        wrap=lambda llm, work: Recorder(llm, lambda prompt, *_: prompts.append((work.episode, prompt.name))),
    )
    assert prompts.count(("e0", "rsum/update")) == 3
    assert prompts.count(("e0", "rsum/respond")) == 2


def test_a_file_of_another_kind_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"type": "answer"}\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"a\.jsonl, line 1"), open_answers(path):
        pass


def test_a_defect_is_recorded_as_an_answer(tmp_path: Path) -> None:
    def broken(prompt: Prompt) -> str:
        raise ZeroDivisionError("by zero")

    lines = [line for line in run_lines(tmp_path / "a.jsonl", ScriptedLLM(broken)) if isinstance(line, Answer)]
    assert {line.error for line in lines} == {"ZeroDivisionError: by zero"}


def test_progress_counts_every_probe_once_even_when_resumed(tmp_path: Path) -> None:
    counts: list[int] = []
    track: Callable[[int], None] = counts.append
    for _ in range(2):
        counts.clear()
        with open_answers(tmp_path / "a.jsonl") as answers:
            run_systems(SYSTEMS, [DATASET], new_agent, ScriptedLLM(script), answers, track=track)
        assert sum(counts) == 2 * count_probes([DATASET])
