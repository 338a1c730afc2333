"""The stopwatch, on a clock that is turned by hand: a stage has its own time alone, and threads do not mix."""

import threading
from collections.abc import Generator, Sequence

import pytest

from localmem.benchmark.latency.stopwatch import Clock, Salted, WatchedLLM
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Completion, Prompt
from tests.fakes import WordEncoder, WordRetriever, unit
from tests.llm.asking import ask, collected


class Hands:
    """A clock's hands: every thread sees the same time, which goes on when it is told to."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


class Slow:
    """Parts that take their time on those hands."""

    def __init__(self, hands: Hands, encoder: "Slow | None" = None, encodes: float = 0.030) -> None:
        self._hands = hands
        self._encodes = encodes
        self._encoder = encoder
        self.memory = 7

    def encode(self, texts: Sequence[str], side: str) -> list[str]:
        self._hands.at += self._encodes
        return list(texts)

    def search(self, queries: Sequence[str], k: int) -> list[str]:
        self._hands.at += 0.004
        found = self._encoder.encode(queries, "query") if self._encoder else []
        self._hands.at += 0.001
        return found


class SlowLLM(ScriptedLLM):
    """Two pieces: the first after 50 ms, the next 5 ms behind it."""

    def __init__(self, hands: Hands) -> None:
        super().__init__(lambda prompt: "so be it")
        self._hands = hands

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
def hands() -> Hands:
    return Hands()


@pytest.fixture
def clock(hands: Hands) -> Clock:
    return Clock(hands)


def test_what_one_part_spends_in_another_is_the_others(clock: Clock, hands: Hands) -> None:
    encoder = clock.watch(Slow(hands))
    index = clock.watch(Slow(hands, encoder))
    with clock.measuring() as reading:
        assert index.search(["a question"], 3) == ["a question"]
    assert reading.stages == pytest.approx({"embed": 30.0, "search": 5.0})


def test_a_slow_encoder_shows_up_in_embed_alone(clock: Clock, hands: Hands) -> None:
    seen = []
    for seconds in (0.030, 1.0):
        index = clock.watch(Slow(hands, clock.watch(Slow(hands, encodes=seconds))))
        with clock.measuring() as reading:
            index.search([""], 1)
        seen.append(reading.stages)
    quick, late = seen
    assert late["embed"] == pytest.approx(1000.0)
    assert late["search"] == pytest.approx(quick["search"])
    assert set(late) == {"embed", "search"}


def test_a_reply_is_its_first_token_and_its_decoding(clock: Clock, hands: Hands) -> None:
    llm: LLM = WatchedLLM(SlowLLM(hands), clock)
    with clock.measuring() as reading:
        llm.generate([ask(name="theanine/refine")])
        for _ in llm.stream(ask(name="agent/respond")):
            hands.at += 0.007  # what is done with a piece is no decoding
        with clock.stage("store"):
            hands.at += 0.002
    assert reading.stages == pytest.approx(
        {"llm:theanine/refine": 200.0, "first_token": 50.0, "decode": 5.0, "after:store": 2.0}
    )
    assert {name: spent.calls for name, spent in reading.calls.items()} == {"theanine/refine": 1, "agent/respond": 1}
    assert reading.reply == Completion("so be it")


def test_threads_do_not_mix() -> None:
    clock = Clock()
    gate = threading.Barrier(2)
    seen: dict[str, dict[str, float]] = {}

    def request(name: str) -> None:
        with clock.measuring() as reading:
            gate.wait()
            with clock.stage(name):
                gate.wait()
            seen[name] = dict(reading.stages)

    threads = [threading.Thread(target=request, args=(name,)) for name in ("one", "other")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {name: list(stages) for name, stages in seen.items()} == {"one": ["one"], "other": ["other"]}


def test_where_nothing_is_measured_parts_work_as_ever(clock: Clock, hands: Hands) -> None:
    watched = clock.watch(Slow(hands))
    assert watched.encode(["text"], "query") == ["text"]
    assert watched.memory == 7
    assert clock.reading is None


def test_a_watched_retriever_is_one(clock: Clock) -> None:
    index = clock.watch(WordRetriever())
    index.add([unit("a", "green tea"), unit("b", "black tea")])
    with clock.measuring() as reading:
        assert [match.id for match in index.search(["green"], 1)[0]] == ["a"]
        assert clock.watch(WordEncoder()).encode(["tea"], "passage").shape == (1, 512)
    assert set(reading.stages) == {"search", "embed"}


def test_salts() -> None:
    asked: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        asked.append(prompt)
        return "fine"

    numbers = iter("abc")
    llm = Salted(ScriptedLLM(script), lambda: next(numbers))
    llm.generate([ask(), ask(extra={"cache_salt": "own"})])
    collected(llm.stream(ask()))
    assert [prompt.extra["cache_salt"] for prompt in asked] == ["a", "own", "c"]
