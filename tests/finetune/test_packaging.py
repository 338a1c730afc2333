"""What an installed project holds of the training data."""

import subprocess
import sys
import zipfile
from pathlib import Path

from localmem.evaluation.datasets.labelled_pairs import SHIPPED

ROOT = Path(__file__).parent.parent.parent


def test_a_wheel_holds_the_operation_pairs_and_what_is_said_of_them(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        assert wheel.read("finetune/data/operations.jsonl") == SHIPPED.read_bytes()
        assert "finetune/data/README.md" in wheel.namelist()
