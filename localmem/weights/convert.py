"""Converts a GGUF file of a Llama or Qwen2 model into the folder that transformers and vLLM load.

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

_NORMAL, _CONTROL, _UNUSED = 1, 3, 5  # gguf.TokenType
GGUF: dict[str, Any] = read_yaml(Path(__file__).with_name("gguf.yaml"))
SUPPORTED = (("llama", "smollm"), ("qwen2", "qwen2"))  # architectures and tokenizers


def gguf_to_transformers(source: Path, target: Path) -> None:
    """Writes config, generation config, tokenizer and bfloat16 safetensors of `source` into the folder `target`.

    The weights are dequantised, which does not restore their original precision. Raises BadInput for a file that has
    none of the architectures and tokenizers above, MissingExtra where the reader is not installed.
    """
    from safetensors.torch import save_file

    reader = _open_reader(source)
    target.mkdir(parents=True, exist_ok=True)
    write_json(target / "config.json", _config(reader), indent=1)
    ids = {name: _number(reader, key) for name, key in GGUF["ids"].items()}
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
    kind = (_architecture(reader), _field(reader, "tokenizer.ggml.pre"))
    if kind not in SUPPORTED:
        supported = " and ".join(" with ".join(pair) for pair in SUPPORTED)
        raise BadInput(
            f"{source} is a {kind[0]} model with a {kind[1]} tokenizer: only {supported} are supported; serve other "
            "files with llama.cpp or Ollama, and set llm.url"
        )
    return reader


def _field(reader: "GGUFReader", key: str) -> object:
    field = reader.get_field(key)
    if field is None:
        raise BadInput(f"the GGUF file has no {key}: give a complete model")
    return field.contents()


def _number(reader: "GGUFReader", key: str) -> int:
    return int(cast(int, _field(reader, key)))


def _architecture(reader: "GGUFReader") -> str:
    return cast(str, _field(reader, "general.architecture"))


def _config(reader: "GGUFReader") -> dict[str, object]:
    name = _architecture(reader)
    architecture = GGUF["architectures"][name]
    config = {
        **architecture["config"],
        **{ours: _number(reader, key) for ours, key in GGUF["ids"].items()},
        **{ours: _number(reader, f"{name}.{key}") for ours, key in architecture["sizes"].items()},
        "vocab_size": len(_tokens(reader)),
        # GGUF stores float32, 9.999999747e-06; six digits restore the original value.
        "rms_norm_eps": float(f"{_field(reader, f'{name}.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_theta": float(cast(float, _field(reader, f"{name}.rope.freq_base"))),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in reader.tensors),
    }
    return dict(sorted(config.items()))


def _tokens(reader: "GGUFReader") -> list[str]:
    return cast(list[str], _field(reader, "tokenizer.ggml.tokens"))


def _tokenizer(reader: "GGUFReader") -> dict[str, object]:
    """The content of tokenizer.json, without the unused tokens that only fill up the model's vocabulary."""
    kinds = cast(list[int], _field(reader, "tokenizer.ggml.token_type"))
    merges = cast(list[str], _field(reader, "tokenizer.ggml.merges"))
    tokens = [(i, token, kind) for i, (token, kind) in enumerate(zip(_tokens(reader), kinds, strict=True))]
    rules = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": number, "content": token, **rules, "special": kind == _CONTROL}
        for number, token, kind in tokens
        if kind not in (_NORMAL, _UNUSED)
    ]
    vocabulary = {token: number for number, token, kind in tokens if kind != _UNUSED}
    content: dict[str, Any] = GGUF["tokenizer"] | GGUF["splitting"][_field(reader, "tokenizer.ggml.pre")]
    model = {**content["model"], "vocab": vocabulary, "merges": [merge.split(" ") for merge in merges]}
    return {**content, "added_tokens": added, "model": model}


def _tokenizer_config(reader: "GGUFReader") -> dict[str, object]:
    tokens = _tokens(reader)
    ids = {name.removesuffix("_id"): _number(reader, key) for name, key in GGUF["ids"].items()}
    if reader.get_field("tokenizer.ggml.unknown_token_id"):
        ids["unk_token"] = _number(reader, "tokenizer.ggml.unknown_token_id")
    config = {
        **{name: tokens[number] for name, number in ids.items()},
        "chat_template": _field(reader, "tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": _number(reader, f"{_architecture(reader)}.context_length"),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return dict(sorted(config.items()))


def _weights(reader: "GGUFReader") -> Iterator[tuple[str, "torch.Tensor"]]:
    import torch
    from gguf.quants import dequantize

    name = _architecture(reader)
    heads = {
        ".attn_q.": _number(reader, f"{name}.attention.head_count"),
        ".attn_k.": _number(reader, f"{name}.attention.head_count_kv"),
    }
    interleaved = GGUF["architectures"][name]["interleaved"]
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type)
        for part, count in heads.items():
            if interleaved and part in tensor.name:
                array = _deinterleave(array, count)
        yield _name(tensor.name), torch.tensor(array).to(torch.bfloat16)


def _deinterleave(array: "Array", heads: int) -> "Array":
    """From the order of GGUF, the dimensions of a rotary pair side by side, to that of transformers, in two halves."""
    rows = array.shape[0]
    pairs = array.reshape(heads, rows // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _name(tensor: str) -> str:
    stem, _, kind = tensor.rpartition(".")
    if stem in GGUF["outside"]:
        return f"{GGUF['outside'][stem]}.{kind}"
    _, block, part = stem.split(".")
    return f"model.layers.{block}.{GGUF['block'][part]}.{kind}"
