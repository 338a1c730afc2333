#!/usr/bin/env python3
"""Downloads the public data sets that the evaluation reads: scripts/fetch_data.py NAME ...

Without a name it lists them with licence and size; `all` means all. Data sets that forbid commercial use need
--accept-nc. fetched.json records the sha256 of every file, and a file is verified against it from then on. An
interrupted download is resumed; existing files are not changed.

Three data sets cannot be downloaded in the form that is read: msc_cc (made from talzoomanzoo/theanine-geval), TeaBag
(`localmem eval teafarm` makes such sets), and the Korean original of CareCall-memory (from NAVER on request).
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

    from localmem.files import write_json, write_jsonl
except ImportError as error:
    sys.exit(f"fetch_data: {error}; run scripts/setup, then .venv/bin/python scripts/fetch_data.py")

RECORD = "fetched.json"
_CHUNK = 1 << 16
_TIMEOUT = httpx.Timeout(30, read=120)


@dataclass(frozen=True, slots=True)
class Source:
    """A file to download, with its `sha256` and size in megabytes where the publisher states them."""

    url: str
    size: int | None = None
    sha256: str | None = None
    name: str | None = None

    @property
    def file(self) -> str:
        """The local file name: `name`, else that in the URL."""
        return self.name or PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True, slots=True)
class DataSet:
    """The files of a data set with their licence; `commercial` is False where it forbids commercial use."""

    licence: str
    sources: tuple[Source, ...]
    commercial: bool = True


class FetchError(Exception):
    """A failure, as one line for the user."""


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
_PLUS = "xjtuleeyf/Locomo-Plus/059f4e3d38f7f1f96765e8e2cb7de3097551bffb/data"
_PREFEVAL = "amazon-science/PrefEval/50795054b5ff5f418d2b768a331d71e480f93331/benchmark_dataset"
_V2 = "xiaowu0162/longmemeval-v2/resolve/main"
_TABLES = "resolve/refs%2Fconvert%2Fparquet/default"
_COQA = "https://nlp.stanford.edu/data/coqa"
_NONE = "none stated for the data"

SETS: Mapping[str, DataSet] = {
    "msc": DataSet(
        f"{_NONE} (ParlAI is MIT; Theanine takes it to be for academic, non-commercial use)",
        (
            Source(  # the checksum is from ParlAI
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
    "longmemeval_v2": DataSet(
        "Apache-2.0",
        (
            _hub(f"{_V2}/questions.jsonl"),
            _hub(f"{_V2}/trajectories.jsonl"),
            _hub(f"{_V2}/haystacks/lme_v2_small.json", name="haystacks/lme_v2_small.json"),
        ),
    ),
    "locomo_plus": DataSet(
        "CC BY-NC 4.0 (LoCoMo's)",
        (_github(f"{_PLUS}/locomo_plus.json"), _github(f"{_PLUS}/locomo10.json")),
        commercial=False,
    ),
    "beam": DataSet(
        "CC BY-SA 4.0",
        (_hub(f"Mohammadta/BEAM/{_TABLES}/100K/0000.parquet", name="beam_100k.parquet"),),
    ),
    "personamem": DataSet(
        "MIT",
        tuple(
            _hub(f"bowen-upenn/PersonaMem/resolve/main/{name}")
            for name in ("questions_32k.csv", "shared_contexts_32k.jsonl")
        ),
    ),
    "halumem": DataSet(
        "CC BY-NC-ND 4.0", (_hub("IAAR-Shanghai/HaluMem/resolve/main/HaluMem-Medium.jsonl"),), commercial=False
    ),
    "prefeval": DataSet(
        "CC BY-NC 4.0",
        (
            _github(f"{_PREFEVAL}/explicit_preference/travel_restaurant.json"),
            _github(f"{_PREFEVAL}/filtered_inter_turns.json"),
        ),
        commercial=False,
    ),
    "memoryagentbench": DataSet(
        "MIT",
        tuple(
            _hub(f"ai-hyz/MemoryAgentBench/{_TABLES}/{split}/0000.parquet", name=f"{split}.parquet")
            for split in ("Accurate_Retrieval", "Test_Time_Learning", "Long_Range_Understanding", "Conflict_Resolution")
        ),
    ),
    "mtbenchplus": DataSet("MIT", (_github(f"{_MEMOCHAT}/data/mtbenchplus/mtbenchplus.json"),)),
    "longmtbenchplus": DataSet(
        "MIT",
        (
            _hub(
                f"panzs19/Long-MT-Bench-Plus/{_TABLES}/test/0000.parquet",
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
    """Returns 0 when all requested files are present, 1 when some are missing, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    unknown = [name for name in options.names if name not in SETS and name != "all"]
    if unknown:
        print(f"fetch_data: no data set {unknown[0]!r}; choose from {', '.join(SETS)}", file=sys.stderr)
        return 2
    if not options.names:
        _list()
        return 0
    names = list(SETS) if "all" in options.names else list(dict.fromkeys(options.names))
    missing = [name for name in names if not _try_fetch(name, options.into, accept=options.accept_nc)]
    if missing:
        _notify(f"missing: {', '.join(missing)}")
    return 1 if missing else 0


