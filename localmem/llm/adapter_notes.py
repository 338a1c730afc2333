"""What an adapter was trained for, in a file beside its weights, and whether it is used for that.

An adapter has learned one wording of its prompts under one chat template; with another it may do anything. Does not
load weights.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, Field

from localmem.errors import BadSettings
from localmem.files import read_json, write_json
from localmem.prompts import load

FILE = "localmem.json"

log = logging.getLogger(__name__)


class AdapterNotes(BaseModel):
    """The base model's name, the sha256 of each prompt file that was learned, and that of the chat template."""

    base: str
    prompts: Mapping[str, str] = Field(default_factory=dict)
    template_sha256: str = ""


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

    Raises BadSettings for a DoRA adapter, which neither vLLM nor peft (for rows of several adapters) can run.
    """
    if _is_dora(folder):
        raise BadSettings(
            f"the adapter in {folder} was trained with DoRA, which must be merged; run `localmem distill merge`"
        )
    notes = read_notes(folder)
    for change in list_changes(notes, template_sha256) if notes else ():
        log.warning("adapter %s: %s; train it again", folder.name, change)


def _is_dora(folder: Path) -> bool:
    """False where the folder cannot be read: loading the adapter then raises the error."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and bool(config.get("use_dora"))
