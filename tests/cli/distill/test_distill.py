"""`localmem distill`: collecting with a scripted teacher, going on after it died, sifting what came of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from finetune.traces.trace import read_traces
from localmem import factory
from localmem.cli.distill import distill
from localmem.errors import BadInput, LLMUnavailable
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt


def log(folder: Path, episodes: int) -> Path:
    """A user's own log: so many conversations of two sessions, with a question each."""
    lines: list[dict[str, object]] = []
    for number in range(episodes):
        user = f"e{number}"
        for day in (1, 2):
            told = {"role": "user", "text": f"I met friend{number} on day {day}."}
            turns = [told, {"role": "assistant", "text": "How nice."}]
            lines.append({"user": user, "id": f"{user}-s{day}", "time": f"2026-03-0{day}T09:00:00Z", "turns": turns})
        lines.append({"user": user, "question": "Whom did I meet?", "answer": f"friend{number}"})
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def teacher(dies_at: str = "never") -> factory.Backbone:
    def answer(asked: Prompt) -> str:
        said = " ".join(message.content for message in asked.messages)
        if dies_at in said:
            raise LLMUnavailable("the server went away; start it again")
        return next(word for word in said.split() if word.startswith("friend"))

    return factory.Backbone(ScriptedLLM(answer), lambda: None)


def call(*words: str) -> dict[str, Any]:
    """A command's JSON document; a list of rows stands under "rows"."""
    done = CliRunner().invoke(distill, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    return {"rows": found} if isinstance(found, list) else dict(found)


def test_collect_goes_on_after_the_teacher_died_and_sift_divides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = log(tmp_path, 12), tmp_path / "collection"
    words = ["collect", "--system", "rsum", "--data", f"jsonl={data}", "--teacher", "smollm2-135m-instruct"]
    words += ["--half", "all", "--threads", "2", "--out", str(out)]
    monkeypatch.setattr(factory, "backbone", lambda *_: teacher("friend7"))
    call(*words)
    before = read_traces(out / "traces" / "summarize.jsonl")
    assert 0 < len(before) < 24
    monkeypatch.setattr(factory, "backbone", lambda *_: teacher())
    call(*words, "--resume")
    held = read_traces(out / "traces" / "summarize.jsonl")
    assert held[: len(before)] == before
    assert len(held) == 24
    assert len(read_traces(out / "traces" / "respond.jsonl")) == 12
    assert held[0].metadata.teacher == "smollm2-135m-instruct"
    assert len(held[0].metadata.teacher_sha256) == 64
    rows = call("sift", str(out))["rows"]
    counted = {row["stage"]: row["train"] + row["valid"] + row["test"] for row in rows}
    assert counted == {"respond": 12, "summarize": 24}
    parts = {part: read_traces(out / part / "summarize.jsonl") for part in ("train", "valid", "test")}
    assert sum(map(len, parts.values())) == 24
    told = {part: {trace.metadata.work.episode for trace in traces} for part, traces in parts.items()}
    assert told["train"].isdisjoint(told["valid"] | told["test"])


def test_a_folder_without_traces_is_an_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(distill, ["sift", str(tmp_path)])
    assert "holds no traces" in str(done.exception)


def test_a_collection_that_never_began_can_be_begun_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["collect", "--system", "rsum", "--data", f"jsonl={log(tmp_path, 1)}", "--half", "all"]
    words += ["--out", str(tmp_path / "collection")]
    with pytest.raises(BadInput, match="no model is called 'nosuch'"):
        CliRunner().invoke(distill, [*words, "--teacher", "nosuch"], catch_exceptions=False)
    monkeypatch.setattr(factory, "backbone", lambda *_: teacher())
    call(*words, "--teacher", "smollm2-135m-instruct")
    with pytest.raises(BadInput, match="go on with --resume"):
        call(*words, "--teacher", "smollm2-135m-instruct")


def given(folder: Path, number: int = 60) -> Path:
    """A user's own outputs: a question and an answer each, every third answer of a liar."""
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"My friend{n} met your friend{n + 1}. Whom did I mention first?"},
                {"role": "assistant", "content": f"friend{n if n % 3 else n + 1}"},
            ],
            "conversation": f"c{n}",
        }
        for n in range(number)
    ]
    path = folder / "outputs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_outputs_that_a_user_has_are_taken_in_once(tmp_path: Path) -> None:
    out = tmp_path / "lessons"
    words = ["collect", "--from", str(given(tmp_path)), "--stage", "respond", "--teacher", "theirs", "--out", str(out)]
    assert call(*words)["collected"] == {"respond": 60}
    assert call(*words)["collected"] == {"respond: asked before": 60}
    held = read_traces(out / "traces" / "respond.jsonl")
    assert {one.metadata.teacher for one in held} == {"theirs"}
    (row,) = call("sift", str(out))["rows"]
    assert row["train"] + row["valid"] + row["test"] == 60


def test_a_bad_line_keeps_its_whole_file_out(tmp_path: Path) -> None:
    path = given(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + '{"messages": []}\n', encoding="utf-8")
    words = ["collect", "--from", str(path), "--stage", "respond", "--out", str(tmp_path / "lessons")]
    with pytest.raises(BadInput, match="line 61"):
        CliRunner().invoke(distill, words, catch_exceptions=False)
    assert not (tmp_path / "lessons").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["collect", "--from", "x", "--out", "y"], "give one --stage"),
        (["collect", "--from", "x", "--out", "y", "--stage", "link", "--system", "rsum"], "nothing is run"),
        (["collect", "--out", "y", "--system", "rsum"], "give --system, --data and --teacher"),
        (["sift", "x", "--judge", "smollm2-135m-instruct"], "--judge and --least go together"),
    ],
)
def test_what_does_not_go_together_is_told(words: list[str], problem: str) -> None:
    done = CliRunner().invoke(distill, words)
    assert done.exit_code == 2
    assert problem in done.output


def test_a_judge_turns_answers_down_and_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, asked = tmp_path / "lessons", []

    def judge(prompt: Prompt) -> str:
        asked.append(prompt.name)
        said = prompt.messages[-1].content
        first, told = said.split("My ")[1].split(" ")[0], said.split("rate: ")[1].split("\n")[0]
        return json.dumps({"score": 90 if first == told else 10})

    call("collect", "--from", str(given(tmp_path)), "--stage", "respond", "--out", str(out))
    monkeypatch.setattr(factory, "backbone", lambda *_: factory.Backbone(ScriptedLLM(judge), lambda: None))
    words = ["sift", str(out), "--judge", "smollm2-135m-instruct", "--least", "50", "--data", str(tmp_path / "data")]
    (row,) = call(*words)["rows"]
    assert row["why"] == {"the judge gave less than 50": 20}
    assert row["train"] + row["valid"] + row["test"] == 40
    assert "not calibrated" in row["judge"]["calibration"]
    assert len(asked) == 60
    assert call(*words)["rows"] == [row]
    assert len(asked) == 60
    with pytest.raises(BadInput, match="the judge 'helpfulness' does not look at one answer"):
        call(*words, "--by", "helpfulness")
    with pytest.raises(BadInput, match="none of 60 traces"):
        call(*words[:-4], "--least", "101", "--data", str(tmp_path / "data"))
