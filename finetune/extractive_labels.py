"""Extracts by a local LLM: it crosses words out of a text, and what is left labels the text's words.

LLMLingua-2, section 3.1, asks GPT-4; here any backbone is asked. What it made is kept in a file, so that a run that was
broken off goes on where it stood.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from finetune.compression_labels import Shortened
from localmem.llm.base import LLM
from localmem.llm.structured_output import generate_usable
from localmem.prompts import load, render
from localmem.text.dialogue import packed
from localmem.types import Prompt

PROMPT = "compressor/extract"

_PART = 256  # tokens of a text that are shown at once, about: a small model loses its place in more
_AT_ONCE = 16  # parts that are asked about before what was answered is written down


class Extractor:
    """Asks for the extract of each part of each text. `path` keeps what was answered; `note` is told how far it is."""

    def __init__(self, llm: LLM, path: Path, note: Callable[[str], None]) -> None:
        self._llm, self._path, self._note = llm, path, note
        self.fallbacks: Counter[str] = Counter()

    def __call__(self, texts: Sequence[str]) -> list[Shortened]:
        """The parts of the texts in order, each with what was kept of it; those without a usable answer go."""
        parts = list(dict.fromkeys(part for text in texts for part in self._parts(text)))
        known = self._known()
        missing = [part for part in parts if self._digest(part) not in known]
        for start in range(0, len(missing), _AT_ONCE):
            known |= self._asked(missing[start : start + _AT_ONCE])
            self._note(f"labelled {min(start + _AT_ONCE, len(missing))} of {len(missing)} parts")
        found = ((part, known.get(self._digest(part), "")) for part in parts)
        return [Shortened(part, kept) for part, kept in found if kept.strip()]

    def _parts(self, text: str) -> list[str]:
        lines = text.splitlines()
        costs = self._llm.count_tokens(lines) if lines else []
        return ["\n".join(run) for run in packed(lines, costs, _PART)]

    def _asked(self, parts: Sequence[str]) -> dict[str, str]:
        sizes = self._llm.count_tokens(list(parts))
        prompts = [self._asking(part, size) for part, size in zip(parts, sizes, strict=True)]
        answers = generate_usable(self._llm, prompts, self.fallbacks)
        made = {self._digest(part): answer.text if answer else "" for part, answer in zip(parts, answers, strict=True)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            for digest, kept in made.items():
                stream.write(json.dumps({"digest": digest, "kept": kept}, ensure_ascii=False) + "\n")
        return made

    def _asking(self, part: str, size: int) -> Prompt:
        return replace(render(PROMPT, dialogue=part), max_tokens=load(PROMPT).max_tokens + size)

    def _digest(self, part: str) -> str:
        return sha256(f"{self._llm.name}\0{load(PROMPT).digest}\0{part}".encode()).hexdigest()

    def _known(self) -> dict[str, str]:
        """What the file holds; a last line that was broken off in the middle is passed over."""
        if not self._path.is_file():
            return {}
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._path.write_text(whole, encoding="utf-8")
        return {row["digest"]: row["kept"] for row in map(json.loads, whole.splitlines())}
