"""Summaries of long drills: a JSON file each, with the command, the revision and the machine."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.drills.processes import ROOT

RESULTS = ROOT / "localmem" / "store" / "results"


def write_summary(out: Path, document: Mapping[str, object]) -> None:
    """Write it, with how it came to be."""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0])}
    stamps = {"finished": datetime.now(UTC).isoformat(timespec="seconds"), "revision": revision.stdout.strip()}
    command = " ".join(["scripts/drills", *sys.argv[1:]])
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"command": command, **stamps, **machine, **document}, indent=2) + "\n", encoding="utf-8")
