"""The run of test_runner at a pace that leaves time to kill it. Started as a process: `python -m … FILE`."""

import sys
from pathlib import Path

from localmem.llm.scripted import ScriptedLLM
from tests.evaluation.test_runner import run_lines, script

if __name__ == "__main__":
    run_lines(Path(sys.argv[1]), ScriptedLLM(script, first_token=0.05), threads=2)