def fetch(name: str, into: Path) -> list[Path]:
    """Downloads, verifies and unpacks a data set below `into`/`name`, and returns its files. Raises FetchError."""
    folder = into / name
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(into / RECORD)
    files: list[Path] = []
    for source in SETS[name].sources:
        path = folder / source.file
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            _verify(path, source.sha256 or record.sha256(path))
            _notify(f"{name}: {source.file} is already present")
        else:
            download(source.url, path)
            _verify(path, source.sha256)
        record.add(path, source.url)
        files += _unpack(path)
    return files


def download(url: str, path: Path) -> None:
    """Downloads a file, and resumes an earlier attempt if the file has not changed on the server. Raises FetchError.

    Appending to an old part is only safe if the server still has the same bytes. So the ETag of the first answer is
    stored beside the part, and a resumed request sends it as If-Range: the server then answers 206 with the remaining
    bytes for the same file, or 200 with all of a changed one, which replaces the part. 416 means that nothing remains:
    the earlier attempt was killed between the last byte and the rename.
    """
    part, tag = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.etag")
    size = part.stat().st_size if part.is_file() and tag.is_file() else 0
    headers = {"Accept-Encoding": "identity"}
    if size:
        headers |= {"Range": f"bytes={size}-", "If-Range": tag.read_text()}
    with (
        _translated_errors(url),
        httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=_TIMEOUT) as response,
    ):
        if response.status_code != httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            response.raise_for_status()
            _store_tag(response, tag)
            _write(response, part, size if response.status_code == httpx.codes.PARTIAL_CONTENT else 0)
        part.replace(path)
        tag.unlink(missing_ok=True)


def _store_tag(response: httpx.Response, tag: Path) -> None:
    """Weak ETags do not promise equal bytes, so a file with one, or without any, cannot be resumed."""
    value = response.headers.get("ETag", "")
    if value and not value.startswith("W/"):
        tag.write_text(value)
    else:
        tag.unlink(missing_ok=True)


