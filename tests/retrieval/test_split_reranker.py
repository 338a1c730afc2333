"""SplitReranker: the same scores as the network in float32, texts read once, and mistakes in its folder."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from localmem import factory
from localmem.errors import BadSettings, ModelDamaged
from localmem.retrieval.bert_model import Rows
from localmem.retrieval.pair_network import PairNetwork, float_linear, new_head
from localmem.retrieval.split_reranker import (
    WEIGHTS,
    PairTokenizer,
    RerankerSettings,
    SplitReranker,
    base_weights,
    save_reranker,
)
from localmem.retrieval.torch_pairs import TorchPairs
from localmem.weights.folder import damaged_files
from localmem.weights.manifest import Manifest

UPPER = ("encoder.layer.4", "encoder.layer.5")
QUERY = "What is my dog called?"
TEXTS = ["User: The dog is called Rex.", "User: I bought a bicycle.\nAssistant: Enjoy it.", "User: Hm."]


@pytest.fixture
def folder(starter_encoder_dir: Path, tmp_path: Path) -> Path:
    """A reranker that was not trained."""
    _, weights = base_weights(starter_encoder_dir, 4)
    upper = {name: weight for name, weight in weights.items() if name.startswith(UPPER)}
    digest = sha256((starter_encoder_dir / "model.safetensors").read_bytes()).hexdigest()
    settings = {"base": str(starter_encoder_dir), "base_sha256": digest, "split": 4}
    save_reranker(tmp_path / "own", settings, {**upper, **new_head(384)})
    return tmp_path / "own"


def exact_scores(base: Path, query: str, texts: Sequence[str], stored: Path | None = None) -> list[float]:
    """By the base's weights, or by those stored in a folder."""
    shape, weights = base_weights(base, 4)
    weights |= new_head(384)
    if stored:
        arrays = load_file(str(stored / WEIGHTS))
        weights |= {
            name: array.float() * arrays[f"{name}.scale"][:, None]
            for name, array in arrays.items()
            if f"{name}.scale" in arrays
        }
    tokenizer = PairTokenizer(base, RerankerSettings(str(base), "", 4))
    network = PairNetwork(shape, weights, float_linear(weights))
    with torch.inference_mode():
        (states,) = network.read(tokenizer.queries([query]))
        logits = network.compare([(states, text) for text in network.read(tokenizer.texts(texts))])
    return [float(score) for score in logits.sigmoid()]


@pytest.mark.parametrize(("amx", "error"), [(False, 0.1), (True, 0.01)])
def test_scores_are_close_to_exact_ones_in_either_format(
    folder: Path, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch, *, amx: bool, error: float
) -> None:
    """A processor with AMX computes in bfloat16; every other can, if slowly."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": amx})
    scores = SplitReranker(folder).score(QUERY, TEXTS)
    assert scores == pytest.approx(exact_scores(starter_encoder_dir, QUERY, TEXTS, folder), abs=error)
    assert max(scores) == scores[0]


def test_numpy_gives_the_exact_scores_until_torch_is_imported(
    folder: Path, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the int8 rows that are stored, not those of the weights that they were made of."""
    reranker = SplitReranker(folder)
    exact = exact_scores(starter_encoder_dir, QUERY, TEXTS, folder)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        assert reranker.score(QUERY, TEXTS) == pytest.approx(exact, abs=1e-3)
        assert reranker.score(QUERY, TEXTS[1:]) == pytest.approx(exact[1:], abs=1e-3)
    assert reranker.score(QUERY, TEXTS) != pytest.approx(exact, abs=1e-4)


