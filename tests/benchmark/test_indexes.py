"""The retrieval benchmark: its corpus, its baselines, a row for each case, and recall of exact search."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from localmem.benchmark import corpus as corpus_module
from localmem.benchmark.corpus import SPARE, Corpus, WordVectors, batches, generate_statements, make_corpus
from localmem.benchmark.indexes import (
    BruteForce,
    IndexCase,
    LookupEncoder,
    bare_bm25s,
    make_units,
    run_case,
    run_with_encoder,
)
from localmem.cli.bench import bench
from localmem.retrieval.dense import DenseRetriever


@pytest.fixture(scope="module")
def small() -> Corpus:
    return make_corpus(WordVectors(32), 300, 20, seed=1, encode_all=True)


def test_statements_differ_and_follow_their_seed() -> None:
    statements = generate_statements(3000, seed=7)
    assert len({statement for statement, _ in statements}) == 3000
    assert generate_statements(100, seed=7) == statements[:100]
    assert generate_statements(100, seed=8) != statements[:100]
    assert all(question.endswith("?") for _, question in statements)


def test_slices_cover_everything_once() -> None:
    assert [part for batch in batches(10, 4) for part in range(10)[batch]] == list(range(10))
    assert list(batches(0, 4)) == []


def test_a_corpus_has_unit_vectors_and_spare_texts(small: Corpus) -> None:
    assert len(small.texts) == len(small.vectors) == 300 + SPARE
    assert len(set(small.texts)) == len(small.texts)
    assert len(small.questions) == len(small.question_vectors) == 20
    for rows in (small.vectors, small.question_vectors):
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


def test_mixtures_are_near_their_parents_and_not_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "MAX_ENCODED", 100)
    corpus = make_corpus(WordVectors(64), 400, 20, seed=1)
    assert corpus.encoded == 100
    nearest = (corpus.vectors[100:] @ corpus.vectors[:100].T).max(axis=1)
    assert np.allclose(np.linalg.norm(corpus.vectors, axis=1), 1, atol=1e-5)
    assert nearest.min() > 0.5
    assert nearest.max() < 0.999
    target = (corpus.vectors @ corpus.question_vectors.T).argmax(axis=0)
    assert (target >= 100).sum() >= 3  # questions are about mixtures too


def test_a_saved_corpus_is_loaded_in_part(small: Corpus, tmp_path: Path) -> None:
    small.save(tmp_path)
    part = Corpus.load(tmp_path, 100)
    assert list(part.texts) == [*small.texts[:100], *small.texts[-SPARE:]]
    assert np.array_equal(part.vectors, np.concatenate([small.vectors[:100], small.vectors[-SPARE:]]))
    assert np.array_equal(part.question_vectors, small.question_vectors)


def test_shared_words_make_texts_near() -> None:
    rows = WordVectors(256).encode(
        ["I bought a green piano.", "Who bought the green piano?", "My knee hurts."], "passage"
    )
    near, far = rows[1:] @ rows[0]
    assert near > 0.5 > far


def test_brute_force_is_exact(small: Corpus) -> None:
    results = BruteForce(small.vectors).search(small.question_vectors, 10)
    for query, matches in zip(small.question_vectors, results, strict=True):
        scores = small.vectors @ query
        assert [int(name) for name, _ in matches] == np.argsort(-scores)[:10].tolist()
    assert len(BruteForce(small.vectors[:3]).search(small.question_vectors, 10)[0]) == 3


def test_bare_bm25s_finds_the_text_itself(small: Corpus) -> None:
    hits: NDArray[np.int64]
    hits, _scores = bare_bm25s(small.texts, 3)([small.texts[7]])  # type: ignore[misc]
    assert hits[0][0] == 7


def test_passages_and_questions_are_looked_up(small: Corpus) -> None:
    encoder = LookupEncoder(small)
    retriever = DenseRetriever(encoder, kind="flat")
    retriever.add(make_units(small.texts[:50]))
    (matches,) = retriever.search(small.questions[:1], 10)
    (((best, score), *_),) = BruteForce(small.vectors[:50]).search(small.question_vectors[:1], 10)
    assert matches[0].id == best
    assert matches[0].score == pytest.approx(score, abs=1e-5)
    assert encoder.seconds > 0


@pytest.mark.parametrize(
    "method, baseline", [("flat", "numpy"), ("hnsw", "numpy"), ("ivf", "numpy"), ("bm25", "bm25s")]
)
def test_each_case_has_a_row_for_each_batch(
    small: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, baseline: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that what a case sets is undone after the test
    small.save(tmp_path)
    rows = run_case(IndexCase(tmp_path, 200, method, gpu=False, batches=(1, 8)))
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


def test_rows_with_the_encoder_include_its_time(small: Corpus) -> None:
    rows = list(run_with_encoder(small, 100, WordVectors(32)))
    assert [row["method"] for row in rows] == ["encode + dense", "encode + hybrid"]
    for row in rows:
        assert row["p50_ms"] > row["encode_ms"] > 0  # type: ignore[operator]
        assert "recall" not in row


def test_the_command_writes_a_report_and_plots(tmp_path: Path) -> None:
    arguments = ["--units", "50", "--units", "100", "--kind", "flat", "--kind", "hnsw"]
    arguments += ["--set", "dimension=16", "--set", "queries=10", "--set", "batch=1", "--set", "batch=4"]
    result = CliRunner().invoke(bench, ["retrieval", *arguments, "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert [(row["method"], row["units"], row["batch"]) for row in report["rows"] if row["device"] == "cpu"] == [
        (method, units, batch) for units in (50, 100) for method in ("flat", "hnsw", "bm25") for batch in (1, 4)
    ]
    assert report["vectors"] == {"encoded": 100 + SPARE, "mixed": 0}
    assert report["recipe"]["seed"] == 0
    assert report["machine"]["usable_cores"] >= 1
    assert report["versions"]["bm25s"]
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert set(files) == {"retrieval.json", "latency.png", "recall.png"}
    assert json.loads(files["retrieval.json"]) == report
    assert files["latency.png"].startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments, complaint", [(["--kind", "lsh"], "lsh"), (["--set", "queries=3"], "queries")])
def test_wrong_options_are_refused(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(bench, ["retrieval", *arguments])
    assert result.exit_code != 0
    assert complaint in f"{result.output} {result.exception}"


def test_too_many_units_for_the_memory_are_refused() -> None:
    result = CliRunner().invoke(bench, ["retrieval", "--units", "10000000000", "--set", "dimension=384"])
    assert "10000000000 units need about" in str(result.exception)
