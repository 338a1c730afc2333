"""A trained classifier stored without what it shares with its encoder: the layers that learned, and the head.

Linear layers are int8 rows with a scale each, the rest float16, so that a classifier of MiniLM is a few megabytes. The
folder's config names the encoder and the checksum of its weights; embeddings, lower layers and tokenizer are the
encoder's own.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadSettings, ModelDamaged
from localmem.retrieval.bert import weights_checksum
from localmem.weights.folder import model_folder

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedModel

NOTES = "localmem"  # the config's field for notes from the training
WEIGHTS = "part.safetensors"
BASE, BASE_SHA256 = "base", "base_sha256"  # notes in the config
_SCALE = ".scale"  # ends the name of the scales of an int8 weight's rows
_BASE_WEIGHTS = "model.safetensors"


def notes_of(config: Mapping[str, object]) -> Mapping[str, object]:
    """The notes in a model's config.json; empty where there are none."""
    notes = config.get(NOTES)
    return notes if isinstance(notes, dict) else {}


def part_notes(base: str) -> dict[str, object]:
    """The notes for the config of a part over this encoder, given by name or folder."""
    return {BASE: base, BASE_SHA256: weights_checksum(model_folder(base) / _BASE_WEIGHTS)}


def save_part(folder: Path, model: "PreTrainedModel") -> None:
    """Write the model's config, and the weights that learn (those with `requires_grad`)."""
    from safetensors.torch import save_file

    model.config.architectures = [type(model).__name__]
    trained = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(str(folder))
    save_file(_pack(trained), str(folder / WEIGHTS))
    (folder / WEIGHTS).chmod(0o644)  # safetensors makes it readable by its owner only


def load_part(folder: Path, notes: Mapping[str, object], dtype: "torch.dtype") -> "PreTrainedModel":
    """The whole classifier. Raises BadSettings for an encoder with other weights, ModelDamaged for a bad file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

    base = part_base(notes)
    if weights_checksum(base / _BASE_WEIGHTS) != notes.get(BASE_SHA256):
        raise BadSettings(
            f"{folder.name} was trained on other weights of {notes[BASE]} than those in {base}; pull it again"
        )
    config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    reads_tokens = any(kind.endswith("ForTokenClassification") for kind in config.architectures or ())
    kind = AutoModelForTokenClassification if reads_tokens else AutoModelForSequenceClassification
    with _without_report():
        model: PreTrainedModel = kind.from_pretrained(str(base), config=config, local_files_only=True)
    try:
        trained = _unpack(load_file(str(folder / WEIGHTS)))
    except (OSError, SafetensorError) as error:
        raise ModelDamaged(f"{folder / WEIGHTS} cannot be read ({error}): install it again") from error
    if unknown := model.load_state_dict(trained, strict=False).unexpected_keys:
        raise ModelDamaged(f"{folder / WEIGHTS} holds {unknown[0]}, which the encoder lacks: install it again")
    return model.to(dtype)


@contextmanager
def _without_report() -> Iterator[None]:
    """Silence the library's notice that the encoder has no head: it comes from the part."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def part_base(notes: Mapping[str, object]) -> Path:
    """The folder of the encoder that a part is stored without."""
    return model_folder(str(notes[BASE]))


def _pack(weights: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    import torch

    packed = {}
    for name, weight in weights.items():
        if weight.ndim == 2:
            scales = weight.float().abs().amax(1).clamp_min(1e-8) / 127
            packed[f"{name}{_SCALE}"] = scales
            packed[name] = (weight.float() / scales[:, None]).round().to(torch.int8).contiguous()
        else:
            packed[name] = weight.half()
    return packed


def _unpack(packed: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    return {
        name: weight.float() * packed[f"{name}{_SCALE}"][:, None] if f"{name}{_SCALE}" in packed else weight.float()
        for name, weight in packed.items()
        if not name.endswith(_SCALE)
    }
