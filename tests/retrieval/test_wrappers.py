"""Keys with the units before them, how age weighs on scores of any scale, and how dates narrow a search."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from localmem.errors import BadSettings, BadVectors
from localmem.retrieval.base import Match, Retriever, Scope
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.hybrid import HybridRetriever
from localmem.retrieval.wrappers import ContextualRetriever, Range, RecencyRetriever, read_range
from localmem.types import Unit
from tests.fakes import START, WordEncoder, unit


def unit_of(name: str, text: str, session: str = "s1") -> Unit:
    return replace(unit(name, text), session=session)


def search(index: ContextualRetriever, query: str) -> list[str]:
    (matches,) = index.search([query], 9)
    return [match.id for match in matches]


def test_an_answer_is_found_by_its_question() -> None:
    index = ContextualRetriever(BM25Retriever())
    index.add([unit_of("a", "What is your sister's work?"), unit_of("b", "She is a vet."), unit_of("c", "Rain again.")])
    assert search(index, "sister") == ["a", "b"]
    assert sorted(search(index, "vet")) == ["b", "c"]


def test_context_is_of_the_same_session_and_may_come_from_an_earlier_call() -> None:
    index = ContextualRetriever(BM25Retriever(), context_units=2)
    index.add([unit_of("a", "Oslo"), unit_of("x", "Lisbon", "s2")])
    index.add([unit_of("b", "piano"), unit_of("c", "violin"), unit_of("d", "drum")])
    assert search(index, "Oslo") == ["a", "b", "c"]
    assert search(index, "Lisbon") == ["x"]


def test_the_date_is_read_and_a_unit_counts_once() -> None:
    index = ContextualRetriever(BM25Retriever())
    item = unit_of("a", "piano")
    index.add([item])
    index.add([item, unit_of("b", "violin")])
    assert search(index, f"{item.time:%B}") == ["a", "b"]
    assert search(index, "piano") == ["a", "b"]
    index.remove(["a"])
    assert search(index, "piano") == ["b"], "until the index is built again"
    index.add([item])
    assert sorted(search(index, "piano")) == ["a", "b"]


def test_an_addition_that_was_interrupted_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Sequence[Unit]) -> None:
        raise KeyboardInterrupt

    inner = BM25Retriever()
    index = ContextualRetriever(inner)
    index.add([unit_of("a", "Oslo")])
    with monkeypatch.context() as patch:
        patch.setattr(inner, "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            index.add([unit_of("b", "piano"), unit_of("c", "violin")])
    index.add([unit_of("b", "piano"), unit_of("c", "violin")])
    assert search(index, "Oslo") == ["a", "b"]
    assert search(index, "violin") == ["c"]


DAY = timedelta(days=1)


class Scored:
    """Finds what it was given with the scores it was given."""

    memory = 1

    def __init__(self, **scores: float) -> None:
        self.matches = sorted((Match(*each) for each in scores.items()), key=lambda match: -match.score)

    def add(self, units: Sequence[Unit]) -> None:
        if any(item.id == "bad" for item in units):
            raise BadVectors("no")

    def remove(self, ids: Sequence[str]) -> None: ...

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        return [self.matches[:k] for _ in queries]


def faded_scores(
    ages: dict[str, float], *, at: Scope | None = None, depth: int = 100, **scores: float
) -> dict[str, float]:
    retriever = RecencyRetriever(Scored(**scores), half_life=10, depth=depth)
    retriever.add([unit(name, time=START - DAY * age) for name, age in ages.items()])
    return {match.id: match.score for match in retriever.search(["?"], 9, at)[0]}


def test_a_score_halves_with_each_half_life() -> None:
    results = faded_scores({"new": 0, "old": 10, "older": 20}, new=0.5, old=0.9, older=2.4)
    assert results == pytest.approx({"older": 0.6, "new": 0.5, "old": 0.45})
    assert list(results) == ["older", "new", "old"]


def test_a_negative_score_counts_as_none_and_age_does_not_lift_it() -> None:
    results = faded_scores({"new": 0, "old": 100, "near": 5}, new=-0.4, old=-0.1, near=0.2)
    assert results == pytest.approx({"near": 0.2 * 0.5**0.5, "old": 0, "new": 0})
    assert list(results) == ["near", "old", "new"]


def test_the_time_of_the_question_changes_scores_but_not_their_order() -> None:
    ages = {"a": 3.0, "b": 0.0, "c": 44.0}
    usual = faded_scores(ages, a=0.5, b=0.45, c=0.9)
    later = faded_scores(ages, at=Scope(now=START + 30 * DAY), a=0.5, b=0.45, c=0.9)
    assert list(usual) == list(later)
    assert later == pytest.approx({name: score / 8 for name, score in usual.items()})


def test_a_later_event_has_age_zero() -> None:
    results = faded_scores({"a": 0, "b": -5, "c": 10}, at=Scope(now=START), a=0.5, b=0.5, c=0.5)
    assert results == pytest.approx({"a": 0.5, "b": 0.5, "c": 0.25})


def test_only_the_first_matches_are_weighed() -> None:
    assert list(faded_scores({"a": 100, "b": 100, "c": 0}, depth=2, a=1, b=0.9, c=0.8)) == ["c", "a", "b"]
    retriever = RecencyRetriever(Scored(a=1, b=0.9, c=0.8), half_life=10, depth=2)
    retriever.add([unit("a", time=START - 100 * DAY), unit("b", time=START - 100 * DAY), unit("c")])
    assert [match.id for match in retriever.search(["?"], 2)[0]] == ["a", "b"]


@pytest.mark.parametrize(
    "inner",
    [
        lambda: DenseRetriever(WordEncoder()),
        BM25Retriever,
        lambda: HybridRetriever([DenseRetriever(WordEncoder()), BM25Retriever()]),
    ],
    ids=["cosines", "bm25", "fused ranks"],
)
def test_of_equal_matches_the_newer_comes_first_whatever_the_scale(inner: type[Retriever]) -> None:
    retriever = RecencyRetriever(inner(), half_life=30)
    retriever.add([unit(f"u{n}", "the dog barked", time=START + n * DAY) for n in range(9)])
    retriever.add([unit("far", "nothing of it", time=START + 20 * DAY)])
    results = [match.id for match in retriever.search(["dog"], 9)[0]]
    assert results[:9] == [f"u{n}" for n in reversed(range(9))]


@pytest.mark.parametrize("half_life", [0, -1, float("nan")])
def test_an_invalid_half_life_raises(half_life: float) -> None:
    with pytest.raises(BadSettings, match="half-life"):
        RecencyRetriever(Scored(), half_life=half_life)


def test_an_addition_that_failed_leaves_nothing() -> None:
    retriever = RecencyRetriever(Scored(bad=1, a=1), half_life=1)
    with pytest.raises(BadVectors):
        retriever.add([unit("bad")])
    retriever.add([unit("a")])
    assert [match.id for match in retriever.search(["?"], 9)[0]] == ["a"]


# -- dates -------------------------------------------------------------------------------------------------------------

NOW = datetime(2023, 6, 14, 12, tzinfo=timezone(timedelta(hours=2)))  # a Wednesday


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("What did I do yesterday?", "2023-06-13", "2023-06-13"),
        ("What did I eat the day before yesterday?", "2023-06-12", "2023-06-12"),
        ("Where did Anna go in May 2023?", "2023-05-01", "2023-05-31"),
        ("Where did Anna go in May?", "2023-05-01", "2023-05-31"),
        ("And in December?", "2022-12-01", "2022-12-31"),
        ("What happened on 7 May 2023?", "2023-05-07", "2023-05-07"),
        ("What happened on May 7th, 2021?", "2021-05-07", "2021-05-07"),
        ("on 2022-02-28", "2022-02-28", "2022-02-28"),
        ("What did we talk about last week?", "2023-06-05", "2023-06-11"),
        ("who came two weeks ago", "2023-05-29", "2023-06-04"),
        ("Who did I meet 3 days ago?", "2023-06-11", "2023-06-11"),
        ("what did I say in 2022?", "2022-01-01", "2022-12-31"),
        ("last Friday", "2023-06-09", "2023-06-09"),
        ("Did I march on Monday?", "2023-06-12", "2023-06-12"),
        ("between 3 May 2023 and 7 May 2023", "2023-05-03", "2023-05-07"),
        ("What had I done before May 2023?", None, "2023-04-30"),
        ("Since Monday I have felt ill, why?", "2023-06-12", None),
        ("after the 5th of March 2023", "2023-03-06", None),
        ("until 2022", None, "2022-12-31"),
    ],
)
def test_the_range_of_a_date(text: str, since: str | None, until: str | None) -> None:
    dates = read_range(text, NOW)
    assert dates is not None
    assert (dates.since and dates.since.isoformat()) == (since and f"{since}T00:00:00+02:00")
    assert (dates.until and dates.until.isoformat()) == (until and f"{until}T23:59:59.999999+02:00")


@pytest.mark.parametrize(
    "text",
    [
        "May I ask what my dog is called?",
        "I am 5 and in second grade",
        "Who is Sun Li's sister?",
        "I paid 2023 dollars",
        "10/11/2022",
        "31 February 2023",
        "in December 9999",
        "When did Caroline march?",
        "",
    ],
)
def test_a_text_without_dates_has_no_range(text: str) -> None:
    assert read_range(text, NOW) is None


def test_without_knowing_when_only_dates_with_a_year_are_read() -> None:
    assert read_range("yesterday or in May", None) is None
    month = Range(datetime(2023, 5, 1, tzinfo=UTC), datetime(2023, 6, 1, tzinfo=UTC) - timedelta(microseconds=1))
    assert read_range("in May 2023", None) == month


def dated_retriever() -> RecencyRetriever:
    retriever = RecencyRetriever(DenseRetriever(WordEncoder()), dates=True)
    retriever.add([unit(f"u{n}", f"walked the dog number{n}", time=NOW - n * DAY) for n in range(30)])
    return retriever


def test_a_date_narrows_the_search_and_other_questions_stay_as_they_are() -> None:
    retriever = dated_retriever()
    queries = ["who walked yesterday", "who walked", "", "who walked last week"]
    results = retriever.search(queries, 99, Scope(now=NOW))
    assert [sorted(match.id for match in matches) for matches in results] == [
        ["u1"],
        sorted(f"u{n}" for n in range(30)),
        [],
        sorted(f"u{n}" for n in range(3, 10)),
    ]
    assert retriever.unrestricted == 0


def test_a_date_narrows_the_scope_and_does_not_widen_it() -> None:
    (matches,) = dated_retriever().search(["who walked last week"], 99, Scope(now=NOW, since=NOW - 4 * DAY))
    assert [match.id for match in matches] == ["u3", "u4"]


def test_an_empty_range_falls_back_to_the_whole_scope_and_is_counted() -> None:
    retriever = dated_retriever()
    plain = retriever.search(["who walked in 1999", "who walked"], 3, Scope(now=NOW))
    assert [match.id for match in plain[0]] == [match.id for match in retriever.search(["who walked in 1999"], 3)[0]]
    assert len(plain[0]) == 3
    assert retriever.unrestricted == 2
    empty = retriever.search(["who walked yesterday"], 3, Scope(now=NOW, until=NOW - 40 * DAY))
    assert empty == [[]]


def test_without_dates_a_question_is_searched_unchanged() -> None:
    retriever = RecencyRetriever(DenseRetriever(WordEncoder()))
    retriever.add([unit(f"u{n}", "walked yesterday", time=NOW - n * DAY) for n in range(3)])
    assert len(retriever.search(["walked yesterday"], 9, Scope(now=NOW))[0]) == 3
