"""The benchmark of a server: a real `localmem serve` over a backbone of another process, and the backbone alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from localmem.benchmark.recipes import ServeRecipe
from localmem.errors import BadSettings
from localmem.experiments.serving import measure_serving
from tests.llm.remote.conftest import Peer, greeting_peer

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def peer() -> Iterator[Peer]:
    with greeting_peer(MODEL) as started:
        yield started


@pytest.mark.slow
def test_the_backbone_alone_gets_the_same_load(peer: Peer) -> None:
    settings = {"model": MODEL, "system": "none", "llm": {"url": peer.url, "backend": "vllm"}}
    recipe = ServeRecipe(users=(2,), turns=2, warm_up=0, think=0.0, answer=7, bare=True, settings=settings)
    lines: list[str] = []
    rows: Any = measure_serving(recipe, notify=lines.append)["rows"]
    (row,) = rows
    assert row["bare"]["completed"] == row["figures"]["completed"] == 4
    assert "of the backbone alone" in lines[-1]
    bare = [body for body in peer.bodies() if body.get("max_tokens") == 7 and body["model"] == MODEL]
    assert len(bare) >= 4


def test_a_backbone_without_a_url_cannot_be_measured_alone() -> None:
    with pytest.raises(BadSettings, match=r"set llm\.url"):
        measure_serving(ServeRecipe(users=(1,), bare=True), notify=print)
