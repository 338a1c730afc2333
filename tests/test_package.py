"""Importing localmem: what it sets for libraries that load later."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("given", "found"), [(None, "1000"), ("7", "7")])
def test_openmp_is_told_not_to_spin_unless_the_user_says_how_long(given: str | None, found: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    program = (
        "import localmem, os, sys; print(os.environ['GOMP_SPINCOUNT'], {'torch', 'numpy', 'faiss'} & {*sys.modules})"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | ({"GOMP_SPINCOUNT": given} if given else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split(maxsplit=1) == [found, "set()\n"]
