"""Where files are: the shipped model manifest and settings files, and the user's own settings and data.

Shipped files are at the root of a checkout (models/, configs/), or in localmem/data of an installed wheel. Only paths
here; other modules read the files.
"""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def checkout_root() -> Path | None:
    """The root of the checkout this package runs from, or None when it was installed from a wheel."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "models").is_dir() else None


def resource(relative: str) -> Path:
    """The path of a shipped file or folder, e.g. `resource("models/manifest.yaml")`.

    Raises FileNotFoundError when it is not part of this installation.
    """
    for base in (checkout_root(), _PACKAGE / "data"):
        if base is not None and (base / relative).exists():
            return base / relative
    raise FileNotFoundError(f"{relative} is not part of this installation of localmem ({_PACKAGE}): install it again")


def user_data_dir() -> Path:
    """The default data directory: $XDG_DATA_HOME/localmem, else ~/.local/share/localmem."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "localmem"


def user_settings_file() -> Path | None:
    """The user's own settings: the file that LOCALMEM_CONFIG names, else settings.yaml in the configuration directory.

    That directory is $XDG_CONFIG_HOME/localmem, else ~/.config/localmem. None when LOCALMEM_CONFIG names no file and
    there is none in that directory.
    """
    if path := os.environ.get("LOCALMEM_CONFIG"):
        return Path(path).expanduser()
    file = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "localmem" / "settings.yaml"
    return file if file.is_file() else None
