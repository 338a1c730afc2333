"""The stopwatch, on a stopwatch that tests set: a stage counts its own time only, and threads do not mix."""

import threading
from collections.abc import Generator, Sequence

import pytest

from localmem.benchmark.latency.stopwatch import SaltedLLM, Stopwatch, TimedLLM
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Completion, Prompt
from tests.fakes import WordEncoder, WordRetriever, unit
from tests.llm.prompts import ask, collect


class ManualClock:
    """A stopwatch that moves only when a test moves it; the same for every thread."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


class Slow:
    """Parts that take time on that stopwatch."""

    def __init__(self, clock_time: ManualClock, encoder: "Slow | None" = None, encodes: float = 0.030) -> None:
        self._hands = clock_time
        self._encodes = encodes
        self._encoder = encoder
        self.memory = 7

    def encode(self, texts: Sequence[str], side: str) -> list[str]:
        self._hands.at += self._encodes
        return list(texts)

    def search(self, queries: Sequence[str], k: int) -> list[str]:
        self._hands.at += 0.004
        matches = self._encoder.encode(queries, "query") if self._encoder else []
        self._hands.at += 0.001
        return matches


class SlowLLM(ScriptedLLM):
    """Two pieces: the first after 50 ms, the next 5 ms later."""

    def __init__(self, clock_time: ManualClock) -> None:
        super().__init__(lambda prompt: "so be it")
        self._hands = clock_time

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        self._hands.at += 0.050
        yield "so"
        self._hands.at += 0.005
        yield " be it"
        return Completion("so be it")

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self._hands.at += 0.200
        return [Completion("done") for _ in prompts]


@pytest.fixture
def clock_time() -> ManualClock:
    return ManualClock()


@pytest.fixture
def stopwatch(clock_time: ManualClock) -> Stopwatch:
    return Stopwatch(clock_time)


def test_time_in_an_inner_part_is_that_parts(stopwatch: Stopwatch, clock_time: ManualClock) -> None:
    encoder = stopwatch.wrap(Slow(clock_time))
    index = stopwatch.wrap(Slow(clock_time, encoder))
    with stopwatch.measure() as reading:
        assert index.search(["a question"], 3) == ["a question"]
    assert reading.stages == pytest.approx({"embed": 30.0, "search": 5.0})


def test_a_slow_encoder_lengthens_only_embed(stopwatch: Stopwatch, clock_time: ManualClock) -> None:
    readings = []
    for seconds in (0.030, 1.0):
        index = stopwatch.wrap(Slow(clock_time, stopwatch.wrap(Slow(clock_time, encodes=seconds))))
        with stopwatch.measure() as reading:
            index.search([""], 1)
        readings.append(reading.stages)
    quick, late = readings
    assert late["embed"] == pytest.approx(1000.0)
    assert late["search"] == pytest.approx(quick["search"])
    assert set(late) == {"embed", "search"}


def test_a_reply_is_first_token_and_decoding(stopwatch: Stopwatch, clock_time: ManualClock) -> None:
    llm: LLM = TimedLLM(SlowLLM(clock_time), stopwatch)
    with stopwatch.measure() as reading:
        llm.generate([ask(name="theanine/refine")])
        for _ in llm.stream(ask(name="agent/respond")):
            clock_time.at += 0.007  # time of the consumer, not of decoding
        with stopwatch.stage("store"):
            clock_time.at += 0.002
    assert reading.stages == pytest.approx(
        {"llm:theanine/refine": 200.0, "first_token": 50.0, "decode": 5.0, "after:store": 2.0}
    )
    assert {name: spent.calls for name, spent in reading.calls.items()} == {"theanine/refine": 1, "agent/respond": 1}


def test_threads_do_not_mix() -> None:
    stopwatch = Stopwatch()
    gate = threading.Barrier(2)
    readings: dict[str, dict[str, float]] = {}

    def request(name: str) -> None:
        with stopwatch.measure() as reading:
            gate.wait()
            with stopwatch.stage(name):
                gate.wait()
            readings[name] = dict(reading.stages)

    threads = [threading.Thread(target=request, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: list(stages) for name, stages in readings.items()} == {"first": ["first"], "second": ["second"]}


def test_parts_work_without_a_measurement(stopwatch: Stopwatch, clock_time: ManualClock) -> None:
    timed = stopwatch.wrap(Slow(clock_time))
    assert timed.encode(["text"], "query") == ["text"]
    assert timed.memory == 7
    assert stopwatch.reading is None


def test_a_timed_retriever_works(stopwatch: Stopwatch) -> None:
    index = stopwatch.wrap(WordRetriever())
    index.add([unit("a", "green tea"), unit("b", "black tea")])
    with stopwatch.measure() as reading:
        assert [match.id for match in index.search(["green"], 1)[0]] == ["a"]
        assert stopwatch.wrap(WordEncoder()).encode(["tea"], "passage").shape == (1, 512)
    assert set(reading.stages) == {"search", "embed"}


def test_prompts_get_salts() -> None:
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return "fine"

    numbers = iter("abc")
    llm = SaltedLLM(ScriptedLLM(script), lambda: next(numbers))
    llm.generate([ask(), ask(extra={"cache_salt": "own"})])
    collect(llm.stream(ask()))
    assert [prompt.extra["cache_salt"] for prompt in prompts] == ["a", "own", "c"]
