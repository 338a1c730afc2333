"""Replies of chats between strangers: whose they are, what stands before them, and that `eval text` reads them."""

import json
from pathlib import Path

import pytest

from finetune.free_chat import main, replies
from localmem.errors import BadInput
from localmem.evaluation.file_scoring import read_replies

_SAID = "".join(f"User {1 + number % 2}: line {number}\n" for number in range(8))
CSV = f'user 1 personas,user 2 personas,Best Generated Conversation\n"I bake.\nI am 40.",I sail.,"{_SAID}"\n'


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    path = tmp_path / "chats.csv"
    path.write_text(CSV + CSV.split("\n", 1)[1] * 2, encoding="utf-8")
    return path


def test_user_2_replies_and_every_second_time_knows_user_1(chats: Path, tmp_path: Path) -> None:
    out = tmp_path / "free.jsonl"
    main(chats, out, 5)
    found = read_replies(out)
    assert [one.text for one in found] == ["line 1", "line 5", "line 1", "line 5", "line 1"]
    assert all(one.golds == (one.text,) for one in found)
    assert [one.prompt[-1].content for one in found[:2]] == ["line 0", "line 4"]
    assert [one.role for one in found[1].prompt[1:]] == ["user", "assistant", "user", "assistant", "user"]
    assert ["I am 40." in one.prompt[0].content for one in found] == [True, False, True, False, True]
    assert not any("I sail." in one.prompt[0].content for one in found)


def test_the_same_seed_draws_the_same(chats: Path) -> None:
    assert json.dumps(list(replies(chats, 4))) == json.dumps(list(replies(chats, 4)))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match=r"other\.csv"):
        list(replies(tmp_path / "other.csv", 1))
