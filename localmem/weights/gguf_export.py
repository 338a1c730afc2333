"""Writes a folder of a Llama model as one GGUF file, for llama.cpp, Ollama and LM Studio: the inverse of `convert`.

Matrices have 16 bits; llama.cpp's own tools make smaller ones of it. Does not depend on the manifest.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from localmem.errors import BadInput, requires
from localmem.files import read_json
from localmem.weights.convert import GGUF

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from gguf import GGUFWriter

    Array = npt.NDArray[np.float32]

_CONTROL, _NORMAL = 3, 1  # gguf.TokenType
_OBJECT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_CURE = "give the folder of a Llama model with the tokenizer of SmolLM2"


def transformers_to_gguf(folder: Path, target: Path) -> None:
    """Writes the model in `folder` to the file `target`.

    Raises BadInput for a model of another architecture or tokenizer, MissingExtra where the writer is not installed.
    """
    config = read_json(folder / "config.json", _OBJECT, _CURE)
    tokenizer = read_json(folder / "tokenizer.json", _OBJECT, _CURE)
    smollm = GGUF["splitting"]["smollm"]["pre_tokenizer"]
    if config.get("model_type") != "llama" or tokenizer.get("pre_tokenizer") != smollm:
        raise BadInput(f"{folder} is a {config.get('model_type')} model, or has another tokenizer: {_CURE}")
    with requires("writing GGUF needs the package {}", "cpu"):
        from gguf import GGUFWriter
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    writer = GGUFWriter(partial, "llama")
    _write_sizes(writer, config)
    settings = read_json(folder / "tokenizer_config.json", _OBJECT, _CURE)
    _write_tokenizer(writer, tokenizer, settings, config)
    for name, array in _tensors(folder, config):
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(target)


def _write_sizes(writer: "GGUFWriter", config: Mapping[str, Any]) -> None:
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or config
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(1)  # gguf.LlamaFileType.MOSTLY_F16


def _write_tokenizer(
    writer: "GGUFWriter", tokenizer: Mapping[str, Any], settings: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    model, added = tokenizer["model"], {token["id"]: token["content"] for token in tokenizer["added_tokens"]}
    ids = {number: token for token, number in model["vocab"].items()} | added
    size = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([ids.get(number, f"[PAD{number}]") for number in range(size)])
    writer.add_token_types([_CONTROL if number in added else _NORMAL for number in range(size)])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]])
    numbers = {token: number for number, token in ids.items()}
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config.get("pad_token_id") or config["eos_token_id"])
    writer.add_unk_token_id(numbers[str(settings.get("unk_token") or ids[0])])
    writer.add_add_bos_token(False)  # noqa: FBT003  # as the tokenizers of chat templates do
    template = settings.get("chat_template")
    writer.add_chat_template(str(template))


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, "Array"]]:
    import numpy as np
    from safetensors import safe_open

    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # not a mapping
                array: Array = file.get_tensor(name).float().numpy()
                part = name.split(".")[-2]
                if part in heads:
                    array = _interleave(array, heads[part])
                if name != "lm_head.weight" or not config.get("tie_word_embeddings"):
                    yield _gguf_name(name), array.astype(np.float16 if array.ndim > 1 else np.float32)


def _interleave(array: "Array", heads: int) -> "Array":
    """From the order of transformers, a rotary pair in two halves, to that of GGUF, side by side."""
    rows = array.shape[0]
    return array.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(array.shape)


def _gguf_name(tensor: str) -> str:
    stem, _, kind = tensor.rpartition(".")
    outside = {name: key for key, name in GGUF["outside"].items()}
    if stem in outside:
        return f"{outside[stem]}.{kind}"
    block = {name: key for key, name in GGUF["block"].items()}
    _, _, number, part = stem.split(".", 3)
    return f"blk.{number}.{block[part]}.{kind}"
