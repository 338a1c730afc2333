"""Importing localmem: it changes nothing in the host process and loads no heavy library."""

import os
import subprocess
import sys


def test_importing_the_package_changes_nothing_in_the_host_process() -> None:
    program = (
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "import localmem\n"
        "assert dict(os.environ) == before\n"
        "print({'torch', 'numpy', 'faiss'} & {*sys.modules})"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout == "set()\n"
