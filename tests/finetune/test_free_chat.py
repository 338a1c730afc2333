"""Replies of free chat: whose they are, what precedes them, and that `eval text` reads them."""

import json
from pathlib import Path

import pytest

from finetune.free_chat import make_replies, write_replies
from localmem.errors import BadInput
from localmem.evaluation.file_scoring import read_replies

_LINES = "".join(f"User {1 + number % 2}: line {number}\n" for number in range(8))
CSV = f'user 1 personas,user 2 personas,Best Generated Conversation\n"I bake.\nI am 40.",I sail.,"{_LINES}"\n'


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.csv"
    path.write_text(CSV + CSV.split("\n", 1)[1] * 2, encoding="utf-8")
    return path


def test_user_2_replies_and_every_second_prompt_describes_user_1(chats: Path, tmp_path: Path) -> None:
    out = tmp_path / "free.jsonl"
    write_replies(chats, out, 5)
    replies = read_replies(out)
    assert [reply.text for reply in replies] == ["line 1", "line 5", "line 1", "line 5", "line 1"]
    assert all(reply.golds == (reply.text,) for reply in replies)
    assert [reply.prompt[-1].content for reply in replies[:2]] == ["line 0", "line 4"]
    assert [message.role for message in replies[1].prompt[1:]] == ["user", "assistant", "user", "assistant", "user"]
    assert ["I am 40." in reply.prompt[0].content for reply in replies] == [True, False, True, False, True]
    assert not any("I sail." in reply.prompt[0].content for reply in replies)


def test_the_same_seed_selects_the_same_replies(chats: Path) -> None:
    assert json.dumps(list(make_replies(chats, 4))) == json.dumps(list(make_replies(chats, 4)))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match=r"other\.csv"):
        list(make_replies(tmp_path / "other.csv", 1))
