#!/usr/bin/env python3
"""Gets the public data sets that the evaluation reads, where there is a network: scripts/fetch_data.py NAME ...

Without a name it lists them with licence and size; `all` means all. What may not be used commercially is fetched with
--accept-nc only. What was fetched stands in fetched.json with its sha256, and is verified by it from then on; an
interrupted download goes on where it stopped. What is there is left as it is.

Not among them, for it cannot be fetched as it is read: msc_cc (made of talzoomanzoo/theanine-geval), TeaBag (`localmem
eval teafarm` makes such sets), and the Korean original of CareCall-memory (had from NAVER on request).
"""

import argparse
import json
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

try:
    import httpx
    from tqdm import tqdm
except ImportError as error:
    sys.exit(f"fetch_data: {error}; run scripts/setup, then .venv/bin/python scripts/fetch_data.py")

LOCK = "fetched.json"
_PIECE = 1 << 16
_TIMEOUT = httpx.Timeout(30, read=120)


@dataclass(frozen=True, slots=True)
class Source:
    """A file to fetch; its `sha256` and its size in megabytes where its publisher tells them."""

    url: str
    size: int | None = None
    sha256: str | None = None
    name: str | None = None

    @property
    def file(self) -> str:
        """What it is called here: as in the address, if it has no better name."""
        return self.name or PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True, slots=True)
class DataSet:
    """Files of one set, under one licence; `commercial` is False where that forbids commercial use."""

    licence: str
    sources: tuple[Source, ...]
    commercial: bool = True


class Failed(Exception):
    """Something that a user must know, in one line."""


def _github(path: str) -> Source:
    return Source(f"https://raw.githubusercontent.com/{path}")


def _hub(path: str, size: int | None = None, name: str | None = None) -> Source:
    return Source(f"https://huggingface.co/datasets/{path}", size, name=name)


_LOCOMO = "snap-research/locomo/3eb6f2c585f5e1699204e3c3bdf7adc5c28cb376"
_MEMOCHAT = "LuJunru/MemoChat/96a866a0a0c29d6d9994ddf19321571d7e4929b2"
_PERSONA = "google-research-datasets/Synthetic-Persona-Chat/1f367a0f05d388ca96ebbbc9e5752ab19ac76510"
_CARECALL = "naver-ai/carecall-memory/ba45381f2532d359efb49e5f8743f32fef2d92e9"
_DEF_DTS = "ElPlaguister/Def-DTS/3ec7890200ed4e05cb9ed99e29f007c8b3ff26ab/data/DTS_session_datasets"
_DIALSEG = "lxing532/Dialogue-Topic-Segmenter/f14bbdda5a98442da0f37100e8cb4b320609ae9a/data/eval"
_CHRONICLES = "jihyoung/ConversationChronicles/resolve/main"
_LONGMEMEVAL = "xiaowu0162/longmemeval-cleaned/resolve/main"
_COQA = "https://nlp.stanford.edu/data/coqa"
_NONE = "none stated for the data"

