"""The weights on this machine: which models exist, where they come from, and whether they are complete.

`manifest` describes the models, `folder` finds and checks them, `pull` fetches them, `offline` imports a folder or
carries models to another machine. Does not run models; only `pull` uses the network.
"""

from localmem.weights.folder import model_path
from localmem.weights.manifest import Entry, Manifest, MemoryPosition, Prefixes, Role, models_dir

__all__ = ["Entry", "Manifest", "MemoryPosition", "Prefixes", "Role", "model_path", "models_dir"]
