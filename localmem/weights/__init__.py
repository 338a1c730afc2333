"""The weights on this machine: which there are, where they come from, whether they are whole.

`manifest` says what each model is, `folder` where it stands and in what state, `pull`, `take_in` and `bundle` bring
weights in or carry them out. Nothing here knows how a model is run; only `pull` uses the network.
"""

from localmem.weights.folder import model_path
from localmem.weights.manifest import Entry, Manifest, MemoryPosition, Prefixes, Role, models_dir

__all__ = ["Entry", "Manifest", "MemoryPosition", "Prefixes", "Role", "model_path", "models_dir"]
