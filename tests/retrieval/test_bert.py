"""BertEncoder: the same vectors from numpy, from torch and from sentence-transformers, and when each one runs."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from localmem.llm.device import Dtype
from localmem.retrieval import bert, torch_bert
from localmem.retrieval.bert import BertEncoder, read_layout
from localmem.retrieval.torch_bert import PackedBert, PaddedBert, TorchBert, divide_texts

TEXTS = [
    "hello",
    "",
    "개 이름은?",
    "What did I tell you about my sister's wedding in June?",
    "Anna has a dog and walks it every morning. " * 12,
]


def encoder_of(folder: Path, dtype: Dtype = "float32", max_length: int | None = None) -> BertEncoder:
    layout = read_layout(folder)
    assert layout is not None
    return BertEncoder(folder, layout, "cpu", dtype, max_length)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_vectors_are_those_of_sentence_transformers(
    library: str, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(BertEncoder, "_suits_numpy", lambda _, __: library == "numpy")
    encoder = encoder_of(starter_encoder_dir)
    rows, truncated = encoder.encode(TEXTS)
    assert (encoder._numpy is None, not encoder._torch) == (library == "torch", library == "numpy")
    reference = SentenceTransformer(str(starter_encoder_dir), device="cpu", local_files_only=True)
    assert rows == pytest.approx(reference.encode(TEXTS, show_progress_bar=False), abs=1e-5)
    assert not any(truncated)


def test_a_long_text_is_truncated_as_by_sentence_transformers(starter_encoder_dir: Path) -> None:
    from sentence_transformers import SentenceTransformer

    long = "the quick brown fox jumps over the lazy dog " * 60
    reference = SentenceTransformer(str(starter_encoder_dir), device="cpu", local_files_only=True)
    encoder = encoder_of(starter_encoder_dir)
    rows, truncated = encoder.encode([long, "short"])
    assert rows == pytest.approx(reference.encode([long, "short"], show_progress_bar=False), abs=1e-5)
    assert (truncated, encoder.window) == ([True, False], 256)
    assert encoder.count_tokens([long, "short"]) == [542, 3]
    assert encoder_of(starter_encoder_dir, max_length=16).window == 16


def test_few_tokens_go_through_numpy_until_torch_is_imported(
    starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder, half = encoder_of(starter_encoder_dir), encoder_of(starter_encoder_dir, dtype="bfloat16")
    few, many = (encoder._tokenizer.encode_batch(["hello there"] * count) for count in (2, 40))
    assert not encoder._suits_numpy(few)
    monkeypatch.delitem(sys.modules, "torch")
    assert encoder._suits_numpy(few)
    assert not encoder._suits_numpy(many)
    assert not half._suits_numpy(few)


def test_a_question_is_not_left_to_a_gpu_that_others_keep_busy(
    starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = read_layout(starter_encoder_dir)
    assert layout is not None
    monkeypatch.setattr(bert, "core_count", lambda: 2)
    monkeypatch.setattr(bert, "resolve_device", lambda name: "meta" if name == "auto" else name)
    monkeypatch.setattr(bert.BertEncoder, "_suits_numpy", lambda *_: False)
    auto, cpu = (BertEncoder(starter_encoder_dir, layout, device, "auto", None) for device in ("auto", "cpu"))
    assert np.array_equal(auto.encode(TEXTS[:1])[0], cpu.encode(TEXTS[:1])[0])
    used: list[tuple[str, str]] = []

    def record(model: TorchBert, ids: list[list[int]]) -> np.ndarray:
        used.append((model.device, threading.current_thread().name.partition("_")[0]))
        return np.ones((len(ids), 384), np.float32)

    monkeypatch.setattr(PackedBert, "_pool_part", record)
    monkeypatch.setattr(PaddedBert, "_pool_texts", record)
    auto.encode(TEXTS[:1])
    auto.encode(TEXTS * 10)
    assert used == [("cpu", "localmem-encoder"), ("meta", "localmem-encoder")]
    assert not auto.on_cpu


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_text_has_the_vector_that_it_has_alone(
    dtype: Dtype, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_bert, "core_count", lambda: 2)
    encoder = encoder_of(starter_encoder_dir, dtype)
    together, _ = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text])[0] for text in TEXTS])
    # A processor may round bfloat16 otherwise for more rows.
    assert together == pytest.approx(alone, abs=1e-6 if dtype == "float32" else 4e-3)


def test_texts_are_divided_into_parts_of_about_as_many_tokens() -> None:
    texts = [[number] * length for number, length in enumerate((12, 27, 51, 66, 144))]
    parts = divide_texts(texts, 2)
    assert [text for part in parts for text in part] == texts
    assert [sum(map(len, part)) for part in parts] == [156, 144]
    assert divide_texts(texts[:2], 8) == [texts[:2]]
    assert divide_texts(texts[-1:], 8) == [texts[-1:]]
    assert len(divide_texts(texts, 64)) <= 3


def test_threads_that_start_later_still_compute_on_all_cores() -> None:
    script = (
        "import threading, torch; from localmem.retrieval.torch_threads import one_thread_a_core;"
        "torch.set_num_threads(3); pool = one_thread_a_core('alone');"
        "print(pool.submit(torch.get_num_threads).result(), torch.get_num_threads());"
        "threading.Thread(target=lambda: print(torch.get_num_threads())).start()"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["1", "3", "3"]


@pytest.mark.parametrize("supported", [True, False])
def test_torch_uses_the_format_that_the_processor_computes_in(
    supported: bool, starter_encoder_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": supported})
    encoder = encoder_of(starter_encoder_dir, dtype="auto")
    exact, _ = encoder_of(starter_encoder_dir).encode(TEXTS)
    rows, _ = encoder.encode(TEXTS)
    assert encoder.torch_model().dtype == (torch.bfloat16 if supported else torch.float32)
    assert np.sum(rows * exact, axis=1) == pytest.approx(np.ones(5), abs=1e-3 if supported else 1e-6)


def test_a_question_imports_neither_torch_nor_transformers(starter_encoder_dir: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from localmem.retrieval.encoder import SentenceEncoder;"
        "row = SentenceEncoder(Path(sys.argv[1]), name='m').encode(['Who is Anna?'], 'query');"
        "print(row.shape, *sorted({'torch', 'transformers', 'sentence_transformers', 'sklearn'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", script, str(starter_encoder_dir)], capture_output=True, text=True, check=True
    )
    assert process.stdout.split("\n")[0] == "(1, 384)"


def edit(name: str, **fields: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps({**content, **fields}), encoding="utf-8")

    return change


def add_dense(folder: Path) -> None:
    modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    modules.insert(2, {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")


def truncate_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:100])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(edit("config.json", model_type="mpnet"), id="architecture"),
        pytest.param(edit("config.json", hidden_act="gelu_new"), id="activation"),
        pytest.param(edit("config.json", position_embedding_type="relative_key"), id="positions"),
        pytest.param(edit("sentence_bert_config.json", do_lower_case=True), id="lower case"),
        pytest.param(edit("tokenizer_config.json", do_lower_case=False), id="tokenizer"),
        pytest.param(edit("1_Pooling/config.json", pooling_mode_max_tokens=True), id="two poolings"),
        pytest.param(add_dense, id="a dense layer"),
        pytest.param(lambda folder: (folder / "tokenizer.json").unlink(), id="no tokenizer file"),
        pytest.param(lambda folder: (folder / "model.safetensors").unlink(), id="no safetensors"),
        pytest.param(truncate_weights, id="damaged weights"),
    ],
)
def test_other_folders_are_left_to_sentence_transformers(
    change: Callable[[Path], None], starter_encoder_dir: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(starter_encoder_dir, folder)
    assert read_layout(folder) is not None
    change(folder)
    assert read_layout(folder) is None


def test_pooling_is_read_in_both_forms(starter_encoder_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(starter_encoder_dir, folder)
    pooling = folder / "1_Pooling" / "config.json"
    for content, expected in (
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode": "mean"}, "mean"),
    ):
        pooling.write_text(json.dumps(content), encoding="utf-8")
        layout = read_layout(folder)
        assert layout is not None
        assert layout.pooling == expected


def test_the_first_token_is_pooled_as_by_sentence_transformers(starter_encoder_dir: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "encoder"
    shutil.copytree(starter_encoder_dir, folder)
    flags = {"word_embedding_dimension": 384, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags), encoding="utf-8")
    reference = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    rows, _ = encoder_of(folder).encode(TEXTS)
    assert rows == pytest.approx(reference.encode(TEXTS, show_progress_bar=False), abs=1e-5)
