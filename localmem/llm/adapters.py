"""LoRA adapters: what each was trained for, and those of an in-process model, selected by prompt name.

An adapter has learned one wording of its prompts under one chat template; with another it may do anything.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from localmem.errors import BadSettings, ModelMissing, requires
from localmem.files import read_json, write_json
from localmem.llm.base import route
from localmem.prompts import load

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

FILE = "localmem.json"

log = logging.getLogger(__name__)


class AdapterNotes(BaseModel):
    """The base model's name, the sha256 of each prompt file that was learned, and that of the chat template.

    `worse` are the measures at which `localmem distill check` found it worse than its base, `failed` what it did not
    reach in `localmem distill prove`. A trained part of another role has notes for these alone.
    """

    base: str
    prompts: Mapping[str, str] = Field(default_factory=dict)
    template_sha256: str = ""
    worse: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def read_notes(folder: Path) -> AdapterNotes | None:
    """None for an adapter that localmem did not train. Raises BadInput for notes that cannot be read."""
    path = folder / FILE
    return read_json(path, AdapterNotes, "train the adapter again") if path.is_file() else None


def save_notes(folder: Path, notes: AdapterNotes) -> None:
    """Writes the notes beside the adapter's weights."""
    write_json(folder / FILE, notes.model_dump(), indent=1)


def list_changes(notes: AdapterNotes, template_sha256: str | None) -> list[str]:
    """What differs now from what was learned, a line each; None for a template that is unknown here."""
    changes = []
    for name, digest in notes.prompts.items():
        try:
            unchanged = load(name).digest == digest
        except BadSettings:
            changes.append(f"it was trained on the prompt {name!r}, which does not exist any more")
            continue
        if not unchanged:
            changes.append(f"the prompt {name!r} has changed since the training")
    if template_sha256 and notes.template_sha256 not in ("", template_sha256):
        changes.append("the chat template differs from that of the training")
    return changes


def warn_of_changes(folder: Path, template_sha256: str | None) -> None:
    """Logs what differs: an adapter with a changed prompt still runs, but its quality is unknown.

    Raises BadSettings for a DoRA adapter, which neither vLLM nor peft (for rows of several adapters) can run, and for
    one that was found worse than its base or failed its proof.
    """
    if _is_dora(folder):
        raise BadSettings(
            f"the adapter in {folder} was trained with DoRA, which must be merged; run `localmem distill merge`"
        )
    notes = require_proved(folder)
    for change in list_changes(notes, template_sha256) if notes else ():
        log.warning("adapter %s: %s; train it again", folder.name, change)


def require_proved(folder: Path) -> AdapterNotes | None:
    """The notes of an adapter, a merged model or a trained part.

    Raises BadSettings where a measurement speaks against its use.
    """
    notes = read_notes(folder)
    if notes and notes.worse:
        raise BadSettings(
            f"the student in {folder} is worse than its base at {', '.join(notes.worse)}; train it again, or run "
            "`localmem distill check` with --force"
        )
    if notes and notes.failed:
        raise BadSettings(
            f"the student in {folder} failed when it was measured: {'; '.join(notes.failed)}; train it again, run "
            f"`localmem distill prove` with --force, or delete {FILE} there"
        )
    return notes


def _is_dora(folder: Path) -> bool:
    """False where the folder cannot be read: loading the adapter then raises the error."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and bool(config.get("use_dora"))


class Adapters:
    """Adapters of an in-process model, loaded while it runs.

    `model` is what to call: the model itself, or while there are adapters the wrapper of peft around it. Not locked:
    the caller makes sure that no step runs meanwhile.
    """

    def __init__(self, model: "PreTrainedModel") -> None:
        self.model: torch.nn.Module = model
        self._base = model
        self._ids: dict[str, str] = {}
        self._count = 0

    @property
    def needs_names(self) -> bool:
        """Whether a call of the model must name each row's adapter."""
        return bool(self._ids)

    def route(self, prompt_name: str) -> str | None:
        """The id of the adapter for this prompt, or None for the model itself."""
        return route(self._ids, prompt_name)

    def load(self, name: str, folder: Path) -> None:
        """Loads an adapter for prompts called `name`, in place of an earlier one of that name."""
        if not (folder / "adapter_config.json").is_file():
            raise ModelMissing(
                f"no adapter in {folder}; give a folder with adapter_config.json, or the name of an imported adapter"
            )
        self._count += 1
        # peft uses ids as module names, which must not contain a dot.
        adapter = f"adapter{self._count}"
        try:
            self._load(adapter, folder)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise BadSettings(
                f"the adapter in {folder} does not fit the model: {reason}; train it on this model"
            ) from error
        self._ids[name] = adapter

    def _load(self, adapter: str, folder: Path) -> None:
        with requires("adapters need the package peft", "cpu"):
            from peft import PeftConfig, PeftModel
        wrapped = self.model
        if wrapped is self._base:
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            # The adapter computes in the model's own precision; a wider one is for training.
            wrapped = PeftModel(self._base, config, adapter_name=adapter, autocast_adapter_dtype=False)
        try:
            wrapped.load_adapter(str(folder), adapter, autocast_adapter_dtype=False)
        except (RuntimeError, ValueError):
            if not self._ids:
                self._base = wrapped.unload()
            elif adapter in wrapped.peft_config:
                wrapped.delete_adapter(adapter)
            raise
        self.model = wrapped.eval()
