"""LoRA adapters of an in-process model: loaded and dropped while it runs, chosen by prompt name.

Knows peft; knows no tokens and no threads.
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
    """`model` is what to call: the model itself, or peft's wrapper of it while there are adapters."""

    def __init__(self, model: "PreTrainedModel") -> None:
        self.model: torch.nn.Module = model
        self._base = model
        self._ids: dict[str, str] = {}
        self._loaded: set[str] = set()
        self._made = 0

    @property
    def mixed(self) -> bool:
        """Whether the model must be told which adapter each row goes through."""
        return bool(self._loaded)

    @property
    def names(self) -> Mapping[str, str]:
        """Prompt names, and the id under which each one's adapter is loaded."""
        return dict(self._ids)

    def route(self, prompt_name: str) -> str | None:
        """The id of the adapter that answers this prompt."""
        return route(self._ids, prompt_name)

    def load(self, name: str, folder: Path) -> None:
        """Loads an adapter for prompts called `name`; any other loaded under that name stays until it is dropped."""
        if not (folder / "adapter_config.json").is_file():
            raise ModelMissing(f"no adapter in {folder}; give a folder that holds adapter_config.json")
        self._made += 1
        # peft uses ids as module names, which may hold no dot.
        adapter = f"adapter{self._made}"
        try:
            self._load(adapter, folder)
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise BadSettings(
                f"the adapter in {folder} does not suit the model: {reason}; train it on this one"
            ) from error
        self._loaded.add(adapter)
        self._ids[name] = adapter

    def forget(self, name: str) -> str:
        """Prompts called `name` go to the model itself from now on; the id to drop once nothing uses it."""
        if name not in self._ids:
            raise BadInput(f"no adapter is loaded under {name!r}; loaded are: {', '.join(sorted(self._ids)) or 'none'}")
        return self._ids.pop(name)

    def drop(self, adapter: str) -> None:
        """Frees an adapter's weights."""
        self._loaded.remove(adapter)
        if self._loaded:
            self.model.set_adapter(next(iter(self._loaded)))  # peft complains of losing the one it calls active
            self.model.delete_adapter(adapter)
        else:
            self._base = self.model.unload()
            self.model = self._base

    def _load(self, adapter: str, folder: Path) -> None:
        try:
            from peft import PeftConfig, PeftModel
        except ImportError as error:
            raise MissingExtra("adapters need the package peft; install localmem[cpu] or localmem[gpu]") from error
        wrapped = self.model
        if wrapped is self._base:
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            # The adapter computes in the model's own precision: widening it is for training.
            wrapped = PeftModel(self._base, config, adapter_name=adapter, autocast_adapter_dtype=False)
        try:
            wrapped.load_adapter(str(folder), adapter, autocast_adapter_dtype=False)
        except (RuntimeError, ValueError):
            self._take_out(adapter, wrapped)
            raise
        self.model = wrapped.eval()

    def _take_out(self, adapter: str, wrapped: "torch.nn.Module") -> None:
        """Undoes an adapter whose layers are in the model while its weights are not."""
        if not self._loaded:
            self._base = wrapped.unload()
        elif adapter in wrapped.peft_config:
            wrapped.delete_adapter(adapter)
