"""Ratings of live conversations by people, as in Keep Me Updated (Bae et al., 2022, section 5.2.2 and appendix E).

A rater talks to one hidden system for several sessions, and after each says from 0 to 100 how far they agree with
five statements. Each rater's scores are standardised, so that a strict and a kind rater count alike. The replies of a
run are scored by the same statements as in SeCom (appendix A.10), each as an episode of one session. Reads and writes
one file of JSON lines; knows no server.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, pstdev

from localmem.errors import BadInput
from localmem.files import parse_json, read_lines
from localmem.reporting.intervals import estimate

STATEMENTS: Mapping[str, str] = {
    "coherence": "This chatbot understood the context and responded coherently.",
    "consistency": "This chatbot was consistent throughout the conversation.",
    "engagingness": "I would like to chat with this chatbot for a longer time.",
    "humanness": "This chatbot sounded like a human.",
    "memorability": "This chatbot remembered what I said before.",
}
MOST = 100  # the highest score


@dataclass(frozen=True, slots=True)
class Rating:
    """The scores of one session by statement. `episode` names the sessions with one system, `session` counts from 1."""

    rater: str
    episode: str
    system: str
    session: int
    scores: Mapping[str, float]

    def __post_init__(self) -> None:
        if set(self.scores) != set(STATEMENTS):
            raise BadInput(f"a rating has scores for {sorted(self.scores)}; give one for each of {sorted(STATEMENTS)}")


def append_rating(file: Path, rating: Rating, most: int = MOST) -> None:
    """Write one more line. Raises BadInput for a score out of range."""
    outside = [score for score in rating.scores.values() if not 0 <= score <= most]
    if outside:
        raise BadInput(f"a score is {outside[0]:g}; give scores from 0 to {most}")
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(rating), ensure_ascii=False) + "\n")


def read_ratings(file: Path) -> list[Rating]:
    """All ratings of a file, in order. Raises BadInput with the number of a bad line."""
    lines = read_lines(file, "give the --out of `localmem eval rate serve`")
    return [parse_json(place, line, Rating, "remove or mend the line") for place, line in lines]


def choose_system(ratings: Iterable[Rating], rater: str, systems: Sequence[str], seed: int) -> str:
    """A system for the rater's next episode: at random, of those that they rated in the fewest episodes."""
    episodes: defaultdict[str, set[str]] = defaultdict(set)
    for rating in ratings:
        if rating.rater == rater:
            episodes[rating.system].add(rating.episode)
    least = min(len(episodes[system]) for system in systems)
    count = sum(map(len, episodes.values()))
    return Random(f"{seed}/{rater}/{count}").choice([name for name in systems if len(episodes[name]) == least])  # noqa: S311  # an order, no secret


def standardize(ratings: Sequence[Rating]) -> list[Rating]:
    """The ratings with each rater's scores less their mean, over their deviation; without who scores all alike."""
    scores: defaultdict[str, list[float]] = defaultdict(list)
    for rating in ratings:
        scores[rating.rater] += rating.scores.values()
    means = {rater: fmean(values) for rater, values in scores.items()}
    deviations = {rater: pstdev(values) for rater, values in scores.items()}
    return [
        replace(
            rating,
            scores={
                name: (score - means[rating.rater]) / deviations[rating.rater] for name, score in rating.scores.items()
            },
        )
        for rating in ratings
        if deviations[rating.rater]
    ]


def export_rows(ratings: Sequence[Rating]) -> list[dict[str, object]]:
    """A row for each rating: whose, of what, the scores as given, and standardised ("" for who scores all alike)."""
    names = ("rater", "episode", "system", "session")
    standardized = {tuple(getattr(each, name) for name in names): each.scores for each in standardize(ratings)}
    rows = []
    for rating in ratings:
        head = {name: getattr(rating, name) for name in names}
        own = standardized.get(tuple(head.values()), {})
        rows.append({**head, **rating.scores, **{f"{name}_standardized": own.get(name, "") for name in STATEMENTS}})
    return rows


def rating_rows(
    ratings: Sequence[Rating], *, by_session: bool = False, as_given: bool = False
) -> list[dict[str, object]]:
    """A row for each system, or for each of its sessions: means with 95 % intervals over episodes.

    The scores are standardised by rater, or `as_given`.
    """
    groups: defaultdict[tuple[str, int], list[Rating]] = defaultdict(list)
    for rating in ratings if as_given else standardize(ratings):
        groups[rating.system, rating.session if by_session else 0].append(rating)
    rows, sign = [], "" if as_given else "+"
    for (system, session), members in sorted(groups.items(), key=lambda item: (item[0][1], item[0][0])):
        clusters = [rating.episode for rating in members]
        means = {
            name: estimate([rating.scores[name] for rating in members], clusters).as_text(sign, 2)
            for name in STATEMENTS
        }
        place: dict[str, object] = {"session": session} if by_session else {}
        counts = {"episodes": len(set(clusters)), "ratings": len(members)}
        rows.append({**place, "system": system, **counts, **means})
    return rows
