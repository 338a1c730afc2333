"""The latency benchmark measures the times of a backbone whose times are known, and where other time goes."""

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem import factory
from localmem.benchmark.latency import client
from localmem.benchmark.latency.result import RESULT, SAMPLES, LatencyResult, Measurement, load_result, read_samples
from localmem.benchmark.latency.stopwatch import Stopwatch, TimedLLM
from localmem.benchmark.recipes import LatencyRecipe
from localmem.config import load_settings
from localmem.errors import BadInput, LLMError
from localmem.experiments.benchmarks import LatencySetup, claim, run_measurements
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


def _measure(folder: Path, llm: LLM | None = None, titles: list[str] | None = None, **changes: object) -> LatencyResult:
    recipe = LatencyRecipe.model_validate({**BASE, **changes})
    settings = load_settings(flags=recipe.settings)
    stores = folder / "stores"
    stores.mkdir(parents=True, exist_ok=True)
    existing = claim(folder, {"arguments": recipe.model_dump(mode="json")}, resume=True)
    backbone = llm or client.scripted_llm(recipe.answer, first_token=FIRST, per_token=PER)
    setup = LatencySetup(recipe, settings, backbone, stores, lambda _title, sessions: sessions)

    def progress(title: str, _requests: int) -> Callable[[], object]:
        (titles if titles is not None else []).append(title)
        return lambda: None

    return run_measurements(recipe, existing, setup.environment, folder, progress)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def point(folder: Path) -> Measurement:
    (point,) = _measure(folder).points
    return point


def test_background_builds_finish_between_warm_up_and_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(dense, "wait_for_builds", lambda: counts.append(len(list(read_samples(tmp_path)))))
    _measure(tmp_path)
    turns = [sample for sample in read_samples(tmp_path) if sample.kind == "turn"]
    assert counts == [2 * sum(sample.warm_up and ".warm" in sample.session for sample in turns)], (
        "each has a bare request too"
    )


def test_known_times_are_measured(point: Measurement, folder: Path) -> None:
    """Sleep never ends early, so no sample is below the known time; a busy machine may delay some."""
    assert point.bare is not None
    for part in (point.turns, point.bare):
        assert part.figures["p50_ttft_ms"] >= 1000 * FIRST
        assert part.figures["mean_itl_ms"] >= 1000 * PER
        assert part.figures["mean_tpot_ms"] >= 1000 * PER
    samples = [sample for sample in read_samples(folder) if sample.kind == "bare"]
    assert min(sample.ttft_ms or 0 for sample in samples) == pytest.approx(1000 * FIRST, rel=1)
    assert min(gap for sample in samples for gap in sample.itl_ms) == pytest.approx(1000 * PER, rel=1)


def test_warm_up_requests_do_not_count(point: Measurement, folder: Path) -> None:
    """Two users; sessions of three turns, of which the first only warms the cache: two rounds give eight requests."""
    assert (point.requests, point.turns.figures["completed"]) == (8, 8)
    assert point.warm_up == 2 * (1 + 2)
    samples = list(read_samples(folder))
    assert (
        sum(sample.kind == "turn" for sample in samples)
        == sum(sample.kind == "bare" for sample in samples)
        == 2 * (1 + 2 * 3)
    )
    assert sum(sample.kind == "end" for sample in samples) == 1, "of two rounds only the first has one"
    assert any("8 requests, fewer than 100" in mark for mark in point.marks)
    assert point.units == 4


def test_stages_add_up_to_the_latency(folder: Path) -> None:
    turns = [sample for sample in read_samples(folder) if sample.kind == "turn"]
    assert turns
    for sample in turns:
        stages = [(name, took) for name, took in sample.stages.items() if not name.startswith("after:")]
        until = [name for name, _ in stages].index("first_token")
        assert sum(took for _, took in stages[: until + 1]) == pytest.approx(sample.ttft_ms, abs=0.01)
        assert sum(took for _, took in stages) == pytest.approx(sample.e2el_ms, abs=0.01)
        assert {"store", "search", "prompt", "first_token", "decode", "after:store"} <= set(sample.stages)


def test_bare_requests_have_the_prompts_of_the_turns(folder: Path) -> None:
    samples = list(read_samples(folder))
    of = {kind: [sample for sample in samples if sample.kind == kind] for kind in ("turn", "bare")}
    tokens = {
        kind: sorted(
            (sample.user, sample.session, sample.turn, sample.input_tokens, sample.output_tokens)
            for sample in samples_of_kind
        )
        for kind, samples_of_kind in of.items()
    }
    assert tokens["turn"] == tokens["bare"]


