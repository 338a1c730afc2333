"""The program, its packages and models in one archive, for a machine that never has a network.

pip builds the wheels of this installation's versions, for this Python and this kind of machine; it is the one part here
that uses the network. The archive is a plain tar:

    localmem-offline/install         sh install [FOLDER]: verify, make an environment, install, unpack the models
    localmem-offline/SHA256SUMS      readable by sha256sum -c
    localmem-offline/models.tar      what `localmem models bundle` writes
    localmem-offline/wheels/...
"""

import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from tempfile import TemporaryDirectory

from localmem.errors import PullFailed
from localmem.resources import checkout_root
from localmem.weights.folder import PARTIAL, checksum, format_size
from localmem.weights.offline import bundle

_TOP = "localmem-offline"
_EXTRAS = "serve,mcp,encryption"
_INSTALL = """#!/bin/sh
# Installs localmem from this folder, without a network: sh install [FOLDER]
set -eu
cd "$(dirname "$0")"
target=${{1:-$HOME/localmem}}
python=${{PYTHON:-$(command -v python{version} || command -v python3 || true)}}
if [ "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" != "{version}" ]; then
    echo "install: the wheels are for Python {version}, not for '$python'; set PYTHON=/path/to/python{version}" >&2
    exit 1
fi
sha256sum --check --quiet SHA256SUMS
"$python" -m venv "$target"
"$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps wheels/*.whl
"$target/bin/localmem" models unbundle models.tar
echo "installed: $target/bin/localmem"
"""

Notify = Callable[[str], None]


def bundle_program(names: Sequence[str], out: Path, notify: Notify, directory: Path | None = None) -> str:
    """Writes the named models and the program into the tar `out`; returns its sha256.

    Raises PullFailed when a package cannot be had, ModelMissing and ModelDamaged as `bundle` does.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as work:
        folder = Path(work)
        bundle(names, folder / "models.tar", notify, directory)
        _build_wheels(folder, notify)
        script = _INSTALL.format(version=f"{sys.version_info.major}.{sys.version_info.minor}")
        (folder / "install").write_text(script, encoding="utf-8")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        sums = "".join(f"{checksum(path)}  {path.relative_to(folder)}\n" for path in files)
        (folder / "SHA256SUMS").write_text(sums, encoding="utf-8")
        draft = out.with_name(out.name + PARTIAL)
        try:
            with tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as tar:
                tar.add(folder, _TOP)
            draft.replace(out)
        finally:
            draft.unlink(missing_ok=True)
    notify(f"{out}: {len(files)} files, {format_size(out.stat().st_size)}; there: tar -xf it, sh {_TOP}/install")
    return checksum(out)


def _build_wheels(folder: Path, notify: Notify) -> None:
    """Wheels of localmem and of all it needs, in the versions that are installed here. Raises PullFailed."""
    root = checkout_root()
    kind = "gpu" if _is_installed("faiss-gpu") else "cpu"
    program = f"{root}[{kind},{_EXTRAS}]" if root else f"localmem[{kind},{_EXTRAS}]=={version('localmem')}"
    pins = {(own.metadata["Name"], own.version.partition("+")[0]) for own in distributions()}
    (folder / "wheels").mkdir()
    constraints = folder / "wheels" / "constraints.txt"
    lines = (f"{name}=={number}\n" for name, number in sorted(pins) if name != "localmem")
    constraints.write_text("".join(lines), encoding="utf-8")
    notify(f"building the wheels of {program} (minutes)")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir"]
    command += [str(folder / "wheels"), "--constraint", str(constraints), program]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no reason"])[-1]
        raise PullFailed(f"pip cannot make the wheels ({reason}); check the network and pip's settings")


def _is_installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False
