"""Generated requests to every route of the OpenAPI description; `scripts/drills fuzz` sends many more."""

from pathlib import Path

import pytest

from localmem.llm.base import ABILITIES
from localmem.server.errors import ApiError
from tests.drills.fuzz import fuzz
from tests.server.conftest import serving


def test_generated_requests_are_answered_as_described(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as live:
        live.llm.abilities = ABILITIES
        counts, complaints = fuzz(live.url, 1)
        paths = live.http().get("/openapi.json").json()["paths"]
    assert complaints == {}
    assert len(counts) == sum(len(operations) for operations in paths.values())


def test_what_is_not_as_described_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ApiError(500, "broken")

    with serving(tmp_path / "data") as live:
        monkeypatch.setattr(live.services.auth, "user", fail)
        _, complaints = fuzz(live.url, 1, only="/v1/sessions")
    assert any("500" in complaint for complaint in complaints["GET /v1/sessions"])
