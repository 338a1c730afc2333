"""Converts a GGUF file of a Llama model into the folder that transformers and vLLM load.

Reads the metadata of the file directly instead of through transformers, for three reasons: the tokenizer of SmolLM2
splits numbers into digits, a rule that the reader of transformers drops; the output has the same bytes whatever is
installed, so a checksum can verify it; and it takes seconds. Does not depend on the manifest.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from localmem.errors import BadInput, MissingExtra
from localmem.files import read_yaml, write_json

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch
    from gguf import GGUFReader

    Array = npt.NDArray[np.float32]

_CONTROL = 3  # gguf.TokenType.CONTROL
LLAMA: dict[str, Any] = read_yaml(Path(__file__).with_name("llama.yaml"))


def gguf_to_transformers(source: Path, target: Path) -> None:
    """Writes config, generation config, tokenizer and bfloat16 safetensors of `source` into the folder `target`.

    The weights are dequantised, which does not restore their original precision. Raises BadInput for a file that is
    not a Llama model with a SmolLM tokenizer, MissingExtra where the reader is not installed.
    """
    from safetensors.torch import save_file

    reader = _open_reader(source)
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / "config.json", _config(reader), indent=1)
    ids = {name: _number(reader, key) for name, key in LLAMA["ids"].items()}
    write_json(target / "generation_config.json", ids, indent=1)
    write_json(target / "tokenizer.json", _tokenizer(reader), indent=1)
    write_json(target / "tokenizer_config.json", _tokenizer_config(reader), indent=1)
    save_file(dict(_weights(reader)), target / "model.safetensors", metadata={"format": "pt"})


def _open_reader(source: Path) -> "GGUFReader":
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise MissingExtra(f"reading {source.name} needs the package gguf: pip install 'localmem[cpu]'") from error
    try:
        reader = GGUFReader(source)
    except ValueError as error:
        raise BadInput(f"cannot read {source} as GGUF ({error}): fetch it again") from error
    kind = (_field(reader, "general.architecture"), _field(reader, "tokenizer.ggml.pre"))
    if kind != ("llama", "smollm"):
        raise BadInput(
            f"{source} is a {kind[0]} model with a {kind[1]} tokenizer: only llama with smollm is supported; serve "
            "other files with llama.cpp or Ollama, and set llm.url"
        )
    return reader


def _field(reader: "GGUFReader", key: str) -> object:
    field = reader.get_field(key)
    if field is None:
        raise BadInput(f"the GGUF file has no {key}: give a complete Llama model")
    return field.contents()


def _number(reader: "GGUFReader", key: str) -> int:
    return int(cast(int, _field(reader, key)))


def _config(reader: "GGUFReader") -> dict[str, object]:
    config = {
        **LLAMA["config"],
        **{name: _number(reader, key) for name, key in (LLAMA["ids"] | LLAMA["sizes"]).items()},
        # GGUF stores float32, 9.999999747e-06; six digits restore the original value.
        "rms_norm_eps": float(f"{_field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(cast(float, _field(reader, "llama.rope.freq_base"))),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
    }
    return dict(sorted(config.items()))


def _tokens(reader: "GGUFReader") -> list[str]:
    return cast(list[str], _field(reader, "tokenizer.ggml.tokens"))


def _tokenizer(reader: "GGUFReader") -> dict[str, object]:
    """The content of tokenizer.json."""
    kinds = cast(list[int], _field(reader, "tokenizer.ggml.token_type"))
    merges = cast(list[str], _field(reader, "tokenizer.ggml.merges"))
    tokens = _tokens(reader)
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": number, "content": token, **rules, "special": True}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == _CONTROL
    ]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    content: dict[str, Any] = LLAMA["tokenizer"]
    model = {**content["model"], "vocab": vocabulary, "merges": [merge.split(" ") for merge in merges]}
    return {**content, "added_tokens": added, "model": model}


def _tokenizer_config(reader: "GGUFReader") -> dict[str, object]:
    tokens = _tokens(reader)
    config = {
        **{name.removesuffix("_id"): tokens[_number(reader, key)] for name, key in LLAMA["ids"].items()},
        "chat_template": _field(reader, "tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": _number(reader, "llama.context_length"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[_number(reader, "tokenizer.ggml.unknown_token_id")],
    }
    return dict(sorted(config.items()))


def _weights(reader: "GGUFReader") -> Iterator[tuple[str, "torch.Tensor"]]:
    import torch
    from gguf.quants import dequantize

    heads = {
        ".attn_q.": _number(reader, "llama.attention.head_count"),
        ".attn_k.": _number(reader, "llama.attention.head_count_kv"),
    }
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type)
        for part, count in heads.items():
            if part in tensor.name:
                array = _deinterleave(array, count)
        yield _name(tensor.name), torch.tensor(array).to(torch.bfloat16)


def _deinterleave(array: "Array", heads: int) -> "Array":
    """From the order of GGUF, the dimensions of a rotary pair side by side, to that of transformers, in two halves."""
    rows = array.shape[0]
    pairs = array.reshape(heads, rows // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _name(tensor: str) -> str:
    stem, _, kind = tensor.rpartition(".")
    if stem in LLAMA["outside"]:
        return f"{LLAMA['outside'][stem]}.{kind}"
    _, block, part = stem.split(".")
    return f"model.layers.{block}.{LLAMA['block'][part]}.{kind}"
