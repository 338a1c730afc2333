"""GGUF in and out: a file is imported, and a folder that is written as GGUF comes back as it was."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli.models import models
from localmem.errors import BadInput
from localmem.resources import checkout_root
from localmem.weights import model_path
from localmem.weights.convert import gguf_to_transformers
from localmem.weights.gguf_export import transformers_to_gguf
from localmem.weights.offline import ImportOptions, import_model


@pytest.fixture(scope="module")
def small_llama(starter_llm_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of random weights that bfloat16 and float16 both hold, with the starter's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 49152}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    config = LlamaConfig(**sizes, **ids, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_((weight * 64).round() / 64)
    folder = tmp_path_factory.mktemp("llama") / "small"
    model.to(torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(starter_llm_dir / name, folder / name)
    return folder


def test_a_written_file_is_read_back_as_it_was(small_llama: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers_to_gguf(small_llama, tmp_path / "small.gguf")
    gguf_to_transformers(tmp_path / "small.gguf", tmp_path / "back")
    before, after = (
        AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (small_llama, tmp_path / "back")
    )
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    texts = "On 12 March 1998 Zoë paid 1,234.50 € <|im_end|>"
    first, second = (AutoTokenizer.from_pretrained(path) for path in (small_llama, tmp_path / "back"))
    assert first(texts)["input_ids"] == second(texts)["input_ids"]
    assert first.chat_template == second.chat_template
    assert not list(tmp_path.glob("*.partial"))


def test_a_file_is_imported_under_its_name(small_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALMEM_MODELS", str(tmp_path / "models"))
    transformers_to_gguf(small_llama, tmp_path / "small.gguf")
    result = CliRunner().invoke(models, ["import", str(tmp_path / "small.gguf")])
    assert result.exit_code == 0, result.output
    assert (model_path("small") / "model.safetensors").is_file()
    with pytest.raises(BadInput, match="cannot be linked to"):
        import_model(tmp_path / "small.gguf", ImportOptions(link=True))
    with pytest.raises(BadInput, match="there is no file"):
        import_model(tmp_path / "none.gguf", ImportOptions())


def test_another_model_is_refused(small_llama: Path, tmp_path: Path) -> None:
    shutil.copytree(small_llama, tmp_path / "other")
    config = tmp_path / "other" / "config.json"
    config.write_text(config.read_text().replace('"llama"', '"gpt2"'))
    with pytest.raises(BadInput, match="is a gpt2 model"):
        transformers_to_gguf(tmp_path / "other", tmp_path / "other.gguf")
    assert not (tmp_path / "other.gguf").exists()


@pytest.mark.slow
@pytest.mark.skipif(
    not (checkout_root() or Path()).joinpath(".engines/xllamacpp").is_dir(),
    reason="llama.cpp's server is not installed (scripts/setup_engines)",
)
def test_llama_cpp_runs_a_written_file(starter_llm_dir: Path, tmp_path: Path) -> None:
    """The starter, written as GGUF: the same greedy choice as in process."""
    from localmem.llm.remote.remote_llm import RemoteLLM
    from localmem.llm.transformers import TransformersLLM
    from tests.llm.prompts import ask
    from tests.llm.remote.conftest import running_llama_cpp

    transformers_to_gguf(starter_llm_dir, tmp_path / "starter.gguf")
    prompt = ask("Is the sea wet?", choice=("PASS", "APPEND", "REPLACE", "DELETE"))
    ours = TransformersLLM(starter_llm_dir, name="starter", context_length=512, device="cpu", dtype="float32")
    with running_llama_cpp(tmp_path / "starter.gguf", 512) as url:
        theirs = RemoteLLM(url, name="starter", tokenizer=starter_llm_dir)
        (mine,), (answer,) = ours.generate([prompt]), theirs.generate([prompt])
        theirs.close()
    assert mine.choices is not None
    assert answer.choices == pytest.approx(mine.choices, abs=0.05)
