"""A section of a run's card that is written later than the card: what the student does beside its teacher and its base.

Knows Markdown headings and nothing of measures.
"""

import re
from pathlib import Path

from localmem.errors import BadInput

CARD = "README.md"
TITLE = "## Before and after"


def put_section(folder: Path, lines: str) -> None:
    """Into the card of the run's folder, at its end or in place of what stood under the same title. Raises BadInput."""
    path = folder / CARD
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else f"# {folder.name}\n"
        kept = re.sub(rf"^{re.escape(TITLE)}\n.*?(?=^## |\Z)", "", text, flags=re.DOTALL | re.MULTILINE).rstrip()
        path.write_text(f"{kept}\n\n{TITLE}\n\n{lines.strip()}\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}); leave --card away") from error
