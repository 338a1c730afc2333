"""BM25Retriever compared with bm25s, the splitting into words, and its postings compared with one table."""

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import bm25s
import numpy as np
import pytest
import Stemmer

from localmem.errors import BadSettings
from localmem.retrieval import bm25
from localmem.retrieval.base import Scope
from localmem.retrieval.bm25 import BM25Retriever, Postings, words
from localmem.retrieval.languages import STOP_WORDS
from localmem.types import Unit
from tests.fakes import unit


def alone(keys: list[str], query: str) -> dict[int, float]:
    """The scores above 0 of bm25s over these keys, in one go."""
    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index([words(key) for key in keys], show_progress=False)
    shared = [word for word in words(query) if word in index.vocab_dict]
    scores = index.get_scores(shared) if shared else []
    return {at: float(score) for at, score in enumerate(scores) if score > 0}


def test_scores_are_those_of_bm25s_over_the_units_that_are_there() -> None:
    rng = random.Random(1)
    vocabulary = [f"w{n}" for n in range(60)]
    retriever = BM25Retriever(language="none")
    live: dict[str, Unit] = {}
    for n in range(30):
        new = [unit(f"{n}.{m}", " ".join(rng.choices(vocabulary, k=rng.randint(1, 12)))) for m in range(8)]
        retriever.add(new)
        live |= {item.id: item for item in new}
        removed = rng.sample(sorted(live), 3)
        retriever.remove(removed)
        for name in removed:
            del live[name]
        query = " ".join(rng.choices(vocabulary, k=4))
        (matches,) = retriever.search([query], 10_000)
        names = list(live)
        expected = {names[at]: score for at, score in alone([item.key for item in live.values()], query).items()}
        assert {match.id: match.score for match in matches} == pytest.approx(expected, rel=1e-5)


def test_the_best_of_many_are_the_best_of_all_also_within_a_scope() -> None:
    rng = random.Random(6)
    units = [
        replace(unit(str(n), " ".join(rng.choices("abcdefghij", k=6))), speaker=rng.choice(["Ann", "Bob"]))
        for n in range(3000)
    ]
    retriever = BM25Retriever(language="none")
    retriever.add(units)
    for scope, admitted in [(None, units), (Scope(speaker="Ann"), [item for item in units if item.speaker == "Ann"])]:
        scores = alone([item.key for item in admitted], "a b c")
        (matches,) = retriever.search(["a b c"], 20, scope)
        best = sorted(scores.values(), reverse=True)[:20]
        assert [match.score for match in matches] == pytest.approx(best, rel=1e-5)
        at = {item.id: index for index, item in enumerate(admitted)}
        assert [match.score for match in matches] == pytest.approx(
            [scores[at[match.id]] for match in matches], rel=1e-5
        )
        assert retriever.search(["nothing"], 20, scope) == [[]]


def test_units_are_tokenised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenised: list[str] = []

    def spy(text: str) -> list[str]:
        tokenised.append(text)
        return text.split()

    monkeypatch.setattr("localmem.retrieval.bm25.words", spy)
    retriever = BM25Retriever()
    retriever.add([unit("a", "dog"), unit("b", "cat")])
    retriever.search(["dog"], 1)
    retriever.add([unit("a", "dog"), unit("c", "cow")])
    retriever.remove(["b"])
    retriever.search(["cow"], 1)
    assert tokenised == ["dog", "cat", "dog", "cow", "cow"]


def test_no_common_word_is_no_match() -> None:
    retriever = BM25Retriever()
    retriever.add([unit("a", "Anna has a dog"), unit("b", "")])
    assert retriever.search(["elephants", "the", "?!", "a of"], 5) == [[], [], [], []]


def test_a_word_that_only_a_removed_unit_had_is_no_match() -> None:
    retriever = BM25Retriever()
    retriever.add([unit("a", "dog"), unit("b", "cat")])
    retriever.remove(["b"])
    assert retriever.search(["cat", "dog"], 5)[0] == []
    retriever.add([unit(f"n{n}", f"cow{n}") for n in range(3000)])
    retriever.remove([f"n{n}" for n in range(3000)])
    first, second = retriever.search(["cow2999", "dog"], 5)
    assert first == []
    assert [match.id for match in second] == ["a"]


@pytest.mark.parametrize(
    ("language", "key", "query"),
    [
        ("english", "Tom was running marathons", "marathon runs"),
        ("german", "Die Katzen schlafen", "Katze"),
        ("french", "Elle travaillait à Lyon", "travailler"),
        ("russian", "Он любит собак", "собаки"),
        ("finnish", "Pidän koirista", "koira koirista"),
        ("korean", "고양이를 키워요", "고양이"),
        ("none", "C++ and Rust", "rust"),
    ],
)
def test_word_forms_meet_in_their_language(language: str, key: str, query: str) -> None:
    retriever = BM25Retriever(language=language)
    retriever.add([unit("x", "zzz"), unit("a", key)])
    (matches,) = retriever.search([query], 1)
    assert [match.id for match in matches] == ["a"]


