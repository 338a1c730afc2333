"""The soak with a few users for seconds, and its overload; `scripts/drills soak` is the same with many for minutes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.processes import Victims
from tests.drills.soak import SoakPlan, soak

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("starter_encoder_dir")]


@pytest.fixture
def victims(tmp_path: Path) -> Iterator[Victims]:
    with Victims(tmp_path) as started:
        yield started


def test_an_overloaded_server_refuses_some_and_loses_nothing(victims: Victims, tmp_path: Path) -> None:
    """Twelve users who do not pause, and room for three: who is not refused is answered, and nobody sees an error."""
    plan = SoakPlan(users=12, seconds=6, think=0.0, per_token=0.02, threads=2, waiting=1)
    figures = soak(victims, tmp_path / "home", plan)
    assert figures["errors"] == 0
    assert isinstance(figures["refused with 429"], int)
    assert figures["refused with 429"] > 0
