"""Programs of one job: wrong arguments and files are one line and exit 2."""

from pathlib import Path

import click
import pytest
from finetune.program import FILE, PLACE, run_program

from localmem.errors import BadInput


def _exit(job: object, monkeypatch: pytest.MonkeyPatch, *given: object) -> int | str | None:
    monkeypatch.setattr("sys.argv", ["job", *map(str, given)])
    with pytest.raises(SystemExit) as ended:
        run_program(job, click.Argument(["file"], type=FILE), click.Argument(["out"], type=PLACE))  # type: ignore[arg-type]
    return ended.value.code


def _copy(file: Path, out: Path) -> None:
    if not file.read_text():
        raise BadInput("the file is empty; give another")
    out.write_text(file.read_text())


def test_what_is_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.write_text("x")
    assert _exit(_copy, monkeypatch, source, out) == 0
    assert out.read_text() == "x"
    for given, said in (
        ((), "Missing argument 'FILE'"),
        ((tmp_path / "nosuch", out), "does not exist"),
        ((source, tmp_path / "no" / "out"), "cannot write"),
        ((source, out, "more"), "unexpected extra argument"),
    ):
        assert _exit(_copy, monkeypatch, *given) == 2
        assert said in capsys.readouterr().err
    source.write_text("")
    assert _exit(_copy, monkeypatch, source, out) == 2
    assert "the file is empty; give another" in capsys.readouterr().err
