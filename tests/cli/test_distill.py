"""`localmem distill`: collecting from a scripted teacher, resuming after it failed, filtering."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from finetune.traces.trace import read_traces
from localmem import factory
from localmem.cli.distill import distill
from localmem.cli.options import interruptible
from localmem.errors import BadInput, LLMUnavailable
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt

STARTER = "smollm2-135m-instruct"


def write_conversations(folder: Path, episodes: int) -> Path:
    """A log of conversations with two sessions and a question each."""
    lines: list[dict[str, object]] = []
    for number in range(episodes):
        user = f"e{number}"
        for day in (1, 2):
            statement = {"role": "user", "text": f"I met friend{number} on day {day}."}
            turns = [statement, {"role": "assistant", "text": "How nice."}]
            lines.append({"user": user, "id": f"{user}-s{day}", "time": f"2026-03-0{day}T09:00:00Z", "turns": turns})
        lines.append({"user": user, "question": "Whom did I meet?", "answer": f"friend{number}"})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def teacher(fails_at: str = "never") -> factory.Backbone:
    def answer(prompt: Prompt) -> str:
        text = " ".join(message.content for message in prompt.messages)
        friends = [word for word in text.split() if word.startswith("friend")]
        if fails_at in text or not friends:
            raise LLMUnavailable("the server went away; start it again")
        return friends[0]

    return factory.Backbone(ScriptedLLM(answer), lambda: None)


def call(*words: str) -> dict[str, Any]:
    """A command's JSON document; a list of rows is returned under "rows"."""
    result = CliRunner().invoke(distill, [*words, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    return {"rows": document} if isinstance(document, list) else dict(document)


def test_collect_resumes_after_the_teacher_failed_and_sift_divides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = write_conversations(tmp_path, 12), tmp_path / "collection"
    words = ["collect", "--system", "rsum", "--dataset", f"jsonl={data}", "--teacher", STARTER]
    words += ["--set", "split=null", "--set", "threads=2", "--out", str(out)]
    monkeypatch.setattr(factory, "backbone", lambda *_: teacher("friend7"))
    call(*words)
    before = read_traces(out / "traces" / "summarize.jsonl")
    assert 0 < len(before) < 24
    monkeypatch.setattr(factory, "backbone", lambda *_: teacher())
    call(*words, "--resume")
    collected = read_traces(out / "traces" / "summarize.jsonl")
    assert collected[: len(before)] == before
    assert len(collected) == 24
    assert len(read_traces(out / "traces" / "respond.jsonl")) == 36  # two replies and a question each
    assert collected[0].metadata.teacher == STARTER
    assert len(collected[0].metadata.teacher_sha256) == 64
    assert "friend" in str(collected[0].metadata.inputs)
    rows = call("sift", str(out))["rows"]
    totals = {row["stage"]: row["train"] + row["valid"] + row["test"] for row in rows}
    assert totals == {"respond": 36, "summarize": 24}
    parts = {part: read_traces(out / part / "summarize.jsonl") for part in ("train", "valid", "test")}
    assert sum(map(len, parts.values())) == 24
    episodes = {part: {trace.metadata.work.episode for trace in traces} for part, traces in parts.items()}
    assert episodes["train"].isdisjoint(episodes["valid"] | episodes["test"])


@pytest.fixture
def heeds_interrupts() -> Iterator[None]:
    """Ctrl-C is heeded, as it is not where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_interrupts")
def test_an_interrupted_collection_says_what_is_saved_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["collect", "--system", "rsum", "--dataset", f"jsonl={write_conversations(tmp_path, 4)}"]
    words += ["--teacher", STARTER, "--set", "split=null", "--set", "threads=1", "--out", str(tmp_path / "collection")]
    calls = 0

    def answer(_: Prompt) -> str:
        nonlocal calls
        calls += 1
        if calls == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return "friend1"

    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(answer), lambda: None))
    result = CliRunner().invoke(distill, words, catch_exceptions=False)
    assert result.exit_code == 130
    (line,) = [line for line in result.stderr.splitlines() if "interrupted" in line]
    assert re.search(r"interrupted: \d+ traces are saved in .*traces; waiting for .*; continue with .* --resume$", line)
    call(*words, "--resume")
    assert len(read_traces(tmp_path / "collection" / "traces" / "summarize.jsonl")) == 8


@pytest.mark.usefixtures("heeds_interrupts")
def test_the_second_interrupt_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    def work() -> None:
        with interruptible(lambda: "saved"):
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                signal.raise_signal(signal.SIGINT)
                raise

    with pytest.raises(SystemExit) as stop:
        work()
    assert codes == [stop.value.code] == [130]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(distill, ["sift", str(tmp_path)])
    assert "holds no traces" in str(result.exception)


def test_a_collection_without_answers_can_be_started_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["collect", "--system", "rsum", "--dataset", f"jsonl={write_conversations(tmp_path, 1)}"]
    words += ["--set", "split=null", "--out", str(tmp_path / "collection")]
    with pytest.raises(BadInput, match="nosuch"):
        CliRunner().invoke(distill, [*words, "--teacher", "nosuch"], catch_exceptions=False)
    monkeypatch.setattr(factory, "backbone", lambda *_: teacher())
    call(*words, "--teacher", STARTER)
    with pytest.raises(BadInput, match="--resume"):
        call(*words, "--teacher", STARTER)


def write_outputs(folder: Path, count: int = 60) -> Path:
    """Existing outputs: a question and an answer in each line, every third answer wrong."""
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"My friend{n} met your friend{n + 1}. Whom did I mention first?"},
                {"role": "assistant", "content": f"friend{n if n % 3 else n + 1}"},
            ],
            "conversation": f"c{n}",
        }
        for n in range(count)
    ]
    path = folder / "outputs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_existing_outputs_are_imported_once(tmp_path: Path) -> None:
    out = tmp_path / "lessons"
    words = ["import", str(write_outputs(tmp_path)), "--stage", "respond", "--teacher", "theirs", "--out", str(out)]
    assert call(*words)["collected"] == {"respond": 60}
    assert call(*words)["collected"] == {"respond: duplicate": 60}
    imported = read_traces(out / "traces" / "respond.jsonl")
    assert {trace.metadata.teacher for trace in imported} == {"theirs"}
    (row,) = call("sift", str(out))["rows"]
    assert row["train"] + row["valid"] + row["test"] == 60


def test_a_file_with_a_wrong_line_is_not_imported(tmp_path: Path) -> None:
    path = write_outputs(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + '{"messages": []}\n', encoding="utf-8")
    words = ["import", str(path), "--stage", "respond", "--out", str(tmp_path / "lessons")]
    with pytest.raises(BadInput, match="line 61"):
        CliRunner().invoke(distill, words, catch_exceptions=False)
    assert not (tmp_path / "lessons").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["import", "x", "--out", "y"], "Missing option '--stage'"),
        (["collect", "--dataset", "jsonl=x", "--out", "y", "--system", "rsum"], "Missing option '--teacher'"),
        (
            ["collect", "--data", "jsonl=x", "--data", "jsonl=z", "--out", "y", "--system", "rsum", "--teacher", "t"],
            "--dataset jsonl occurs twice; give each name once, with one file",
        ),
        (["sift", "x", "--judge-model", STARTER], "--judge-model and --min-score must be used together"),
        (["labels", "refine", "x", "y"], "'refine' is not one of 'segment', 'link'"),
    ],
)
def test_wrong_usage_is_reported(words: list[str], problem: str) -> None:
    result = CliRunner().invoke(distill, words)
    assert result.exit_code == 2
    assert problem in result.output


def test_a_judge_rejects_answers_and_sees_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, prompts = tmp_path / "lessons", []

    def judge(prompt: Prompt) -> str:
        prompts.append(prompt.name)
        text = prompt.messages[-1].content
        expected, answer = text.split("My ")[1].split(" ")[0], text.split("rate: ")[1].split("\n")[0]
        return json.dumps({"score": 90 if expected == answer else 10})

    call("import", str(write_outputs(tmp_path)), "--stage", "respond", "--out", str(out))
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(judge), lambda: None))
    words = ["sift", str(out), "--judge-model", STARTER, "--data-dir", str(tmp_path / "data"), "--min-score"]
    (row,) = call(*words, "50")["rows"]
    assert row["reasons"] == {"the judge gave less than 50": 20}
    assert row["train"] + row["valid"] + row["test"] == 40
    assert "not calibrated" in row["judge"]["calibration"]
    assert len(prompts) == 60
    assert call(*words, "50")["rows"] == [row]
    assert len(prompts) == 60
    with pytest.raises(BadInput, match="the judge 'helpfulness' does not look at a single answer"):
        call(*words, "50", "--criterion", "helpfulness")
    with pytest.raises(BadInput, match="none of 60 traces"):
        call(*words, "101")


def test_human_labels_become_traces(tmp_path: Path) -> None:
    path = tmp_path / "dialogues.jsonl"
    dialogue = "user: hi[NEWLINE]agent: hello[NEWLINE][BOUNDARY][NEWLINE]user: rain again[NEWLINE]agent: yes"
    texts = {"a": "user: hi", **{f"d{number}": dialogue for number in range(80)}}
    lines = [json.dumps({"id": name, "dialogue": text}) + "\n" for name, text in texts.items()]
    path.write_text("".join(lines), encoding="utf-8")
    words = ["labels", "segment", str(path), str(tmp_path / "out")]
    result = CliRunner().invoke(distill, words, catch_exceptions=False)
    assert result.stdout.split()[-6:] == ["training", "4", "validation", "16", "test", "60"]
    assert "left out 1 of 81 dialogues that do not have 4 to 12 utterances" in result.stderr
    assert len(read_traces(tmp_path / "out" / "test" / "segment.jsonl")) == 60
    path.write_text(lines[0], encoding="utf-8")
    with pytest.raises(BadInput, match=r"none of the 1 dialogues of .* has 4 to 12 utterances"):
        CliRunner().invoke(distill, words, catch_exceptions=False)
