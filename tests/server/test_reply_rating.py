"""A rater's way through the replies of a run."""

import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

from fastapi.testclient import TestClient

from localmem.config import load_settings
from localmem.evaluation.answers import Answer, Work
from localmem.evaluation.ratings import STATEMENTS, export_rows, rating_rows, read_ratings
from localmem.server.reply_rating import ReplyRatingManager, create_reply_rating_app

SYSTEMS = ("secom", "none")


def _answer(system: str, number: int) -> Answer:
    work = Work(system, "locomo", "conv-1")
    question = f"Where does Ana live in year {number}?"
    past = "<b>Ana lives in Lyon.</b>"
    return Answer(work, f"q{number}", "question", "single-hop", "s1", question, ("Lyon",), past=past, text="In Lyon.")


def _client(folder: Path, manager: ReplyRatingManager) -> TestClient:
    app = create_reply_rating_app(
        manager, load_settings(None, {"data": folder}), lambda: datetime(2026, 3, 1, tzinfo=UTC)
    )
    return TestClient(app, base_url="http://localhost")


def _fields(page: str) -> dict[str, str]:
    return dict(re.findall(r'type="hidden" name="(token|case)" value="([^"]+)"', page))


def test_a_rater_scores_every_hidden_reply_and_goes_on_later(tmp_path: Path) -> None:
    manager = ReplyRatingManager(
        [_answer(system, number) for system in SYSTEMS for number in range(2)], tmp_path / "ratings.jsonl"
    )
    page = ""
    for _ in range(2):  # the second visit, in another browser, goes on
        with _client(tmp_path, manager) as client:
            token = _fields(client.get("/").text)
            page = client.post("/start", data={**token, "rater": "Ann"}).text
            for _ in range(2):
                assert "&lt;b&gt;Ana lives in Lyon." in page
                assert not any(system in unescape(page) for system in SYSTEMS)
                scores = dict.fromkeys(STATEMENTS, "1" if "year 0" in page else "3")
                response = client.post("/rate", data={**_fields(page), **scores})
                assert response.status_code == 200
                page = response.text
    assert "All replies are scored" in page
    ratings = read_ratings(manager.file)
    assert sorted((rating.system, rating.episode) for rating in ratings) == sorted(
        (system, f"locomo/q{number}") for system in SYSTEMS for number in range(2)
    )
    assert [str(row["humanness"])[:4] for row in rating_rows(ratings, as_given=True)] == ["2.00", "2.00"]
    assert {row["humanness_standardized"] for row in export_rows(ratings)} == {1.0, -1.0}


def test_scores_out_of_range_or_of_another_reply_are_refused(tmp_path: Path) -> None:
    manager = ReplyRatingManager([_answer("secom", 0)], tmp_path / "ratings.jsonl")
    with _client(tmp_path, manager) as client:
        token = _fields(client.get("/").text)
        page = client.post("/start", data={**token, "rater": "Ann"}).text
        fields = _fields(page)
        wrong = {**fields, **dict.fromkeys(STATEMENTS, "4")}
        other = {**fields, **dict.fromkeys(STATEMENTS, "1"), "case": "locomo/q9"}
        for sent in (wrong, other, fields):
            assert client.post("/rate", data=sent).status_code == 400
    assert not manager.file.exists()
