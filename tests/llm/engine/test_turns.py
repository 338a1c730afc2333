"""Threads that share work: all get their result, whoever does the step, and no thread works for abandoned work."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from localmem.llm.engine.turns import Turns


class Work:
    """Each step serves every waiting number once; a number is done after as many steps as it says."""

    def __init__(self) -> None:
        self.remaining: dict[int, int] = {}
        self.steps = 0
        self.inside = 0
        self.tidied = 0
        self.fail = False

    def step(self) -> None:
        self.inside += 1
        assert self.inside == 1
        time.sleep(0.001)
        self.steps += 1
        if self.fail:
            self.inside = 0
            raise ValueError("a step failed")
        for number in list(self.remaining):
            self.remaining[number] -= 1
        self.inside -= 1

    def tidy(self) -> None:
        self.tidied += 1

    def is_done(self, number: int) -> bool:
        return self.remaining[number] <= 0


def test_all_get_their_answer_and_share_the_steps() -> None:
    work = Work()
    turns = Turns(work.step, work.tidy)

    def work_on(number: int) -> None:
        work.remaining[number] = 10 + number % 5
        turns.work_until(lambda: work.is_done(number))

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work_on, range(32)))
    assert all(remaining <= 0 for remaining in work.remaining.values())
    assert work.steps < 32 * 10


def test_ready_work_does_no_step() -> None:
    work = Work()
    Turns(work.step, work.tidy).work_until(lambda: True)
    assert work.steps == 0


def test_an_error_reaches_the_working_thread_and_others_continue() -> None:
    work = Work()
    turns = Turns(work.step, work.tidy)
    work.remaining[1] = 3
    work.fail = True
    with pytest.raises(ValueError, match="a step failed"):
        turns.work_until(lambda: work.is_done(1))
    work.fail = False
    turns.work_until(lambda: work.is_done(1))
    assert work.is_done(1)


def test_exclusive_means_no_step_runs() -> None:
    work = Work()
    turns = Turns(work.step, work.tidy)
    work.remaining[1] = 200
    working = threading.Thread(target=turns.work_until, args=(lambda: work.is_done(1),))
    working.start()
    for _ in range(20):
        with turns.exclusive():
            assert work.inside == 0
            before = work.steps
            time.sleep(0.002)
            assert work.steps == before
    working.join(10)
    assert work.is_done(1)


def test_tidying_inside_a_step_does_not_wait_for_itself() -> None:
    tidied: list[str] = []

    def step() -> None:
        turns.tidy()
        tidied.append("step")

    turns = Turns(step, lambda: tidied.append("tidy"))
    turns.work_until(lambda: bool(tidied))
    assert tidied == ["step", "tidy"]
    turns.tidy()
    assert tidied[2:] == ["tidy"]
