"""Existing chats become traces; a file with a wrong line is rejected as a whole."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from finetune.traces.chat_import import import_chats
from finetune.traces.filtering import filter_traces, find_problem
from finetune.traces.trace import read_traces, write_traces
from localmem.errors import BadInput
from localmem.evaluation.answers import Work
from localmem.prompts import load
from localmem.types import Message

CONTEXT = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "What flew in Porto?"}]
ANSWER = {"role": "assistant", "content": "A kite flew in Porto."}


def write(folder: Path, *lines: object) -> Path:
    path = folder / "outputs.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


def test_a_chat_becomes_a_trace_with_its_source(tmp_path: Path) -> None:
    line = {"messages": [*CONTEXT, ANSWER], "metadata": {"conversation": 7, "source": "log", "model": "big"}}
    (trace,) = import_chats(write(tmp_path, line), "respond")
    assert trace.messages[0] == Message("system", "Be brief.")
    assert trace.answer == "A kite flew in Porto."
    about = trace.metadata
    assert (about.work, about.teacher, about.prompt) == (Work("given", "log", "7"), "big", "respond")
    assert (about.source, len(about.source_sha256), about.prompt_sha256) == ("outputs.jsonl", 64, "")
    assert about.max_tokens >= 10


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": CONTEXT, "completion": [ANSWER]},
        {"prompt": "Be brief. What flew in Porto?", "completion": ANSWER["content"]},
        {
            "conversations": [
                {"from": "system", "value": "Be brief."},
                {"from": "human", "value": "What flew in Porto?"},
                {"from": "gpt", "value": ANSWER["content"]},
            ]
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "What?"}]},
                {"role": "assistant", "content": [{"type": "text", "text": ANSWER["content"]}]},
            ]
        },
    ],
)
def test_other_forms_are_read(tmp_path: Path, line: dict[str, object]) -> None:
    (trace,) = import_chats(write(tmp_path, {**line, "conversation": "c"}), "respond")
    assert (trace.answer, trace.metadata.work.episode) == (ANSWER["content"], "c")
    assert "Be brief." in trace.context_text
    assert trace.context[-1].role == "user"


def test_metadata_may_be_on_the_level_of_the_messages(tmp_path: Path) -> None:
    question = {"role": "user", "content": "Remembered: a kite\nNew: no kite\nOperation:"}
    answer = {"role": "assistant", "content": "REPLACE"}
    options = ["PASS", "APPEND", "REPLACE", "DELETE"]
    more = {"prompt": "carecall/operation", "options": options, "choices": {"REPLACE": -0.1}, "gold": "DELETE"}
    (trace,) = import_chats(write(tmp_path, {"messages": [question, answer], **more}), "operation", "theirs")
    about = trace.metadata
    assert (about.prompt_sha256, about.teacher) == (load("carecall/operation").digest, "theirs")
    assert (about.options, about.choices, about.gold) == (tuple(options), {"REPLACE": -0.1}, "DELETE")
    assert find_problem(trace, "operation") == "differs from the human answer"
    assert find_problem(replace(trace, metadata=replace(about, gold=None)), "operation") is None


def test_lines_of_another_collection_stay_as_they_are(tmp_path: Path) -> None:
    first = import_chats(write(tmp_path, {"messages": [*CONTEXT, ANSWER]}), "respond")
    write_traces(tmp_path / "again.jsonl", [replace(first[0], id="")])
    assert import_chats(tmp_path / "again.jsonl", "respond") == first


def test_lines_without_a_conversation_are_divided_one_by_one(tmp_path: Path) -> None:
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"Which kite? Kite{number}."},
                {**ANSWER, "content": f"Kite{number}."},
            ]
        }
        for number in range(300)
    ]
    path = write(tmp_path, *lines, lines[0])
    write_traces(tmp_path / "traces.jsonl", import_chats(path, "respond"))
    result = filter_traces(read_traces(tmp_path / "traces.jsonl"), "respond")
    assert result.dropped == {"duplicate": 1}
    assert all(result.parts.values())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2 is not JSON"),
        ({"messages": [ANSWER]}, "line 2: messages: List should have at least 2 items"),
        ({"messages": [ANSWER, *CONTEXT]}, "line 2: the last message has the role 'user'"),
        ({"messages": [{"role": "tool", "content": "x"}, ANSWER]}, "line 2: messages.0.role: Input should be"),
        ({"messages": [{"role": "user"}, ANSWER]}, "line 2: messages.0.content: Field required"),
        ({"text": "x"}, "line 2: messages: Field required"),
        ({"messages": [{"role": "user", "content": [{"image": 1}]}, ANSWER]}, "line 2: messages.0.content"),
        ({"conversations": [{"from": "tool", "value": "x"}, ANSWER]}, "line 2: messages.0.role"),
        (["x"], "line 2: Input should be"),
        ({"messages": [*CONTEXT, ANSWER], "metadata": {"prompt": "no/such"}}, "line 2: there is no prompt 'no/such'"),
        ({"messages": [*CONTEXT, ANSWER], "prompt": "theanine/link"}, "belongs to the stage 'link'; use --stage link"),
        ({"messages": [*CONTEXT, ANSWER], "metadata": {"max_tokens": 0}}, "line 2: max_tokens"),
        ({"messages": [CONTEXT[1], ANSWER], "metadata": {"work": 3}}, "line 2: metadata.prompt: Field required"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: object, problem: str) -> None:
    with pytest.raises(BadInput) as error:
        import_chats(write(tmp_path, {"messages": [*CONTEXT, ANSWER]}, line), "respond")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        import_chats(tmp_path / "nosuch.jsonl", "respond")
    with pytest.raises(BadInput, match="holds no line"):
        import_chats(write(tmp_path, ""), "respond")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="not UTF-8"):
        import_chats(tmp_path / "binary.jsonl", "respond")