class Record:
    """fetched.json: the URL, size and sha256 of every downloaded file, by path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, dict[str, object]] = json.loads(path.read_text()) if path.is_file() else {}

    def sha256(self, path: Path) -> str | None:
        """The checksum of the file when it was downloaded."""
        entry = self._entries.get(self._key(path))
        return str(entry["sha256"]) if entry else None

    def add(self, path: Path, url: str) -> None:
        """Records a file as it is now."""
        self._entries[self._key(path)] = {"url": url, "size": path.stat().st_size, "sha256": checksum(path)}
        write_json(self._path, dict(sorted(self._entries.items())))

    def _key(self, path: Path) -> str:
        return path.relative_to(self._path.parent).as_posix()


def checksum(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Download public data sets for `localmem eval`.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="data sets, or all; without a name they are listed")
    parser.add_argument("--into", type=Path, default=Path("data/local"), help="target folder (default: %(default)s)")
    parser.add_argument("--accept-nc", action="store_true", help="include data sets that forbid commercial use")
    return parser


def _list() -> None:
    for name, data_set in SETS.items():
        sizes = [source.size for source in data_set.sources if source.size]
        size = f"{sum(sizes):,} MB" if len(sizes) == len(data_set.sources) else "-"
        print(f"{name:30} {size:>9}  {data_set.licence}{'' if data_set.commercial else '  [--accept-nc]'}")


def _try_fetch(name: str, into: Path, *, accept: bool) -> bool:
    data_set = SETS[name]
    _notify(f"{name}: licence: {data_set.licence}")
    if not (data_set.commercial or accept):
        _notify(f"{name}: skipped, because it forbids commercial use; give --accept-nc to fetch it")
        return False
    try:
        for path in fetch(name, into):
            _notify(f"{name}: {path}")
    except FetchError as error:
        _notify(f"{name}: {error}")
        return False
    return True


def _write(response: httpx.Response, part: Path, offset: int) -> None:
    length = response.headers.get("Content-Length")
    total = offset + int(length) if length else None
    with (
        part.open("ab" if offset else "wb") as stream,
        tqdm(desc=part.stem, total=total, initial=offset, unit="B", unit_scale=True, disable=None) as bar,
    ):
        for chunk in response.iter_raw(_CHUNK):
            stream.write(chunk)
            bar.update(len(chunk))


def _verify(path: Path, expected: str | None) -> None:
    if expected and (actual := checksum(path)) != expected:
        raise FetchError(f"{path} has sha256 {actual[:16]} instead of {expected[:16]}; delete it and fetch it again")


def _unpack(path: Path) -> list[Path]:
    """The file itself, or the files of an archive, unpacked in its folder; a Parquet table is converted to JSONL."""
    try:
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as tar:
                return [_extract(tar, member, path.parent) for member in tar.getmembers() if member.isfile()]
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:  # `extract` removes `..` from paths
                members = [member for member in archive.infolist() if not member.is_dir()]
                return [Path(archive.extract(member, path.parent)) for member in members]
        return [_to_jsonl(path)] if path.suffix == ".parquet" else [path]
    except (tarfile.TarError, zipfile.BadZipFile, OSError, ValueError) as error:
        raise FetchError(f"cannot unpack {path} ({error}); delete it and fetch it again") from error


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> Path:
    """Writes a member below `folder`, never elsewhere; Python before 3.11.4 has no extraction filter for that."""
    target = (folder / member.name).resolve()
    content = tar.extractfile(member)
    if content is None or not target.is_relative_to(folder.resolve()):
        raise ValueError(f"{member.name} is outside of the folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with content, target.open("wb") as stream:
        shutil.copyfileobj(content, stream)
    return folder / member.name


def _to_jsonl(path: Path) -> Path:
    from pyarrow import parquet

    lines = path.with_suffix(".jsonl")
    write_jsonl(lines, parquet.read_table(path).to_pylist())
    return lines


@contextmanager
def _translated_errors(url: str) -> Iterator[None]:
    """Translates errors of the network and the disk into one line with the cure."""
    host = urlsplit(url).hostname
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise FetchError(
            f"{url} returned {error.response.status_code}; it may have moved, see its home page"
        ) from error
    except httpx.HTTPError as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise FetchError(f"cannot reach {host} ({reason}); check the network and run this again to resume") from error
    except OSError as error:
        raise FetchError(f"cannot write ({error}); free some space or choose another --into") from error


def _notify(text: str) -> None:
    print(f"fetch_data: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
