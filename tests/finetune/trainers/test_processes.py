"""Training in two processes, as `accelerate launch --multi_gpu` and torchrun start them: half the steps, one folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from finetune.traces.trace import write_traces
from tests.finetune.small import small_chat
from tests.finetune.trainers.test_lora import TRACES


@pytest.mark.slow
def test_two_processes_share_the_rows(tmp_path: Path) -> None:
    base = small_chat(tmp_path / "base")
    for part, times in (("train", 6), ("valid", 1)):
        write_traces(tmp_path / part / "respond.jsonl", TRACES * times)
    words = ["distill", "train", str(tmp_path), "--stage", "respond", "--student", str(base), "--epochs", "3"]
    words += ["--set", "row_tokens=30", "--set", "learning_rate=2e-2", "--rank", "8"]
    reports = []
    for name, launcher in (("one", []), ("two", ["-m", "torch.distributed.run", "--nproc-per-node", "2"])):
        command = [sys.executable, *launcher, "-m", "localmem", *words, "--out", str(tmp_path / name)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
        assert result.stderr.count("packed rows") == 1  # only the first process reports
        assert (tmp_path / name / "adapter_model.safetensors").is_file()
        reports.append(json.loads((tmp_path / name / "run.json").read_text(encoding="utf-8")))
    first, second = reports
    assert second["steps"] == first["steps"] / 2
    assert second["measures"]["loss"] < 0.6
