"""Plain names: how many names say nothing of what they hold, and how many functions are a bare participle.

The limits are what was measured last. They may only fall: a share well below its limit asks for a lower one.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# Names that fit any value. `for left, right in pairs` is fine now and then, hence a share and no ban.
EMPTY_NAMES = {
    "ahead", "asked", "began", "behind", "done", "ended", "found", "given", "gone", "heard", "held", "kept", "known",
    "left", "made", "met", "one", "ones", "rest", "said", "seen", "shown", "spoken", "taken", "there", "told", "wanted",
    "whole", "wholes", "worth",
}  # fmt: skip

# Tree: most empty names, in percent of all bound names; most participles, in percent of all functions.
LIMITS = {"localmem": (0.2, 0.5), "finetune": (0.1, 0.2), "tests": (0.3, 0.9)}
_SLACK = 0.5  # percentage points that a share may be below its limit


def _nodes(tree: Path) -> Iterator[ast.AST]:
    for file in tree.rglob("*.py"):
        yield from ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def _bound_name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg) and node.arg not in ("self", "cls"):
        return node.arg
    return None


def _is_bare_participle(name: str) -> bool:
    word = name.strip("_")
    return "_" not in word and (word in EMPTY_NAMES or re.search(r"(ed|en)$", word) is not None)


@pytest.mark.parametrize("tree", LIMITS)
def test_names_say_what_they_hold(tree: str) -> None:
    names, functions = Counter[str](), list[str]()
    for node in _nodes(ROOT / tree):  # not as a list: so many objects at once keep the garbage collector busy
        if (name := _bound_name(node)) is not None:
            names[name.strip("_")] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            functions.append(node.name)
    empty = {name: count for name, count in names.items() if name in EMPTY_NAMES}
    participles = [name for name in functions if _is_bare_participle(name)]
    shares = (100 * sum(empty.values()) / names.total(), 100 * len(participles) / len(functions))
    for share, limit, culprits in zip(shares, LIMITS[tree], (empty, participles), strict=True):
        assert share <= limit, f"{share:.2f} % of the names in {tree} are too vague (limit {limit}): {culprits}"
        assert share >= limit - _SLACK, f"{share:.2f} % is below the limit of {limit} %: lower it in LIMITS"


def test_no_file_name_appears_three_times() -> None:
    """A name that three files share tells nobody which of them is meant."""
    files = [path for tree in ("localmem", "finetune") for path in (ROOT / tree).rglob("*.py")]
    counts = Counter(path.name for path in files if path.name != "__init__.py")
    assert {name: count for name, count in counts.items() if count > 2} == {}


def test_the_tree_stays_small() -> None:
    """More features in less code: the limits of lines in a file and in a function, and of lines in all."""
    total = 0
    for tree in ("localmem", "finetune"):
        for file in (ROOT / tree).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            lines = text.count("\n")
            total += lines
            assert lines <= 400, f"{file.relative_to(ROOT)} has {lines} lines (limit 400)"
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                    length = node.end_lineno - node.lineno + 1
                    assert length <= 60, f"{file.relative_to(ROOT)}: {node.name} has {length} lines (limit 60)"
    assert total <= 79_000
