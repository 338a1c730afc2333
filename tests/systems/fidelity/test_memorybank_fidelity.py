"""MemoryBank's forgetting curve against a simulation: R = exp(-t/S); a recall adds 1 to S and sets t back to 0."""

import math
from datetime import datetime, timedelta
from random import Random

import pytest

from localmem.config import system_options
from localmem.factory import Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.memorybank import MemoryBank, MemoryBankOptions
from localmem.types import Exchange, Turn
from tests.fakes import START, WordRetriever, session
from tests.systems.fidelity.lives import SEEDS, remark, shared_words

K, THRESHOLD = 3, 0.01
DAY = timedelta(days=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_fade_and_are_strengthened_as_in_the_paper(seed: int) -> None:
    random = Random(seed)
    values = {"k": K, "pool": 99, "threshold": THRESHOLD}
    options = MemoryBankOptions.model_validate(system_options("memorybank", values))
    system = MemoryBank(Parts(ScriptedLLM(lambda _: ""), WordRetriever), options)
    system.apply(system.end_session(session(*(remark(random) for _ in range(16)))))
    pieces = {unit.id: unit for unit in system.bank.live()}
    strength = dict.fromkeys(pieces, 1.0)
    clock: dict[str, datetime] = {name: unit.learned for name, unit in pieces.items()}
    for name, mark in system.bank.marks:  # the session's own questions find nothing: it was not a memory yet
        pytest.fail(f"{name} has {mark}")
    now = START
    for number in range(30):
        now += random.uniform(0.1, 1.5) * DAY
        query = session(remark(random), name=f"q{number}", start=now)
        retention = {n: math.exp(-((now - clock[n]) / DAY) / strength[n]) for n in pieces}
        scores = {n: shared_words(query.turns[0].text, pieces[n].key) * retention[n] for n in pieces}
        alive = [name for name in pieces if retention[name] >= THRESHOLD]
        expected = sorted(alive, key=lambda name: -scores[name])[:K]
        recall = system.recall(query)
        assert sorted(hit.score for hit in recall.hits) == pytest.approx(sorted(scores[name] for name in expected))
        for hit in recall.hits:
            strength[hit.unit.id] += 1
            clock[hit.unit.id] = now
        reply = Turn(f"q{number}.1", "assistant", "Assistant", "ok", now)
        system.apply(system.observe(Exchange(query.turns[0], reply, recall)))
