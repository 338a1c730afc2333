"""files: what a reader finds after a crash, a full disk or a wrong line, and the one line that says so."""

import errno
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, PositiveInt, TypeAdapter, ValidationError, field_validator

from localmem.errors import BadInput
from localmem.files import (
    JsonlLog,
    Part,
    nearest,
    one_line,
    parse_json,
    read_json,
    read_jsonl,
    read_lines,
    read_log,
    read_text,
    read_yaml,
    validation_line,
    write_atomic,
    write_json,
    write_jsonl,
)

NUMBERS = TypeAdapter(dict[str, int])


class Sizes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: PositiveInt = 1
    names: list[str] = []

    @field_validator("width")
    @classmethod
    def _require_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value


class Outer(BaseModel):
    sizes: Sizes


class Case(NamedTuple):
    content: object
    message: str


@pytest.mark.parametrize(
    "case",
    [
        Case({"sizes": {"width": -2}}, "sizes.width: Input should be greater than 0 (got -2)"),
        Case({"sizes": {"width": 3}}, "sizes.width: must be even (got 3)"),
        Case({"sizes": {"widht": 2}}, "sizes.widht: Extra inputs are not permitted (got 2)"),
        Case({"sizes": {"names": ["a", {"b": "long" * 99}]}}, "sizes.names.1: Input should be a valid string"),
        Case({}, "sizes: Field required"),
    ],
)
def test_a_pydantic_error_is_one_line(case: Case) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(case.content)
    assert one_line(caught.value) == case.message


@pytest.mark.parametrize(
    "case",
    [
        Case({"sizes": {"width": 3}}, "option 'sizes.width' cannot be 3: must be even"),
        Case({"sizes": {"widht": 2}}, "unknown option 'sizes.widht' (did you mean 'sizes.width'?)"),
        Case({}, "option 'sizes' is required; set it"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_nearest_name(case: Case) -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(case.content)
    assert validation_line(caught.value, Outer, "option") == case.message


def test_a_long_value_is_cut() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("x" * 5000)
    assert len(one_line(caught.value)) < 200


def test_the_nearest_name_is_offered_only_when_it_is_near() -> None:
    assert nearest("datadir", ["data_dir", "user"]) == " (did you mean 'data_dir'?)"
    assert nearest("zzz", ["data_dir", "user"]) == ""


READERS: dict[str, Callable[[Path], object]] = {
    "text": read_text,
    "json": lambda path: read_json(path, NUMBERS),
    "yaml": read_yaml,
    "lines": lambda path: list(read_lines(path)),
    "jsonl": lambda path: list(read_jsonl(path, NUMBERS)),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_what_cannot_be_read_is_one_line_with_the_path(tmp_path: Path, reader: Callable[[Path], object]) -> None:
    with pytest.raises(BadInput, match=r"^cannot read .*absent \(No such file or directory\); give .+$"):
        reader(tmp_path / "absent")
    path = tmp_path / "binary"
    path.write_bytes(b"{}\n\xff\xfe\n")
    with pytest.raises(BadInput, match=r"^cannot read .*binary.* \(not UTF-8: invalid start byte at byte \d+\); give"):
        reader(path)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    assert read_json(path, NUMBERS) == {"a": 1}
    assert list(read_jsonl(path, NUMBERS)) == [{"a": 1}]


def test_wrong_content_names_file_line_field_and_cure(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": "one"}\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"a\.jsonl, line 3: a: .*integer.* \(got 'one'\); give numbers"):
        list(read_jsonl(path, NUMBERS, "give numbers"))
    with pytest.raises(BadInput, match=r"^here: Invalid JSON: .*; give numbers"):
        parse_json("here", "{", NUMBERS, "give numbers")


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"a\u2028b": 1}, ensure_ascii=False) + "\r\n" + '{"c": 2}', encoding="utf-8")
    assert list(read_jsonl(path, NUMBERS)) == [{"a\u2028b": 1}, {"c": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [("a: [", "is not YAML: .*line 2"), ("- a", "holds a list, not a mapping; give `key: value`")],
)
def test_yaml_that_is_no_mapping_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        read_yaml(path)
    path.write_text("", encoding="utf-8")
    assert read_yaml(path) == {}


def test_a_file_is_replaced_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a.txt"
    parts: list[Part] = ["new", b" and ", memoryview(b"parts")]
    for content in ("old", b"bytes", parts):
        write_atomic(path, content)
    assert path.read_text() == "new and parts"
    assert list(path.parent.iterdir()) == [path]


def _break_halfway() -> Iterator[str]:
    yield "half"
    raise RuntimeError("the source broke")


def test_a_source_that_breaks_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="broke"):
        write_atomic(path, _break_halfway())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(BadInput, match=r"cannot write .*a\.txt \(No space left on device\); make room$"):
        write_atomic(path, "new", "make room")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_below_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput, match=r"^cannot write .*; choose another path$"):
        write_json(tmp_path / "file" / "a.json", {})


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_atomic(link, "through")
    assert link.is_symlink()
    assert target.read_text() == "through"
    write_atomic(Path("/dev/null"), "gone")
    assert not Path("/dev/null").is_file()


def test_the_mode_is_the_users_but_where_a_file_is_private(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        write_atomic(tmp_path / "public", "x")
        write_atomic(tmp_path / "private", "x", mode=0o600)
    finally:
        os.umask(previous)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("public", "private")] == [0o644, 0o600]


def test_rows_and_values_are_written_as_json(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [{"ä": 1}, {"b": 2}])
    write_json(tmp_path / "value.json", {"ä": [1]})
    assert (tmp_path / "rows.jsonl").read_text(encoding="utf-8") == '{"ä": 1}\n{"b": 2}\n'
    assert json.loads((tmp_path / "value.json").read_text(encoding="utf-8")) == {"ä": [1]}


def test_a_log_resumes_after_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonlLog(path, NUMBERS) as log:
        assert log.records == ()
        log.append({"a": 1})
    with path.open("ab") as file:
        file.write(b'{"b": ')
    assert list(read_log(path, NUMBERS)) == [{"a": 1}]
    with JsonlLog(path, NUMBERS) as log:
        assert log.records == ({"a": 1},)
        log.append({"c": 3})
    assert list(read_log(path, NUMBERS)) == [{"a": 1}, {"c": 3}]


def test_a_log_takes_lines_of_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    numbers = [{"n": number} for number in range(200)]
    with JsonlLog(path, NUMBERS) as log:
        threads = [
            threading.Thread(target=lambda start=start: list(map(log.append, numbers[start : start + 50])))
            for start in range(0, 200, 50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(read_log(path, NUMBERS), key=lambda record: record["n"]) == numbers


def test_a_log_that_is_not_open_or_not_a_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with pytest.raises(BadInput, match="is not open for writing"):
        JsonlLog(path, NUMBERS).append({"a": 1})
    path.write_text("{}\n[]\n")
    with pytest.raises(BadInput, match=r"log\.jsonl, line 2: "), JsonlLog(path, NUMBERS):
        pass
