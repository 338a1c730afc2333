"""The retrieval benchmark: texts and vectors of the stated number and kind, a row for each case, true recall."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from localmem.benchmark import corpus as corpus_module
from localmem.benchmark.baselines import Brute, bare_bm25s
from localmem.benchmark.corpus import SPARE, Corpus, WordVectors, corpus
from localmem.benchmark.indexes import Case, Looked, run, units_of, with_encoder
from localmem.benchmark.sentences import batches, said
from localmem.cli.bench import bench
from localmem.retrieval.dense import DenseRetriever


@pytest.fixture(scope="module")
def small() -> Corpus:
    return corpus(WordVectors(32), 300, 20, seed=1, encode_all=True)


def test_statements_differ_and_follow_their_seed() -> None:
    made = said(3000, seed=7)
    assert len({statement for statement, _ in made}) == 3000
    assert said(100, seed=7) == made[:100]
    assert said(100, seed=8) != made[:100]
    assert all(question.endswith("?") for _, question in made)


def test_slices_cover_everything_once() -> None:
    assert [part for whole in batches(10, 4) for part in range(10)[whole]] == list(range(10))
    assert list(batches(0, 4)) == []


def test_a_corpus_has_vectors_of_unit_length_and_texts_that_no_bank_holds(small: Corpus) -> None:
    assert len(small.texts) == len(small.vectors) == 300 + SPARE
    assert len(set(small.texts)) == len(small.texts)
    assert len(small.questions) == len(small.asked) == 20
    for rows in (small.vectors, small.asked):
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_mixtures_are_near_what_they_are_made_of_and_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "MOST_ENCODED", 100)
    made = corpus(WordVectors(64), 400, 20, seed=1)
    assert made.encoded == 100
    nearest = (made.vectors[100:] @ made.vectors[:100].T).max(axis=1)
    assert np.allclose(np.linalg.norm(made.vectors, axis=1), 1, atol=1e-5)
    assert nearest.min() > 0.5
    assert nearest.max() < 0.999
    target = (made.vectors @ made.asked.T).argmax(axis=0)
    assert (target >= 100).sum() >= 3  # questions are about mixtures too


def test_what_is_saved_is_loaded_as_far_as_it_is_wanted(small: Corpus, tmp_path: Path) -> None:
    small.save(tmp_path)
    part = Corpus.load(tmp_path, 100)
    assert list(part.texts) == [*small.texts[:100], *small.texts[-SPARE:]]
    assert np.array_equal(part.vectors, np.concatenate([small.vectors[:100], small.vectors[-SPARE:]]))
    assert np.array_equal(part.asked, small.asked)


def test_words_that_are_shared_make_texts_near() -> None:
    rows = WordVectors(256).encode(
        ["I bought a green piano.", "Who bought the green piano?", "My knee hurts."], "passage"
    )
    near, far = rows[1:] @ rows[0]
    assert near > 0.5 > far


def test_brute_force_is_exact(small: Corpus) -> None:
    found = Brute(small.vectors).search(small.asked, 10)
    for query, matches in zip(small.asked, found, strict=True):
        scores = small.vectors @ query
        assert [int(name) for name, _ in matches] == np.argsort(-scores)[:10].tolist()
    assert len(Brute(small.vectors[:3]).search(small.asked, 10)[0]) == 3


def test_bare_bm25s_finds_the_text_itself(small: Corpus) -> None:
    found: NDArray[np.int64]
    found, _scores = bare_bm25s(small.texts, 3)([small.texts[7]])  # type: ignore[misc]
    assert found[0][0] == 7


def test_passages_and_questions_are_looked_up(small: Corpus) -> None:
    looked = Looked(small)
    retriever = DenseRetriever(looked, kind="flat")
    retriever.add(units_of(small.texts[:50]))
    (matches,) = retriever.search(small.questions[:1], 10)
    (((best, score), *_),) = Brute(small.vectors[:50]).search(small.asked[:1], 10)
    assert matches[0].id == best
    assert matches[0].score == pytest.approx(score, abs=1e-5)
    assert looked.seconds > 0


@pytest.mark.parametrize(
    "method, baseline", [("flat", "numpy"), ("hnsw", "numpy"), ("ivf", "numpy"), ("bm25", "bm25s")]
)
def test_each_case_has_a_row_for_each_batch(
    small: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, baseline: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # what a case sets stays no longer than the test
    small.save(tmp_path)
    rows = run(Case(tmp_path, 200, method, gpu=False, batches=(1, 8)))
    assert [(row["method"], row["device"], row["units"], row["batch"]) for row in rows] == [
        (method, "cpu", 200, batch) for batch in (1, 8)
    ]
    for row in rows:
        assert row["baseline"] == baseline
        assert 0 < row["p50_ms"] <= row["p95_ms"]  # type: ignore[operator]
        assert row["ratio"] > 0  # type: ignore[operator]
        assert row["memory_mb"] > 0  # type: ignore[operator]
    assert {"scoped_ms", "add_session_ms", "search_after_ms"} <= set(rows[0])
    if method == "flat":
        assert rows[0]["recall"] == 1.0
    elif method != "bm25":
        assert 0.3 < rows[0]["recall"] <= 1.0  # type: ignore[operator]


def test_the_encoder_is_part_of_what_a_user_waits_for(small: Corpus) -> None:
    rows = list(with_encoder(small, 100, WordVectors(32)))
    assert [row["method"] for row in rows] == ["encode + dense", "encode + hybrid"]
    for row in rows:
        assert row["p50_ms"] > row["encode_ms"] > 0  # type: ignore[operator]
        assert "recall" not in row


def test_the_command_writes_a_report_and_pictures(tmp_path: Path) -> None:
    arguments = ["--units", "50,100", "--kinds", "flat,hnsw", "--dimension", "16", "--queries", "10", "--batch", "1,4"]
    done = CliRunner().invoke(bench, ["retrieval", *arguments, "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert [(row["method"], row["units"], row["batch"]) for row in report["rows"] if row["device"] == "cpu"] == [
        (method, units, batch) for units in (50, 100) for method in ("flat", "hnsw", "bm25") for batch in (1, 4)
    ]
    assert report["vectors"] == {"encoded": 100 + SPARE, "mixed": 0}
    assert report["plan"]["seed"] == 0
    assert report["machine"]["usable_cores"] >= 1
    assert report["versions"]["bm25s"]
    written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(written) == {"retrieval.json", "latency.png", "recall.png"}
    assert json.loads(written["retrieval.json"]) == report
    assert written["latency.png"].startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments, says", [(["--kinds", "flat,lsh"], "'lsh' is no index"), (["--queries", "3"], "--queries")]
)
def test_misuse_is_told(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(bench, ["retrieval", *arguments])
    assert done.exit_code == 2
    assert says in done.stderr


def test_what_does_not_fit_into_memory_is_refused_before_anything_is_made() -> None:
    done = CliRunner().invoke(bench, ["retrieval", "--units", "1e10", "--dimension", "384"])
    assert "10000000000 units need about" in str(done.exception)
