"""Generated calls of several users through every door; `scripts/drills canaries` runs more of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmem.server.api_keys import KeyFile
from localmem.settings_sections import KeySettings
from tests.drills.canaries import CALLS, Canaries, Step
from tests.fakes import START
from tests.server.conftest import LiveServer, serving

_USERS = 3
_steps = st.tuples(st.integers(0, _USERS - 1), st.sampled_from(list(CALLS)), st.integers(0, _USERS - 1))
_EVERYTHING: list[Step] = [(who, name, (who + 1) % _USERS) for name in CALLS for who in range(_USERS)]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with keys, which writes its log of requests."""
    data: Path = tmp_path_factory.mktemp("canaries") / "data"
    KeyFile(data / "keys.json").create(KeySettings(user="owner"), START)
    with serving(data, server={"access_log": True}) as open_server:
        yield open_server


@pytest.mark.slow
def test_no_word_of_a_user_reaches_another_through_any_door(live: LiveServer) -> None:
    canaries = Canaries(live)

    @settings(max_examples=3, deadline=None, derandomize=True, database=None)
    @given(plan=st.lists(_steps, min_size=5, max_size=9))
    def run(plan: list[Step]) -> None:
        canaries.run(plan)

    canaries.run(_EVERYTHING)
    run()
    canaries.close()


def test_a_wall_with_a_hole_is_noticed(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live.services.auth, "_user_of", lambda _key, _request, _name: "everybody")
    canaries = Canaries(live)
    with pytest.raises(AssertionError, match=r"\(1, 'tell', 1\)|\(0, 'read', 1\)"):
        canaries.run(_EVERYTHING)
    canaries.close()
