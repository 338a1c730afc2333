"""The bench measures right: over a backbone of given times it finds these times, and what else takes time."""

import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem import factory
from localmem.benchmark.latency import run, synthetic_history
from localmem.benchmark.latency.plan import Plan, Spec
from localmem.benchmark.latency.result import RESULT, SAMPLES, Point, Result, Sample, load_result, read_samples
from localmem.benchmark.latency.stopwatch import Clock, WatchedLLM
from localmem.config import load_settings
from localmem.errors import BadInput, LLMError
from localmem.experiments.latency_setup import Worlds
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval import dense
from localmem.types import Prompt

FIRST, PER, WORDS = 0.05, 0.005, 9
BASE = {
    "systems": ("exchange_retrieval",),
    "scripted": {"first_token": FIRST, "per_token": PER},
    "settings": {"retrieval": {"retriever": "bm25"}},
    "concurrency": (2,), "history": (2,), "exchanges": 2, "requests": 8, "turns": 3, "answer": WORDS, "warm_up": 1,
    "ends": 1,
}  # fmt: skip


class Silent:
    """A bar that nobody sees."""

    def __init__(self) -> None:
        self.points: list[str] = []

    def point(self, spec: Spec, requests: int) -> None:
        self.points.append(spec.id)

    def sample(self, sample: Sample) -> None:
        return


def _measured(folder: Path, llm: LLM | None = None, bar: Silent | None = None, **changed: object) -> Result:
    plan = Plan.of({**BASE, **changed})
    settings = load_settings(flags=plan.settings)
    stores = folder / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    held = run.claim(folder, {"arguments": plan.model_dump(mode="json")}, resume=True)
    backbone = llm or synthetic_history.scripted(plan.answer, first_token=FIRST, per_token=PER, name="scripted")
    worlds = Worlds(plan, settings, backbone, stores, lambda _what, sessions: sessions)
    return run.run(plan, held, worlds.world, folder, bar or Silent())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def point(folder: Path) -> Point:
    (point,) = _measured(folder).points
    return point


def test_what_is_built_behind_is_waited_for_between_warm_up_and_the_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(dense, "settle_all", lambda: seen.append(len(list(read_samples(tmp_path)))))
    _measured(tmp_path, bar=Silent())
    turns = [sample for sample in read_samples(tmp_path) if sample.kind == "turn"]
    assert seen == [2 * sum(sample.warm_up and ".warm" in sample.session for sample in turns)], "each asked bare, too"


def test_given_times_are_found_again(point: Point, folder: Path) -> None:
    """Sleep never ends early, so no sample is below the given time; a busy machine may make some of them late."""
    assert point.bare is not None
    for part in (point.turns, point.bare):
        assert part.figures["p50_ttft_ms"] >= 1000 * FIRST
        assert part.figures["mean_itl_ms"] >= 1000 * PER
        assert part.figures["mean_tpot_ms"] >= 1000 * PER
    samples = [one for one in read_samples(folder) if one.kind == "bare"]
    assert min(one.ttft_ms or 0 for one in samples) == pytest.approx(1000 * FIRST, rel=1)
    assert min(gap for one in samples for gap in one.itl_ms) == pytest.approx(1000 * PER, rel=1)


def test_requests_are_counted_and_warm_ups_left_out(point: Point, folder: Path) -> None:
    """Two users; sessions of three turns, of which the first only warms the cache: two rounds give eight requests."""
    assert (point.requests, point.turns.figures["completed"]) == (8, 8)
    assert point.warm_up == 2 * (1 + 2)
    samples = list(read_samples(folder))
    assert sum(one.kind == "turn" for one in samples) == sum(one.kind == "bare" for one in samples) == 2 * (1 + 2 * 3)
    assert sum(one.kind == "end" for one in samples) == 1, "of two rounds only the first has one"
    assert any("8 requests, fewer than 100" in mark for mark in point.marks)
    assert point.units == 4


def test_stages_add_up_to_what_the_user_waits(folder: Path) -> None:
    for sample in read_samples(folder):
        if sample.kind == "turn":
            stages = [(name, took) for name, took in sample.stages.items() if not name.startswith("after:")]
            until = [name for name, _ in stages].index("first_token")
            assert sum(took for _, took in stages[: until + 1]) == pytest.approx(sample.ttft_ms, abs=0.01)
            assert sum(took for _, took in stages) == pytest.approx(sample.e2el_ms, abs=0.01)
            assert {"store", "search", "prompt", "first_token", "decode", "after:store"} <= set(sample.stages)


def test_bare_prompts_are_those_of_the_turns(folder: Path) -> None:
    samples = list(read_samples(folder))
    of = {kind: [one for one in samples if one.kind == kind] for kind in ("turn", "bare")}
    tokens = {
        kind: sorted((one.user, one.session, one.turn, one.input_tokens, one.output_tokens) for one in held)
        for kind, held in of.items()
    }
    assert tokens["turn"] == tokens["bare"]


