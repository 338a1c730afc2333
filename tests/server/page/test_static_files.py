"""The page's files: small, unchanged from where they come from, and in the wheel's folder."""

import hashlib
import re
from pathlib import Path

from localmem.server import page

FOLDER = Path(page.__file__).parent
MOST = 200 * 1024


def test_templates_and_files_are_under_200_kb_in_all() -> None:
    files = [*(FOLDER / "static").iterdir(), *(FOLDER / "templates").iterdir()]
    assert 0 < sum(file.stat().st_size for file in files) < MOST


def test_the_vendored_script_is_the_one_of_its_package() -> None:
    digest = re.search(r"^sha256: (\w{64})$", (FOLDER / "static/htmx.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert digest
    assert hashlib.sha256((FOLDER / "static/htmx.min.js").read_bytes()).hexdigest() == digest[1]
    assert (FOLDER / "static/htmx-LICENSE.txt").is_file()


def test_nothing_is_loaded_from_elsewhere() -> None:
    for file in (*(FOLDER / "templates").iterdir(), FOLDER / "static/page.css", FOLDER / "static/page.js"):
        assert not re.search(r"(?:src|href|url|import)\s*[=(]?\s*[\"'(]https?://", file.read_text(encoding="utf-8"))
