"""Ratings are standardised by rater, and systems are given out evenly and at random."""

from pathlib import Path

import pytest

from localmem.errors import BadInput
from localmem.evaluation.ratings import (
    STATEMENTS,
    Rating,
    append_rating,
    choose_system,
    rating_rows,
    read_ratings,
    standardize,
)


def _rating(rater: str, system: str, score: float, *, episode: str = "e", session: int = 1) -> Rating:
    return Rating(rater, f"{rater}-{system}-{episode}", system, session, dict.fromkeys(STATEMENTS, score))


def test_a_strict_and_a_kind_rater_count_alike() -> None:
    ratings = [
        _rating("strict", "rsum", 20),
        _rating("strict", "none", 10),
        _rating("kind", "rsum", 100),
        _rating("kind", "none", 90),
    ]
    assert {(each.system, each.scores["humanness"]) for each in standardize(ratings)} == {("rsum", 1.0), ("none", -1.0)}


def test_a_rater_who_scores_all_alike_is_left_out() -> None:
    assert standardize([_rating("ann", "rsum", 50), _rating("ann", "none", 50)]) == []


def test_the_table_has_means_with_intervals_over_episodes() -> None:
    ratings = [
        _rating("ann", system, score + number, episode=str(number), session=1 + number % 2)
        for system, score in (("rsum", 60), ("none", 20))
        for number in range(6)
    ]
    none, rsum = rating_rows(ratings)
    assert (none["system"], rsum["system"], rsum["episodes"]) == ("none", "rsum", 6)
    assert str(rsum["memorability"]).startswith("+1.00 [+0.9")
    assert [(row["session"], row["system"]) for row in rating_rows(ratings, by_session=True)] == [
        (1, "none"),
        (1, "rsum"),
        (2, "none"),
        (2, "rsum"),
    ]


def test_each_system_has_its_turn_before_one_comes_again() -> None:
    systems, ratings = ["rsum", "none", "secom"], list[Rating]()
    for number in range(6):
        chosen = choose_system(ratings, "ann", systems, seed=0)
        ratings += [_rating("ann", chosen, 50, episode=str(number), session=session) for session in (1, 2)]
    order = [rating.system for rating in ratings[::2]]
    assert sorted(order[:3]) == sorted(order[3:]) == sorted(systems)
    firsts = {choose_system([], f"rater {number}", systems, seed=0) for number in range(20)}
    assert firsts == set(systems)


def test_the_file_is_read_as_it_was_written_and_bad_lines_are_named(tmp_path: Path) -> None:
    file = tmp_path / "ratings.jsonl"
    rater = "ann\u2028\u2029\x85"  # which end a line for str.splitlines
    append_rating(file, _rating(rater, "rsum", 55))
    assert read_ratings(file) == [_rating(rater, "rsum", 55)]
    with pytest.raises(BadInput, match="from 0 to 100"):
        append_rating(file, _rating("ann", "rsum", 101))
    with file.open("a", encoding="utf-8") as stream:
        stream.write("nonsense\n")
    with pytest.raises(BadInput, match="line 2"):
        read_ratings(file)
    with pytest.raises(BadInput, match="give one for each"):
        Rating("ann", "e", "rsum", 1, {"humanness": 1})
