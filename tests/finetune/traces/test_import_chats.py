"""Outputs that a user has already become traces; of a file with a line that cannot be one nothing is kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from finetune.traces.filtering import sift, wrong_with
from finetune.traces.import_chats import read_given
from finetune.traces.trace import read_traces, write_traces
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.prompts import load
from localmem.types import Message

ASKED = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What flew in Porto?"}]
TOLD = {"role": "assistant", "content": "A kite flew in Porto."}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "outputs.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines), encoding="utf-8")
    return path


def test_a_chat_becomes_a_trace_with_its_source(tmp_path: Path) -> None:
    line = {"messages": [*ASKED, TOLD], "metadata": {"conversation": 7, "source": "log", "model": "big"}}
    (trace,) = read_given(written(tmp_path, line), "respond")
    assert trace.messages[0] == Message("system", "Be brief.")
    assert trace.answer == "A kite flew in Porto."
    about = trace.metadata
    assert (about.work, about.teacher, about.prompt) == (Work("given", "log", "7"), "big", "respond")
    assert (about.source, len(about.source_sha256), about.prompt_sha256) == ("outputs.jsonl", 64, "")
    assert about.max_tokens >= 10


def test_what_a_line_says_beside_its_messages_counts_too(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "Remembered: a kite\nNew: no kite\nOperation:"}
    said = {"role": "assistant", "content": "REPLACE"}
    options = ["PASS", "APPEND", "REPLACE", "DELETE"]
    more = {"prompt": "carecall/operation", "options": options, "choices": {"REPLACE": -0.1}, "gold": "DELETE"}
    (trace,) = read_given(written(tmp_path, {"messages": [asked, said], **more}), "operation", "theirs")
    about = trace.metadata
    assert (about.prompt_sha256, about.teacher) == (load("carecall/operation").digest, "theirs")
    assert (about.options, about.choices, about.gold) == (tuple(options), {"REPLACE": -0.1}, "DELETE")
    assert wrong_with(trace, "operation") is None


def test_a_collection_s_own_lines_are_taken_as_they_are(tmp_path: Path) -> None:
    first = read_given(written(tmp_path, {"messages": [*ASKED, TOLD]}), "respond")
    write_traces(tmp_path / "again.jsonl", [replace(first[0], id="")])
    assert read_given(tmp_path / "again.jsonl", "respond") == first


def test_lines_without_a_conversation_are_divided_line_by_line(tmp_path: Path) -> None:
    lines = [
        {"messages": [{"role": "user", "content": f"Which kite? Kite{number}."}, {**TOLD, "content": f"Kite{number}."}]}
        for number in range(300)
    ]
    path = written(tmp_path, *lines, lines[0])
    write_traces(tmp_path / "traces.jsonl", read_given(path, "respond"))
    found = sift(read_traces(tmp_path / "traces.jsonl"), "respond")
    assert found.dropped == {"asked before": 1}
    assert all(found.parts.values())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2 is no JSON"),
        ({"messages": [TOLD]}, "line 2: messages: List should have at least 2 items"),
        ({"messages": [TOLD, *ASKED]}, "line 2: the last message is of the role 'user'"),
        ({"messages": [{"role": "tool", "content": "x"}, TOLD]}, "line 2: messages.0.role: Input should be"),
        ({"messages": [{"role": "user"}, TOLD]}, "line 2: messages.0.content: Field required"),
        ({"text": "x"}, "line 2: messages: Field required"),
        (["x"], "line 2: the line: Input should be"),
        ({"messages": [*ASKED, TOLD], "metadata": {"prompt": "no/such"}}, "line 2: there is no prompt 'no/such'"),
        ({"messages": [*ASKED, TOLD], "prompt": "theanine/link"}, "of the stage 'link'; give --stage link"),
        ({"messages": [*ASKED, TOLD], "metadata": {"max_tokens": 0}}, "line 2: max_tokens"),
        ({"messages": [ASKED[1], TOLD], "metadata": {"work": 3}}, "line 2: metadata.prompt: Field required"),
    ],
)
def test_a_line_that_cannot_be_a_trace_is_named(tmp_path: Path, line: object, problem: str) -> None:
    with pytest.raises(BadInput) as told:
        read_given(written(tmp_path, {"messages": [*ASKED, TOLD]}, line), "respond")
    assert problem in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        read_given(tmp_path / "nosuch.jsonl", "respond")
    with pytest.raises(BadInput, match="holds no line"):
        read_given(written(tmp_path, ""), "respond")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="no text in UTF-8"):
        read_given(tmp_path / "binary.jsonl", "respond")
