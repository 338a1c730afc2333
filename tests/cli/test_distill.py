"""`localmem distill`: collecting with a scripted teacher, going on after it died, sifting what came of it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from finetune.traces import read_traces
from localmem import build
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


def teacher(dies_at: str = "never") -> build.Backbone:
    def answer(asked: Prompt) -> str:
        said = " ".join(message.content for message in asked.messages)
        if dies_at in said:
            raise LLMUnavailable("the server went away; start it again")
        return next(word for word in said.split() if word.startswith("friend"))

    return build.Backbone(ScriptedLLM(answer), lambda: None)


def call(*words: str) -> object:
    done = CliRunner().invoke(distill, [*words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_collect_goes_on_after_the_teacher_died_and_sift_divides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = log(tmp_path, 12), tmp_path / "collection"
    words = ["collect", "--system", "rsum", "--data", f"jsonl={data}", "--teacher", "smollm2-135m-instruct"]
    words += ["--half", "all", "--threads", "2", "--out", str(out)]
    monkeypatch.setattr(build, "backbone", lambda *_: teacher("friend7"))
    call(*words)
    before = read_traces(out / "traces" / "summarize.jsonl")
    assert 0 < len(before) < 24
    monkeypatch.setattr(build, "backbone", lambda *_: teacher())
    call(*words, "--resume")
    held = read_traces(out / "traces" / "summarize.jsonl")
    assert held[: len(before)] == before
    assert len(held) == 24
    assert len(read_traces(out / "traces" / "respond.jsonl")) == 12
    assert held[0].metadata.teacher == "smollm2-135m-instruct"
    assert len(held[0].metadata.teacher_sha256) == 64
    rows = call("sift", str(out))
    counted = {row["stage"]: row["train"] + row["valid"] + row["test"] for row in rows}  # type: ignore[attr-defined]
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
    monkeypatch.setattr(build, "backbone", lambda *_: teacher())
    call(*words, "--teacher", "smollm2-135m-instruct")
    with pytest.raises(BadInput, match="go on with --resume"):
        call(*words, "--teacher", "smollm2-135m-instruct")
