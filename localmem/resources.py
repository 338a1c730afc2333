"""Where the shipped data files lie: the model manifest and the settings files.

In a checkout they stand at its root (models/, configs/); in an installed wheel they stand in localmem/data. Knows no
file's meaning.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def checkout_root() -> Path | None:
    """The root of the checkout this package runs from, or None when it was installed from a wheel."""
    root = _PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "models").is_dir() else None


def resource(relative: str) -> Path:
    """The path of a shipped file or folder, e.g. `resource("models/manifest.yaml")`.

    Raises FileNotFoundError when this installation does not hold it.
    """
    for base in (checkout_root(), _PACKAGE / "data"):
        if base is not None and (base / relative).exists():
            return base / relative
    raise FileNotFoundError(f"{relative} is not part of this installation of localmem ({_PACKAGE}): install it again")
