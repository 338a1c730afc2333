"""LoRA adapters of an in-process model: loaded and dropped while it runs, selected by prompt name.

Depends on peft. Not locked: the caller makes sure that no step runs meanwhile.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput, BadSettings, MissingExtra, ModelMissing
from localmem.llm.base import route

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


class Adapters:
    """`model` is what to call: the model itself, or while there are adapters the wrapper of peft around it."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self.model: torch.nn.Module = model
        self._base = model
        self._ids: dict[str, str] = {}
        self._loaded: set[str] = set()
        self._count = 0

    @property
    def needs_names(self) -> bool:
        """Whether a call of the model must name each row's adapter."""
        return bool(self._loaded)

    @property
    def names(self) -> Mapping[str, str]:
        """Prompt names, each with the id of its adapter."""
        return dict(self._ids)

    def route(self, prompt_name: str) -> str | None:
        """The id of the adapter for this prompt, or None for the model itself."""
        return route(self._ids, prompt_name)

    def load(self, name: str, folder: Path) -> None:
        """Loads an adapter for prompts called `name`; an earlier one of that name stays loaded until it is dropped."""
        if not (folder / "adapter_config.json").is_file():
            raise ModelMissing(f"no adapter in {folder}; give a folder that holds adapter_config.json")
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
        self._loaded.add(adapter)
        self._ids[name] = adapter

    def unroute(self, name: str) -> str:
        """Uses the model itself for prompts called `name`; returns the id to drop once no row uses it."""
        if name not in self._ids:
            raise BadInput(
                f"no adapter is loaded under {name!r}; loaded adapters: {', '.join(sorted(self._ids)) or 'none'}"
            )
        return self._ids.pop(name)

    def drop(self, adapter: str) -> None:
        """Frees an adapter's weights."""
        self._loaded.remove(adapter)
        if self._loaded:
            self.model.set_adapter(next(iter(self._loaded)))  # peft warns when the active adapter is deleted
            self.model.delete_adapter(adapter)
        else:
            self._base = self.model.unload()
            self.model = self._base

    def _load(self, adapter: str, folder: Path) -> None:
        try:
            from peft import PeftConfig, PeftModel
        except ImportError as error:
            raise MissingExtra("adapters need the package peft; run `pip install 'localmem[cpu]'`") from error
        wrapped = self.model
        if wrapped is self._base:
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            # The adapter computes in the model's own precision; a wider one is for training.
            wrapped = PeftModel(self._base, config, adapter_name=adapter, autocast_adapter_dtype=False)
        try:
            wrapped.load_adapter(str(folder), adapter, autocast_adapter_dtype=False)
        except (RuntimeError, ValueError):
            self._remove_layers(adapter, wrapped)
            raise
        self.model = wrapped.eval()

    def _remove_layers(self, adapter: str, wrapped: "torch.nn.Module") -> None:
        """Undoes a failed load, which leaves the adapter's layers in the model."""
        if not self._loaded:
            self._base = wrapped.unload()
        elif adapter in wrapped.peft_config:
            wrapped.delete_adapter(adapter)