def test_a_slow_encoder_counts_as_embedding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from localmem.benchmark.corpus import WordVectors

    class SlowEncoder(WordVectors):
        def encode(self, texts: Sequence[str], side: str) -> NDArray[np.float32]:
            if side == "query":
                time.sleep(0.25)
            return super().encode(texts, side)  # type: ignore[arg-type]

    slow = SlowEncoder(32)
    monkeypatch.setattr(factory, "encoder", lambda settings, cache: slow)
    (point,) = _measure(tmp_path, settings={"retrieval": {"retriever": "dense"}}).points
    assert point.turns.stages["embed"].p50_ms >= 250
    assert point.turns.stages["search"].p50_ms < 125
    assert point.turns.stages["prompt"].p50_ms < 125
    assert point.overhead is not None
    assert point.overhead.own_ttft_p50_ms is not None
    assert point.overhead.own_ttft_p50_ms <= point.overhead.ttft_p50_ms - 240


def test_calls_of_the_memory_are_reported_by_prompt(tmp_path: Path) -> None:
    quick = client.scripted_llm(WORDS, first_token=0.004)
    (point,) = _measure(tmp_path, quick, systems=("theanine",), bare=False).points
    assert point.turns.calls["theanine/respond"].calls == 1
    assert point.ends is not None
    assert point.ends.calls["theanine/summarize"].calls == 1
    assert point.ends.stages["llm:theanine/summarize"].p50_ms >= 4
    assert {"commit", "other"} <= set(point.ends.stages)


def test_sessions_are_remembered_while_others_talk(tmp_path: Path) -> None:
    idle, busy = _measure(tmp_path, systems=("rsum",), during_ends=True, ends=0).points
    assert (idle.during_ends, busy.during_ends) == (False, True)
    assert idle.ends is None
    assert busy.ends is not None
    assert busy.ends.figures["completed"] >= 2
    assert busy.requests == idle.requests
    talking = [sample for sample in read_samples(tmp_path) if sample.point == busy.id and sample.kind == "end"]
    assert all(sample.user.startswith("writer") for sample in talking)


def test_failed_requests_are_counted_and_marked(tmp_path: Path) -> None:
    def script(prompt: Prompt) -> str:
        if "number 3:" in prompt.messages[-1].content:
            raise LLMError("the server is gone; start it")
        return "fine words"

    (point,) = _measure(tmp_path, ScriptedLLM(script)).points
    assert point.turns.figures["failed"] > 0
    assert any("requests failed" in mark for mark in point.marks)
    failed = [sample for sample in read_samples(tmp_path) if sample.error]
    assert {sample.error for sample in failed if sample.kind == "turn"} == {"LLMError: the server is gone; start it"}


def test_a_run_resumes_at_the_first_missing_measurement(tmp_path: Path) -> None:
    first = _measure(tmp_path, systems=("none", "exchange_retrieval"), bare=False)
    content = (tmp_path / SAMPLES).read_bytes()
    _interrupt(tmp_path, first, points=1)
    titles: list[str] = []
    second = _measure(tmp_path, titles=titles, systems=("none", "exchange_retrieval"), bare=False)
    assert titles == ["exchange_retrieval/c2/h2/warm (2 of 2)"]
    assert second.points[0].turns == first.points[0].turns
    assert [sample.id for sample in load_result(tmp_path).points] == [sample.id for sample in first.points]
    assert len((tmp_path / SAMPLES).read_bytes().splitlines()) == len(content.splitlines())


def _interrupt(folder: Path, result: LatencyResult, points: int) -> None:
    """Leave the folder as a run that was killed in its last measurement, with some of its samples."""
    from localmem.benchmark.latency.result import save_result

    save_result(folder, LatencyResult(result.about, result.points[:points]))
    lines = (folder / SAMPLES).read_bytes().splitlines(keepends=True)
    (folder / SAMPLES).write_bytes(b"".join(lines[:-3]) + lines[-3][:40])


def test_the_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    result = _measure(tmp_path, bare=False)
    with pytest.raises(BadInput, match="contains a run; continue it with --resume"):
        claim(tmp_path, result.about, resume=False)
    with pytest.raises(BadInput, match="contains a run with a different seed"):
        claim(tmp_path, {**result.about, "seed": 5}, resume=True)
    (tmp_path / RESULT).write_text("{}")
    with pytest.raises(BadInput, match="give the folder of a run"):
        claim(tmp_path, result.about, resume=True)


def test_timing_changes_no_answer() -> None:
    llm = client.scripted_llm(5)
    from tests.llm.prompts import ask, collect

    assert collect(TimedLLM(llm, Stopwatch()).stream(ask(name="agent/respond"))) == collect(
        llm.stream(ask(name="agent/respond"))
    )


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_salts_are_valid_and_differ_between_turns_and_bare_requests(tmp_path: Path, cache: str) -> None:
    salts: list[str] = []

    def script(prompt: Prompt) -> str:
        salts.append(str(prompt.extra["cache_salt"]))
        return "fine words"

    _measure(tmp_path, ScriptedLLM(script), cache=(cache,), ends=0)
    assert all(re.fullmatch(r"[0-9a-f-]{1,128}", salt) for salt in salts)
    assert len(set(salts)) == (2 if cache == "warm" else len(salts))
