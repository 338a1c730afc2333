"""What the shell completes: names of systems, models and users. Imports nothing heavy; an error completes nothing."""

from contextlib import suppress
from pathlib import Path

import click

from localmem.errors import LocalmemError
from localmem.resources import resource


def complete_systems(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The systems that begin so."""
    return sorted(file.stem for file in resource("configs/systems").glob(f"{incomplete}*.yaml"))


def complete_models(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The backbones of the manifest that begin so."""
    from localmem.weights.manifest import Manifest

    with suppress(LocalmemError):
        return [
            entry.name
            for entry in Manifest.load().models.values()
            if entry.role == "llm" and entry.name.startswith(incomplete)
        ]
    return []


def complete_users(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The users in the store that begin so."""
    from localmem.cli.options import settings_of
    from localmem.store.opening import open_store

    config, data = ctx.params.get("config"), ctx.params.get("data_dir")
    with suppress(LocalmemError):
        settings = settings_of(Path(config) if config else None, Path(data) if data else None)
        if settings.store.key == "prompt":  # completion cannot ask
            return []
        store = open_store(settings)
        try:
            return [user for user in store.users() if user.startswith(incomplete)]
        finally:
            store.close()
    return []