def test_a_first_search_imports_neither_torch_nor_transformers(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from localmem.retrieval.split_reranker import SplitReranker;"
        "scores = SplitReranker(Path(sys.argv[1])).score('Who is Anna?', ['User: Anna is my sister.', 'User: Hm.']);"
        "print(scores[0] > scores[1], *sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
    assert process.stdout == "True\n"


def test_a_text_has_the_same_score_alone_cached_and_among_others(folder: Path) -> None:
    reranker = SplitReranker(folder)
    alone = [SplitReranker(folder).score(QUERY, [text])[0] for text in TEXTS]
    assert reranker.score(QUERY, TEXTS) == pytest.approx(alone, abs=0.03)
    assert reranker.score(QUERY, TEXTS) == pytest.approx(alone, abs=0.03)
    assert len(reranker._states) == len(TEXTS)
    assert reranker.score(QUERY, []) == []


def test_scores_keep_their_order_over_the_parts_that_are_computed_together(
    folder: Path, starter_encoder_dir: Path
) -> None:
    texts = [f"User: I have {number} dogs and {12 - number} cats." for number in range(11)] + TEXTS
    scores = SplitReranker(folder).score(QUERY, texts)
    assert scores == pytest.approx(exact_scores(starter_encoder_dir, QUERY, texts), abs=0.1)
    assert scores.index(max(scores)) == texts.index(TEXTS[0])


def test_a_query_is_read_once_and_only_in_a_language_of_the_base(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker = SplitReranker(folder)
    reranker._languages = ("english",)  # as the manifest says of a base by its name
    assert reranker.read_query("Wie heißt mein kleiner Hund und wo schläft er?") is None
    vector = reranker.read_query(QUERY)
    assert vector is not None
    assert float(vector @ vector) == pytest.approx(1)
    monkeypatch.setattr(PairTokenizer, "queries", lambda *_: pytest.fail("read again"))
    assert max(reranker.score(QUERY, TEXTS)) == reranker.score(QUERY, TEXTS)[0]


def test_only_the_texts_read_last_stay_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localmem.retrieval.split_reranker._CACHED_TOKENS", 20)
    reranker = SplitReranker(folder)
    reranker.score(QUERY, TEXTS)
    assert 0 < reranker._tokens == sum(map(len, reranker._states.values())) <= 20


def test_threads_compare_beside_one_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other within its comparison, which it would do for ever if they took turns."""
    reranker, both = SplitReranker(folder), threading.Barrier(2, timeout=30)
    expected = [reranker.score(query, TEXTS) for query in (QUERY, "Who?")]
    compare = TorchPairs.compare

    def meet(network: TorchPairs, query: Rows, texts: Sequence[Rows]) -> Rows:
        both.wait()
        return compare(network, query, texts)

    monkeypatch.setattr(TorchPairs, "compare", meet)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda query: reranker.score(query, TEXTS), (QUERY, "Who?"))) == expected


def test_other_weights_of_the_encoder_are_refused(folder: Path) -> None:
    settings = (folder / "reranker.json").read_text()
    digest = settings.split('"base_sha256": "')[1][:64]
    (folder / "reranker.json").write_text(settings.replace(digest, "0" * 64))
    with pytest.raises(BadSettings, match="other weights"):
        SplitReranker(folder).score(QUERY, TEXTS)


def test_a_damaged_file_is_reported(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"cut")
    with pytest.raises(ModelDamaged, match="cannot be read"):
        SplitReranker(folder).score(QUERY, TEXTS)


def test_the_shipped_reranker_is_whole_small_and_found_by_its_name(starter_encoder_dir: Path) -> None:
    entry = next(entry for entry in Manifest.load().rerankers if entry.name == "minilm-l6-v2-rerank")
    assert damaged_files(entry) == []
    assert sum(file.size for file in entry.files.values()) < 10_000_000
    reranker = factory.reranker(entry.name, "auto")
    scores = reranker.score(QUERY, TEXTS)
    assert scores[0] > max(scores[1:])


def test_a_query_in_a_language_that_the_base_does_not_know_changes_no_order() -> None:
    reranker = factory.reranker("minilm-l6-v2-rerank", "auto")
    assert len(set(reranker.score("Wie heißt denn der Hund von meiner Schwester?", TEXTS))) == 1
    assert len(set(reranker.score(QUERY, TEXTS))) == len(TEXTS)
