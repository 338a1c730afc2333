"""This bench beside vLLM's own: the same prompts go to both, the ratios are right, and a failed request is no figure.

The server and vLLM's program are stand-ins; `localmem bench agreement` runs the real ones.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from localmem.benchmark.latency import agreement
from localmem.benchmark.latency.agreement import Row, Server, Theirs, Work, arguments, ours, rounds, rows
from localmem.errors import LLMError
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Prompt

SERVER = Server("http://127.0.0.1:1", "a key", "m", Path("tokenizer"))
WORK = Work(("one", "two", "three"), answer=4, concurrency=2)

# Writes down its arguments and the prompts that it finds, and tells figures.
PROGRAM = """
import json, os, pathlib, sys
print("ready", flush=True)
for line in sys.stdin:
    words = json.loads(line)
    given = dict(zip(words[:-5:2], words[1:-5:2]))
    prompts = [json.loads(line)["prompt"] for line in open(given["--dataset-path"])]
    pathlib.Path(os.environ["SEEN"]).write_text(json.dumps([prompts, words[-5:], os.environ["OPENAI_API_KEY"]]))
    told = {"completed": int(os.environ["COMPLETED"]), "mean_ttft_ms": 20, "date": "today"}
    (pathlib.Path(given["--result-dir"]) / "result.json").write_text(json.dumps(told))
    print("done", flush=True)
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for vLLM's program says what it was given."""
    monkeypatch.setattr(agreement, "_PROGRAM", PROGRAM)
    monkeypatch.setitem(os.environ, "SEEN", str(tmp_path / "seen.json"))
    monkeypatch.setitem(os.environ, "COMPLETED", "3")
    return tmp_path / "seen.json"


def test_prompts_follow_the_seed_and_differ() -> None:
    made = Work.made(5, 4, 2, seed=1)
    assert made == Work.made(5, 4, 2, seed=1) != Work.made(5, 4, 2, seed=2)
    assert len(set(made.prompts)) == 5


def test_ours_sends_each_prompt_once_under_one_salt() -> None:
    asked: list[Prompt] = []

    def answer(prompt: Prompt) -> str:
        asked.append(prompt)
        return "a b c d"

    found = ours(WORK, ScriptedLLM(answer, first_token=0.02, per_token=0.001))
    assert sorted(prompt.messages[0].content for prompt in asked) == ["one", "three", "two"]
    (salt,) = {prompt.extra["cache_salt"] for prompt in asked}
    assert {(prompt.max_tokens, prompt.extra["ignore_eos"]) for prompt in asked} == {(4, True)}
    assert (found["completed"], found["total_output_tokens"]) == (3, 12)
    assert found["mean_ttft_ms"] >= 20
    assert found["mean_itl_ms"] == pytest.approx(found["mean_tpot_ms"] * 3 / 4, rel=0.01), (
        "n gaps, the first of no length"
    )
    ours(WORK, ScriptedLLM(answer))
    assert asked[-1].extra["cache_salt"] != salt, "the next round finds nothing in the cache"


def test_ours_fails_where_a_request_fails() -> None:
    def answer(prompt: Prompt) -> str:
        raise LLMError("gone")

    with pytest.raises(LLMError, match=r"3 of 3 requests failed: .*gone"):
        ours(WORK, ScriptedLLM(answer))


def test_theirs_is_given_the_same_prompts(seen: Path) -> None:
    with Theirs(SERVER) as bench:
        assert bench.run(WORK) == {"completed": 3.0, "mean_ttft_ms": 20.0}
        prompts, flags, key = json.loads(seen.read_text())
        bench.run(replace(WORK, prompts=("four", "five", "six")))
    assert prompts == ["one", "two", "three"]
    assert json.loads(seen.read_text())[0] == ["four", "five", "six"]
    assert flags == ["--ignore-eos", "--disable-shuffle", "--skip-chat-template", "--save-result", "--disable-tqdm"]
    assert key == "a key"


def test_theirs_fails_where_a_request_fails(seen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "COMPLETED", "2")
    with Theirs(SERVER) as bench, pytest.raises(LLMError, match="2 of 3 requests were answered"):
        bench.run(WORK)


def test_theirs_fails_with_what_vllm_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_PROGRAM", "raise SystemExit('no vllm')")
    with pytest.raises(LLMError, match="vllm bench serve failed: no vllm"):
        Theirs(SERVER).__enter__()
    monkeypatch.setattr(agreement, "_PROGRAM", "print('ready', flush=True); input(); raise SystemExit('no model')")
    with Theirs(SERVER) as bench, pytest.raises(LLMError, match="vllm bench serve failed: no model"):
        bench.run(WORK)


def test_what_vllm_is_told() -> None:
    given = arguments(WORK, SERVER, Path("place"), "salt")
    named = dict(zip(given[:-5:2], given[1:-5:2], strict=True))
    assert (named["--base-url"], named["--model"], named["--tokenizer"]) == ("http://127.0.0.1:1", "m", "tokenizer")
    assert (named["--num-prompts"], named["--custom-output-len"], named["--max-concurrency"]) == ("3", "4", "2")
    assert json.loads(named["--extra-body"]) == {"cache_salt": "salt"}


def test_who_is_first_changes_with_the_round(seen: Path) -> None:
    order: list[str] = []

    def answer(prompt: Prompt) -> str:
        order.append("theirs before" if seen.exists() else "ours before")
        return "a"

    found = list(rounds(Work(("one",) * 3, 1, 1), ScriptedLLM(answer), SERVER, 1))
    assert found[0][1]["mean_ttft_ms"] == 20
    assert set(order) == {"ours before"}
    seen.unlink()
    list(rounds(Work(("one",) * 3, 1, 1), ScriptedLLM(answer), SERVER, 2))
    assert order[3:] == ["ours before"] * 3 + ["theirs before"] * 3


def test_ratios_of_medians_and_of_single_rounds() -> None:
    found = [({"mean_ttft_ms": mine}, {"mean_ttft_ms": other}) for mine, other in ((10, 10), (12, 10), (33, 30))]
    assert rows(found) == [Row("mean_ttft_ms", 12, 10, 1.2, 1.0, 1.2)]
