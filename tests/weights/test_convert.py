"""From GGUF to a transformers folder: tiny models written here, and the starter that was converted for real."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from localmem.errors import BadInput
from localmem.weights.convert import gguf_to_transformers

if TYPE_CHECKING:
    import torch

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 259}
HEADS, KEY_HEADS = 4, 2


def _interleave(weight: "torch.Tensor", heads: int) -> "torch.Tensor":
    """The order that GGUF keeps query and key rows in: the two halves of a head taken in turns."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _byte_letters() -> list[str]:
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, "dict[str, torch.Tensor]"]:
    """A GGUF file of a Llama of random weights, and the weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(**SIZES, num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, tie_word_embeddings=True)
    weights = cast("dict[str, torch.Tensor]", LlamaForCausalLM(config).state_dict())
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    ordered = {
        name: _interleave(weight, HEADS if "q_proj" in name else KEY_HEADS)
        if "q_proj" in name or "k_proj" in name
        else weight
        for name, weight in weights.items()
        if name != "lm_head.weight"  # tied
    }
    _write(path, "llama", "smollm", [*SPECIALS, *_byte_letters()], ordered)
    return path, weights


def _write(path: Path, architecture: str, pre: str, tokens: list[str], weights: "dict[str, torch.Tensor]") -> None:
    """The first three tokens are control tokens, those in brackets are unused, those in angles the user's."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(SIZES["hidden_size"])
    writer.add_feed_forward_length(SIZES["intermediate_size"])
    writer.add_block_count(SIZES["num_hidden_layers"])
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_rope_dimension_count(8)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    kinds = {"[": 5, "<": 4}
    writer.add_token_types([3] * 3 + [kinds.get(token[0], 1) if len(token) > 1 else 1 for token in tokens[3:]])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    if architecture == "llama":
        writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    names = _gguf_names()
    for name, weight in weights.items():
        writer.add_tensor(names[name], weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gguf_names() -> dict[str, str]:
    parts = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for block in range(SIZES["num_hidden_layers"]):
        names |= {
            f"model.layers.{block}.{ours}.{kind}": f"blk.{block}.{theirs}.{kind}"
            for ours, theirs in parts.items()
            for kind in ("weight", "bias")
        }
    return names


Tiny = tuple[Path, "dict[str, torch.Tensor]"]


def test_the_weights_are_the_files_in_bfloat16(tiny: Tiny, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    path, weights = tiny
    gguf_to_transformers(path, tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert set(loaded) == set(weights)
    for name, weight in weights.items():
        assert torch.equal(loaded[name], weight.to(torch.bfloat16)), name


def test_a_qwen2_model_is_converted_as_it_is(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(2)
    tokens = [*SPECIALS, *_byte_letters(), "ab", "<tool_call>", "[PAD0]", "[PAD1]"]
    sizes = SIZES | {"vocab_size": len(tokens)}
    config = Qwen2Config(**sizes, num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, tie_word_embeddings=False)
    weights = cast("dict[str, torch.Tensor]", Qwen2ForCausalLM(config).state_dict())
    _write(tmp_path / "tiny.gguf", "qwen2", "qwen2", tokens, weights)
    gguf_to_transformers(tmp_path / "tiny.gguf", tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").state_dict()
    assert set(loaded) == set(weights)
    assert any(name.endswith("q_proj.bias") for name in weights)
    for name, weight in weights.items():
        assert torch.equal(loaded[name], weight.to(torch.bfloat16)), name
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens(tokenizer("1987 <tool_call>")["input_ids"]) == [
        "1", "9", "8", "7", "Ġ", "<tool_call>",
    ]  # fmt: skip
    assert "<tool_call>" not in tokenizer.all_special_tokens
    assert len(tokenizer) == len(tokens) - 2


def test_converting_twice_gives_the_same_bytes(tiny: Tiny, tmp_path: Path) -> None:
    for name in ("a", "b"):
        gguf_to_transformers(tiny[0], tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_configuration_says_what_the_file_says(tiny: Tiny, tmp_path: Path) -> None:
    gguf_to_transformers(tiny[0], tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5
    assert config["rope_theta"] == 100000.0
    assert config["max_position_embeddings"] == 64
    assert config["tie_word_embeddings"] is True
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == 2


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"not a model at all, and long enough to have a header" * 10)
    with pytest.raises(BadInput, match="as GGUF"):
        gguf_to_transformers(path, tmp_path / "out")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "falcon")
    writer.add_tokenizer_pre("falcon")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(BadInput, match="falcon"):
        gguf_to_transformers(path, tmp_path / "out")


def test_the_starters_tokenizer_keeps_digits_apart(starter_llm_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(starter_llm_dir)
    text = "In 1987:\n\n1. naïve 안녕 ▁"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    # A rule that looks at the digits after the line ends would have split them: "\n", "\n", "1".
    assert tokenizer.convert_ids_to_tokens(tokenizer("a\n\n1")["input_ids"]) == ["a", "ĊĊ", "1"]
    assert tokenizer.convert_ids_to_tokens(tokenizer("1987")["input_ids"]) == ["1", "9", "8", "7"]


def test_the_starters_chat_template_and_specials(starter_llm_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(starter_llm_dir)
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)


def test_the_starter_encoder_loads_and_knows_what_is_alike(starter_encoder_dir: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(starter_encoder_dir), device="cpu")
    assert encoder.max_seq_length == 256
    vectors = encoder.encode(["a cat sat on the mat", "a kitten was sitting on a rug", "the tax law of 1987"])
    assert vectors.shape == (3, 384)
    alike = vectors @ vectors.T
    assert alike[0, 0] == pytest.approx(1.0, abs=1e-5)
    assert alike[0, 1] > alike[0, 2] + 0.3