def test_a_slow_encoder_is_the_embeddings_doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from localmem.benchmark.corpus import WordVectors

    class Slow(WordVectors):
        def encode(self, texts: Sequence[str], side: str) -> NDArray[np.float32]:
            if side == "query":
                time.sleep(0.25)
            return super().encode(texts, side)  # type: ignore[arg-type]

    slow = Slow(32)
    monkeypatch.setattr(factory, "encoder", lambda settings, cache: slow)
    monkeypatch.setattr(Worlds, "_encoder", slow)
    (point,) = _measured(tmp_path, settings={"retrieval": {"retriever": "dense"}}).points
    assert point.turns.stages["embed"].p50_ms >= 250
    assert point.turns.stages["search"].p50_ms < 125
    assert point.turns.stages["prompt"].p50_ms < 125
    assert point.overhead is not None
    assert point.overhead.own_ttft_p50_ms is not None
    assert point.overhead.own_ttft_p50_ms <= point.overhead.ttft_p50_ms - 240


def test_calls_of_the_memory_are_told_by_prompt(tmp_path: Path) -> None:
    quick = synthetic_history.scripted(WORDS, first_token=0.004, name="scripted")
    (point,) = _measured(tmp_path, quick, systems=("theanine",), bare=False).points
    assert point.turns.calls["theanine/respond"].calls == 1
    assert point.ends is not None
    assert point.ends.calls["theanine/summarize"].calls == 1
    assert point.ends.stages["llm:theanine/summarize"].p50_ms >= 4
    assert {"commit", "other"} <= set(point.ends.stages)


def test_sessions_are_remembered_while_others_talk(tmp_path: Path) -> None:
    idle, busy = _measured(tmp_path, systems=("rsum",), during_ends=True, ends=0).points
    assert (idle.during_ends, busy.during_ends) == (False, True)
    assert idle.ends is None
    assert busy.ends is not None
    assert busy.ends.figures["completed"] >= 2
    assert busy.requests == idle.requests
    talking = [one for one in read_samples(tmp_path) if one.point == busy.id and one.kind == "end"]
    assert all(one.user.startswith("writer") for one in talking)


def test_what_fails_is_counted_and_marked(tmp_path: Path) -> None:
    def script(prompt: Prompt) -> str:
        if "number 3:" in prompt.messages[-1].content:
            raise LLMError("the server is gone; start it")
        return "fine words"

    (point,) = _measured(tmp_path, ScriptedLLM(script)).points
    assert point.turns.figures["failed"] > 0
    assert any("requests failed" in mark for mark in point.marks)
    failed = [one for one in read_samples(tmp_path) if one.error]
    assert {one.error for one in failed if one.kind == "turn"} == {"LLMError: the server is gone; start it"}


def test_a_run_goes_on_at_the_first_point_it_has_not(tmp_path: Path) -> None:
    first = _measured(tmp_path, systems=("none", "exchange_retrieval"), bare=False)
    whole = (tmp_path / SAMPLES).read_bytes()
    _leave(tmp_path, first, points=1)
    bar = Silent()
    again = _measured(tmp_path, bar=bar, systems=("none", "exchange_retrieval"), bare=False)
    assert bar.points == ["exchange_retrieval/c2/h2/warm"]
    assert again.points[0].turns == first.points[0].turns
    assert [one.id for one in load_result(tmp_path).points] == [one.id for one in first.points]
    assert len((tmp_path / SAMPLES).read_bytes().splitlines()) == len(whole.splitlines())


def _leave(folder: Path, result: Result, points: int) -> None:
    """As a run that was killed in its last point leaves it: with some of that point's samples."""
    from localmem.benchmark.latency.result import save_result

    save_result(folder, Result(result.about, result.points[:points]))
    lines = (folder / SAMPLES).read_bytes().splitlines(keepends=True)
    (folder / SAMPLES).write_bytes(b"".join(lines[:-3]) + lines[-3][:40])


def test_another_runs_folder_is_refused(tmp_path: Path) -> None:
    result = _measured(tmp_path, bare=False)
    with pytest.raises(BadInput, match="holds a run; go on with --resume"):
        run.claim(tmp_path, result.about, resume=False)
    with pytest.raises(BadInput, match="holds a run with another seed"):
        run.claim(tmp_path, {**result.about, "seed": 5}, resume=True)
    (tmp_path / RESULT).write_text("{}")
    with pytest.raises(BadInput, match="is no result"):
        run.claim(tmp_path, result.about, resume=True)


def test_watching_changes_no_answer() -> None:
    llm = synthetic_history.scripted(5, name="scripted")
    from tests.llm.asking import ask, collected

    assert collected(WatchedLLM(llm, Clock()).stream(ask(name="agent/respond"))) == collected(
        llm.stream(ask(name="agent/respond"))
    )


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_salts_are_such_as_vllm_takes_and_keep_turns_and_bare_requests_apart(tmp_path: Path, cache: str) -> None:
    salts: list[str] = []

    def script(prompt: Prompt) -> str:
        salts.append(str(prompt.extra["cache_salt"]))
        return "fine words"

    _measured(tmp_path, ScriptedLLM(script), cache=(cache,), ends=0)
    assert all(re.fullmatch(r"[0-9a-f-]{1,128}", salt) for salt in salts)
    assert len(set(salts)) == (2 if cache == "warm" else len(salts))
