"""Collecting one's own conversations: logs without questions, the store, several samples, what is said before."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from finetune.traces.trace import read_traces, write_traces
from localmem import factory
from localmem.cli.distill import distill
from localmem.errors import BadInput
from localmem.llm.scripted import ScriptedLLM
from localmem.store import Store
from localmem.types import Hide, Prompt, Turn
from tests.finetune.traces.test_division import START

STARTER = "smollm2-135m-instruct"


@pytest.fixture(autouse=True)
def teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(prompt: Prompt) -> str:
        return f"Noted, number {prompt.seed}." if prompt.temperature else "Noted."

    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(answer), lambda: None))


def write_log(folder: Path, sessions: int, users: int = 1) -> Path:
    lines = []
    for user in range(users):
        for day in range(1, sessions + 1):
            turns = [
                {"role": role, "text": f"{role} says {word} on day {day}."}
                for word in ("kite", "boat")
                for role in ("user", "assistant")
            ]
            lines.append(
                {"user": f"u{user}", "id": f"u{user}d{day}", "time": f"2026-03-{day:02}T09:00Z", "turns": turns}
            )
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(distill, list(words), catch_exceptions=False)


def collect(out: Path, *words: str, system: str = "rsum") -> dict[str, Any]:
    process = run("collect", "--system", system, "--teacher", STARTER, "--out", str(out), *words, "--json")
    assert process.exit_code == 0, process.output
    return dict(json.loads(process.stdout)["collected"])


def test_a_log_without_questions_is_collected_at_every_reply(tmp_path: Path) -> None:
    out = tmp_path / "lessons"
    counts = collect(out, "--data", f"jsonl={write_log(tmp_path, 10)}")
    assert counts == {"summarize": 10, "respond": 20}
    replies = read_traces(out / "traces" / "respond.jsonl")
    assert [trace.metadata.session for trace in replies[:3]] == ["u0d1", "u0d1", "u0d2"]
    assert replies[0].context[-1].content.endswith("user says kite on day 1.")
    assert "assistant says kite on day 1." in replies[1].context_text
    assert "Noted." in replies[2].context_text  # the memory of the first session
    assert replies[0].metadata.seconds is not None
    assert replies[0].metadata.output_tokens > 0
    run("sift", str(out))
    parts = {part: read_traces(out / part / "summarize.jsonl") for part in ("train", "valid", "test")}
    days = {part: {trace.metadata.session for trace in traces} for part, traces in parts.items()}
    assert days["valid"] | days["test"] <= {"u0d9", "u0d10"}


def test_an_empty_part_is_said_before_the_teacher_is_asked(tmp_path: Path) -> None:
    words = ["collect", "--system", "rsum", "--teacher", STARTER, "--out", str(tmp_path / "x")]
    process = run(*words, "--data", f"jsonl={write_log(tmp_path, 2)}")
    assert "there would be no validation and no test traces: no user has more than 2 sessions; " in process.stderr
    process = run(*words[:-1], str(tmp_path / "y"), "--data", f"jsonl={write_log(tmp_path, 1, users=5)}")
    assert "5 users: training, validation and test traces are those of different users" in process.stderr


def test_the_stored_conversations_are_collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_DATA", str(tmp_path / "data"))
    with pytest.raises(BadInput, match="no conversation is stored"):
        collect(tmp_path / "none", "--from-store")
    with Store.open(tmp_path / "data") as store:
        journal = store.journal("ana", "rsum")
        texts = (("user", "I fly a kite."), ("assistant", "How nice."))
        journal.add_turns("s1", [Turn(f"s1.{n}", role, role, text, START) for n, (role, text) in enumerate(texts)])  # type: ignore[arg-type]
        journal.add_turns("s2", [Turn("s2.0", "user", "user", "My secret is 1234.", START + timedelta(days=1))])
        journal.commit("s2", [Hide("s2.0", "forget it", START + timedelta(days=1))])
    assert collect(tmp_path / "lessons", "--from-store") == {"summarize": 1, "respond": 1}
    (reply,) = read_traces(tmp_path / "lessons" / "traces" / "respond.jsonl")
    assert (reply.metadata.work.dataset, reply.metadata.work.episode) == ("store", "ana")
    assert "I fly a kite." in reply.context_text
    written = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "lessons").rglob("*.jsonl"))
    assert "1234" not in written  # a turn that was to be forgotten is nobody's lesson


def test_nothing_to_collect_from_and_a_misspelt_stage_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to collect from"):
        collect(tmp_path / "lessons")
    log = write_log(tmp_path, 1)
    with pytest.raises(BadInput, match=r"no stage 'respnd' .did you mean 'respond'"):
        collect(tmp_path / "lessons", "--data", f"jsonl={log}", "--stage", "respnd")
    with pytest.raises(BadInput, match=r"no stage 'summarise' .did you mean 'summarize'"):
        run("import", str(log), "--stage", "summarise", "--out", str(tmp_path / "lessons"))


def test_a_collection_goes_on_with_its_own_stages_only(tmp_path: Path) -> None:
    out, log = tmp_path / "lessons", f"jsonl={write_log(tmp_path, 3)}"
    assert collect(out, "--data", log, "--stage", "respond", "--stage", "summarize")
    collect(out, "--data", log, "--stage", "summarize", "--stage", "respond", "--resume")
    for stages in (["--stage", "respond"], []):
        with pytest.raises(BadInput, match=r"stages was \['respond', 'summarize'\], now (none|\['respond'\]); use"):
            collect(out, "--data", log, *stages, "--resume")


def test_a_collection_that_did_not_begin_is_not_continued(tmp_path: Path) -> None:
    out, log = tmp_path / "lessons", f"jsonl={write_log(tmp_path, 3)}"
    with pytest.raises(BadInput, match=r"no run began in .*lessons: it has no run\.json; leave out --resume"):
        collect(out, "--data", log, "--resume")
    assert not out.exists()


def test_a_stage_without_a_usable_trace_does_not_stop_the_others(tmp_path: Path) -> None:
    """And nothing stays behind of an earlier filter that let its traces through."""
    out = tmp_path / "lessons"
    collect(out, "--data", f"jsonl={write_log(tmp_path, 3)}")
    before, _ = json.loads(run("sift", str(out), "--json").stdout)
    path = out / "traces" / "summarize.jsonl"
    traces = read_traces(path)
    write_traces(out / "pairs" / "train" / path.name, traces)
    write_traces(path, [replace(trace, metadata=replace(trace.metadata, finish="length")) for trace in traces])
    process = run("sift", str(out), "--json")
    respond, summarize = json.loads(process.stdout)
    assert respond == before
    assert summarize["reasons"] == {"cut short": 3}
    assert summarize["train"] + summarize["valid"] + summarize["test"] == 0
    assert "summarize: no trace can be learned from (cut short: 3); collect more" in process.stderr
    assert list(out.rglob(path.name)) == [path]


def test_several_answers_to_a_prompt_are_collected_and_one_remains(tmp_path: Path) -> None:
    out = tmp_path / "lessons"
    log = f"jsonl={write_log(tmp_path, 3)}"
    counts = collect(out, "--data", log, "--stage", "respond", "--set", "samples=3")
    assert counts == {"respond": 18}
    answers = {trace.answer for trace in read_traces(out / "traces" / "respond.jsonl")}
    assert answers == {"Noted.", "Noted, number 1.", "Noted, number 2."}
    (row,) = json.loads(run("sift", str(out), "--json").stdout)
    assert row["reasons"]["another sample is better"] == 12


def test_preference_pairs_are_written_where_answers_differ_in_worth(tmp_path: Path) -> None:
    """The first answer agrees with the human one, the samples do not."""
    log = write_log(tmp_path, 3)
    question = {"user": "u0", "question": "What did I say?", "answer": "Noted."}
    log.write_text(log.read_text(encoding="utf-8") + json.dumps(question) + "\n", encoding="utf-8")
    out = tmp_path / "lessons"
    words = ["--data", f"jsonl={log}", "--stage", "respond", "--set", "samples=2", "--set", "split=null"]
    collect(out, *words)
    run("sift", str(out))
    (pair,) = (trace for part in (out / "pairs").iterdir() for trace in read_traces(part / "respond.jsonl"))
    assert (pair.answer, pair.metadata.rejected) == ("Noted.", "Noted, number 1.")