SETS: Mapping[str, DataSet] = {
    "msc": DataSet(
        f"{_NONE} (ParlAI is MIT; Theanine takes it to be for academic, non-commercial use)",
        (
            Source(  # the checksum is ParlAI's own
                "http://parl.ai/downloads/msc/msc_v0.1.tar.gz",
                sha256="e640e37cf4317cd09fc02a4cd57ef130a185f23635f4003b0cee341ffcb45e60",
            ),
        ),
    ),
    "conversation_chronicles": DataSet(
        "CC BY 4.0", (_hub(f"{_CHRONICLES}/valid.jsonl", 169), _hub(f"{_CHRONICLES}/test.jsonl", 169))
    ),
    "conversation_chronicles_train": DataSet("CC BY 4.0", (_hub(f"{_CHRONICLES}/train.jsonl", 1350),)),
    "locomo": DataSet("CC BY-NC 4.0", (_github(f"{_LOCOMO}/data/locomo10.json"),), commercial=False),
    "longmemeval_s": DataSet("MIT", (_hub(f"{_LONGMEMEVAL}/longmemeval_s_cleaned.json", 278),)),
    "longmemeval_m": DataSet("MIT", (_hub(f"{_LONGMEMEVAL}/longmemeval_m_cleaned.json", 2750),)),
    "longmemeval_oracle": DataSet("MIT", (_hub(f"{_LONGMEMEVAL}/longmemeval_oracle.json", 15),)),
    "mtbenchplus": DataSet("MIT", (_github(f"{_MEMOCHAT}/data/mtbenchplus/mtbenchplus.json"),)),
    "longmtbenchplus": DataSet(
        "MIT",
        (
            _hub(
                "panzs19/Long-MT-Bench-Plus/resolve/refs%2Fconvert%2Fparquet/default/test/0000.parquet",
                name="long_mt_bench_plus.parquet",
            ),
        ),
    ),
    "coqa": DataSet(
        "by passage: CC BY-SA 4.0 (literature, Wikipedia), MSR-LA (MCTest), RACE's (research only), Apache-2.0 (CNN)",
        (Source(f"{_COQA}/coqa-dev-v1.0.json", 9), Source(f"{_COQA}/coqa-train-v1.0.json", 47)),
        commercial=False,
    ),
    "persona_chat": DataSet(
        "CC BY 4.0",
        tuple(_github(f"{_PERSONA}/data/Synthetic-Persona-Chat_{split}.csv") for split in ("train", "valid", "test")),
    ),
    "carecall": DataSet(
        "NAVER's: non-commercial research only, not to be changed or passed on",
        (_github(f"{_CARECALL}/data/carecall-memory_en_auto_translated.json"),),
        commercial=False,
    ),
    "dulemon": DataSet(_NONE, (Source("https://dialogue.bj.bcebos.com/Knover/DuLeMon.zip"),)),
    "segmentation": DataSet(
        f"MIT (repository of TIAGE and SuperDialSeg); {_NONE} of DialSeg711",
        (
            *(
                _github(f"{_DEF_DTS}/{name}.jsonl")
                for name in ("tiage_train", "tiage_validation", "tiage_test", "superseg_validation", "superseg_test")
            ),
            _github(f"{_DIALSEG}/dialseg_711.json"),
        ),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all that was asked for is there, 1 when something is not, 2 for misuse."""
    given = _parser().parse_args(arguments)
    unknown = [name for name in given.names if name not in SETS and name != "all"]
    if unknown:
        print(f"fetch_data: no data set {unknown[0]!r}; give some of {', '.join(SETS)}", file=sys.stderr)
        return 2
    if not given.names:
        _list()
        return 0
    names = list(SETS) if "all" in given.names else list(dict.fromkeys(given.names))
    missing = [name for name in names if not _fetched(name, given.into, accept=given.accept_nc)]
    if missing:
        _say(f"not there: {', '.join(missing)}")
    return 1 if missing else 0


def fetch(name: str, into: Path) -> list[Path]:
    """The files of a set, below `into`/`name`: fetched, checked, archives unpacked. Raises Failed."""
    folder = into / name
    folder.mkdir(parents=True, exist_ok=True)
    lock = Lock(into / LOCK)
    found: list[Path] = []
    for source in SETS[name].sources:
        path = folder / source.file
        kept = lock.sha256(path)
        if path.is_file():
            _verify(path, source.sha256 or kept)
            _say(f"{name}: {source.file} is here already")
        else:
            download(source.url, path)
            _verify(path, source.sha256)
        lock.add(path, source.url)
        found += _unpacked(path)
    return found


def download(url: str, path: Path) -> None:
    """Fetches a file, going on where an earlier try stopped if the other end has it unchanged. Raises Failed."""
    part, tag = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.etag")
    done = part.stat().st_size if part.is_file() and tag.is_file() else 0
    asked = {"Accept-Encoding": "identity"}
    if done:
        asked |= {"Range": f"bytes={done}-", "If-Range": tag.read_text()}
    with _failures(url), httpx.stream("GET", url, headers=asked, follow_redirects=True, timeout=_TIMEOUT) as answer:
        if answer.status_code != httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:  # that is: all of it is here
            answer.raise_for_status()
            _note_tag(answer, tag)
            _write(answer, part, done if answer.status_code == httpx.codes.PARTIAL_CONTENT else 0)
        part.replace(path)
        tag.unlink(missing_ok=True)


def _note_tag(answer: httpx.Response, tag: Path) -> None:
    """Only a file with an ETag can be gone on with: a weak one would not do for If-Range."""
    found = answer.headers.get("ETag", "")
    if found and not found.startswith("W/"):
        tag.write_text(found)
    else:
        tag.unlink(missing_ok=True)


class Lock:
    """What was fetched, in a file: by path, the address, the size and the sha256 that it had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, dict[str, object]] = json.loads(path.read_text()) if path.is_file() else {}

    def sha256(self, path: Path) -> str | None:
        """That of the file when it was fetched."""
        held = self._held.get(self._key(path))
        return str(held["sha256"]) if held else None

    def add(self, path: Path, url: str) -> None:
        """Notes a file as it is now."""
        self._held[self._key(path)] = {"url": url, "size": path.stat().st_size, "sha256": checksum(path)}
        fresh = self._path.with_name(f"{self._path.name}.part")
        fresh.write_text(json.dumps(self._held, indent=2, sort_keys=True) + "\n")
        fresh.replace(self._path)

    def _key(self, path: Path) -> str:
        return path.relative_to(self._path.parent).as_posix()


def checksum(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Gets public data sets for `localmem eval`.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets, or all; without one they are listed")
    parser.add_argument("--into", type=Path, default=Path("data/local"), help="where they go (default: %(default)s)")
    parser.add_argument("--accept-nc", action="store_true", help="fetch what may not be used commercially, too")
    return parser


def _list() -> None:
    for name, held in SETS.items():
        known = [source.size for source in held.sources if source.size]
        size = f"{sum(known):,} MB" if len(known) == len(held.sources) else "-"
        print(f"{name:30} {size:>9}  {held.licence}{'' if held.commercial else '  [--accept-nc]'}")


def _fetched(name: str, into: Path, *, accept: bool) -> bool:
    held = SETS[name]
    _say(f"{name}: licence: {held.licence}")
    if not (held.commercial or accept):
        _say(f"{name}: forbids commercial use, so it is left out; give --accept-nc to fetch it all the same")
        return False
    try:
        for path in fetch(name, into):
            _say(f"{name}: {path}")
    except Failed as error:
        _say(f"{name}: {error}")
        return False
    return True


def _write(answer: httpx.Response, part: Path, done: int) -> None:
    length = answer.headers.get("Content-Length")
    total = done + int(length) if length else None
    with (
        part.open("ab" if done else "wb") as stream,
        tqdm(desc=part.stem, total=total, initial=done, unit="B", unit_scale=True, disable=None) as bar,
    ):
        for piece in answer.iter_raw(_PIECE):
            stream.write(piece)
            bar.update(len(piece))


def _verify(path: Path, wanted: str | None) -> None:
    if wanted and (found := checksum(path)) != wanted:
        raise Failed(f"{path} has the sha256 {found[:16]} and should have {wanted[:16]}; delete it and fetch it anew")


def _unpacked(path: Path) -> list[Path]:
    """The file itself, or what is in an archive, unpacked beside it; a table of Parquet is written as JSONL."""
    try:
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as tar:
                return [_written(tar, one, path.parent) for one in tar.getmembers() if one.isfile()]
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:  # its extract takes no path out of the folder
                return [Path(archive.extract(one, path.parent)) for one in archive.infolist() if not one.is_dir()]
        return [_as_lines(path)] if path.suffix == ".parquet" else [path]
    except (tarfile.TarError, zipfile.BadZipFile, OSError, ValueError) as error:
        raise Failed(f"{path} cannot be unpacked ({error}); delete it and fetch it anew") from error


def _written(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> Path:
    """A file of the archive, in `folder` and nowhere else; Python before 3.11.4 has no filter that sees to it."""
    target = (folder / member.name).resolve()
    content = tar.extractfile(member)
    if content is None or not target.is_relative_to(folder.resolve()):
        raise ValueError(f"{member.name} would lie outside")
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as stream:
        shutil.copyfileobj(content, stream)
    return folder / member.name


def _as_lines(path: Path) -> Path:
    from pyarrow import parquet  # type: ignore[import-untyped]

    lines = path.with_suffix(".jsonl")
    rows = parquet.read_table(path).to_pylist()
    lines.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return lines


@contextmanager
def _failures(url: str) -> Iterator[None]:
    """Turns what goes wrong on the way into one line with the cure."""
    host = urlsplit(url).hostname
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise Failed(f"{url} answers {error.response.status_code}; it may have moved: look at its home page") from error
    except httpx.HTTPError as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise Failed(
            f"{host} cannot be reached ({reason}); check the network and run this again, it goes on where it stopped"
        ) from error
    except OSError as error:
        raise Failed(f"cannot write ({error}); make room, or choose another --into") from error


def _say(text: str) -> None:
    print(f"fetch_data: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