def test_stop_words_do_not_count() -> None:
    assert BM25Retriever(language="none").search(["the"], 1) == [[]]
    for language, expected in (("english", []), ("none", ["a"])):
        retriever = BM25Retriever(language=language)
        retriever.add([unit("a", "the dog")])
        (matches,) = retriever.search(["the"], 1)
        assert [match.id for match in matches] == expected


@pytest.mark.parametrize("language", sorted({*STOP_WORDS, "arabic", "finnish", "hungarian"}))
def test_terms_are_those_of_bm25s(language: str) -> None:
    stemmer = Stemmer.Stemmer(language) if language in Stemmer.algorithms() else None
    reference = bm25s.tokenization.Tokenizer(
        lower=False,
        splitter=words,
        stopwords=language if language in STOP_WORDS else [],
        stemmer=stemmer,
    )
    texts = ["Die Katze und the cats sleep", "Anna's dogs og и не och avec les chiens", "", "의 고양이 cats katze"]
    queries = ["cat sleeping", "unknown hunde", "the die les"]
    vocabulary = bm25._Vocabulary(language)
    options = {"show_progress": False, "allow_empty": False}
    assert [vocabulary.terms(text, learn=True) for text in texts] == reference.tokenize(
        texts, update_vocab=True, **options
    )
    assert [vocabulary.terms(query, learn=False) for query in queries] == reference.tokenize(
        queries, update_vocab=False, **options
    )
    assert len(vocabulary) == len(reference.get_vocab_dict())


def test_words_are_counted_without_importing_bm25s() -> None:
    """Its import takes numba's."""
    script = (
        "import sys; from localmem.retrieval.bm25 import BM25Retriever; BM25Retriever();"
        "print(*sorted({'bm25s', 'numba', 'scipy'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout == "\n"


def test_an_unknown_language_raises_with_the_nearest_name() -> None:
    with pytest.raises(BadSettings, match="'englsh'; did you mean english"):
        BM25Retriever(language="englsh")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't stop, Anna’s CAT!", ["don't", "stop", "anna's", "cat"]),
        ("at 5 in snake_case", ["at", "5", "in", "snake", "case"]),
        ("Straße Ｃafe\u0301", ["strasse", "café"]),
        ("猫が", ["猫", "が", "猫が"]),
        ("iPhone을", ["iphone", "을"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("ok 👍🏽 ❤️", ["ok", "👍", "❤"]),
        ("'quoted' -- ...", ["quoted"]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_ascii_texts_are_split_like_all_others() -> None:
    """ASCII takes a quicker way, which a letter beyond it turns off."""
    rng = random.Random(11)
    characters = [*map(chr, range(128)), *"''''aeiou   "]
    for _ in range(500):
        text = "".join(rng.choices(characters, k=rng.randint(0, 40)))
        assert words(text) == words(f"{text} é")[:-1], repr(text)


def counts_of(postings: Postings, term: int) -> dict[int, int]:
    entries = postings.lookup([41_000, term])
    assert (entries.spread(np.arange(2)) == 1).all()
    assert entries.sizes.sum() == len(entries.rows) == len(set(entries.rows.tolist()))
    return dict(zip(entries.rows.tolist(), entries.counts.tolist(), strict=True))


def test_entries_are_complete_after_many_additions_and_dropped_rows() -> None:
    rng = random.Random(5)
    postings, units = Postings(), list[Counter[int]]()
    for size in [300, *(rng.randint(1, 30) for _ in range(60)), 0]:
        new = [[rng.randint(0, 40) for _ in range(rng.randint(0, 9))] for _ in range(size)]
        postings.add(len(units), new)
        units += map(Counter, new)
    assert len(postings._runs) < 8
    for term in range(42):
        assert counts_of(postings, term) == {at: unit[term] for at, unit in enumerate(units) if unit[term]}
    selected = np.array(sorted(rng.sample(range(len(units)), 100)))
    postings.select(selected)
    postings.add(100, [[7, 7, 3]])
    remaining = [*(units[at] for at in selected), Counter([7, 7, 3])]
    for term in range(42):
        assert counts_of(postings, term) == {at: unit[term] for at, unit in enumerate(remaining) if unit[term]}


def test_postings_are_empty_at_first_and_after_dropping_all_rows() -> None:
    postings = Postings()
    assert counts_of(postings, 3) == {}
    postings.add(0, [[3, 3], []])
    memory = postings.memory
    postings.select(np.zeros(0, dtype=np.intp))
    assert counts_of(postings, 3) == {}
    assert postings.memory < memory


def test_terms_beyond_16_bits_and_many_slots_stay_apart() -> None:
    postings = Postings()
    postings.add(3_000_000_000, [[70_000], [70_001, 70_000]])
    assert counts_of(postings, 70_000) == {3_000_000_000: 1, 3_000_000_001: 1}
    assert counts_of(postings, 70_001) == {3_000_000_001: 1}
