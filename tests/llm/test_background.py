"""Background prompts are marked and limited; foreground prompts are neither."""

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from localmem.errors import BadReply, PartialFailure
from localmem.llm.background import Background, in_background
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import Wrapper
from localmem.types import Completion, Prompt
from tests.llm.prompts import ask, collect


class Crowd(Wrapper):
    """Sees each call, and how many prompts are under way at the worst."""

    def __init__(self) -> None:
        super().__init__(ScriptedLLM(lambda prompt: prompt.messages[-1].content, first_token=0.005))
        self.prompts_seen: list[Prompt] = []
        self.most = 0
        self._now = 0
        self._guard = threading.Lock()

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        with self._guard:
            self.prompts_seen += prompts
            self._now += len(prompts)
            self.most = max(self.most, self._now)
        try:
            return super().generate(prompts)
        finally:
            with self._guard:
                self._now -= len(prompts)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        self.prompts_seen.append(prompt)
        return super().stream(prompt)


def test_foreground_prompts_pass_unchanged() -> None:
    crowd = Crowd()
    llm = Background(crowd, limit=2)

    answers = llm.generate([ask(f"question {number}") for number in range(6)])
    collect(llm.stream(ask("and this")))

    assert [completion.text for completion in answers] == [f"question {number}" for number in range(6)]
    assert crowd.most == 6
    assert not any(prompt.background for prompt in crowd.prompts_seen)


def test_in_the_background_prompts_are_marked_and_few_at_a_time() -> None:
    crowd = Crowd()
    llm = Background(crowd, limit=3)

    def job(name: int) -> list[str]:
        with in_background():
            return [completion.text for completion in llm.generate([ask(f"{name}/{number}") for number in range(7)])]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(job, range(4)))

    assert answers == [[f"{name}/{number}" for number in range(7)] for name in range(4)]
    assert crowd.most == 3
    assert all(prompt.background for prompt in crowd.prompts_seen)


def test_a_thread_leaves_the_background_with_the_block() -> None:
    crowd = Crowd()
    llm = Background(crowd, limit=1)
    with in_background():
        llm.generate([ask()])
    llm.generate([ask()])
    assert [prompt.background for prompt in crowd.prompts_seen] == [True, False]


@pytest.mark.parametrize("limit", [1, 2, 8])
def test_one_that_fails_takes_no_place_and_no_neighbour_with_it(limit: int) -> None:
    def script(prompt: Prompt) -> str:
        if prompt.messages[-1].content == "bad":
            raise BadReply("no answer to that; ask another")
        return "good"

    llm = Background(ScriptedLLM(script), limit=limit)
    with in_background():
        for _ in range(2):  # twice: what failed gave its place back
            with pytest.raises(PartialFailure) as caught:
                llm.generate([ask("fine"), ask("bad"), ask("fine")])
            assert [isinstance(completion, Completion) for completion in caught.value.results] == [True, False, True]
        with pytest.raises(BadReply, match="ask another"):
            llm.generate([ask("bad")])
