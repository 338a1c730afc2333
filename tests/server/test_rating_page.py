"""A rater's way through two hidden systems."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from localmem.config import load_settings
from localmem.evaluation.ratings import STATEMENTS, read_ratings
from localmem.runtime import Runtime
from localmem.server.rating_page import RatingPlan, create_rating_app
from tests.fakes import START
from tests.server.conftest import Backbone, CountingEncoder

SYSTEMS = ("none", "evidence")


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[RatingPlan]:
    llm, encoder = Backbone(), CountingEncoder()
    with ExitStack() as stack:
        runtimes = {
            system: stack.enter_context(
                Runtime(load_settings(None, {"system": system, "data": tmp_path / system}), llm=llm, encoder=encoder)
            )
            for system in SYSTEMS
        }
        yield RatingPlan(runtimes, tmp_path / "ratings.jsonl", 2, timedelta(days=10), 0, lambda: START)


def _send(client: TestClient, address: str, **fields: str) -> str:
    page = client.get("/").text
    token = re.search(r'name="token" value="(\w+)"', page)
    assert token
    response = client.post(address, data={"token": token[1], **fields})
    assert response.status_code == 200, response.text
    return unescape(response.text)


def test_a_rater_talks_rates_and_meets_every_system_unnamed(plan: RatingPlan) -> None:
    settings = plan.runtimes["none"].settings
    with TestClient(create_rating_app(plan, settings), base_url="http://localhost") as client:
        _send(client, "/start", rater="Ann")
        for _ in range(2 * len(SYSTEMS)):
            page = _send(client, "/say", text="My sister Clara lives in Lyon.")
            assert "You said:" in page
            page += _send(client, "/end")
            page += _send(client, "/rate", **dict.fromkeys(STATEMENTS, "70"))
            assert not any(system in page for system in SYSTEMS)
    ratings = read_ratings(plan.file)
    assert [rating.session for rating in ratings] == [1, 2, 1, 2]
    assert {rating.system for rating in ratings} == set(SYSTEMS)
    store = plan.runtimes["evidence"].store
    (user,) = store.users()
    first, second = store.sessions(user)
    assert second.started - first.started == timedelta(days=10)


def test_what_is_not_over_or_not_complete_is_not_rated(plan: RatingPlan) -> None:
    settings = plan.runtimes["none"].settings
    with TestClient(create_rating_app(plan, settings), base_url="http://localhost") as client:
        _send(client, "/start", rater="Ann")
        token = re.search(r'name="token" value="(\w+)"', client.get("/").text)
        assert token
        for address in ("/end", "/rate"):
            assert client.post(address, data={"token": token[1]}).status_code == 400
        assert client.post("/say", data={"text": "no token"}).status_code == 403
    assert not plan.file.exists()
