"""Every public method has a docstring, its own or that of the contract which it fulfils.

ruff looks at modules, classes and functions; it cannot see that a method overrides a documented one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Methods that fulfil the contract of a library.
LIBRARY_METHODS = {
    *("add_model_card_callback", "compute_loss", "convert", "shutdown", "startup", "update"),
    *("connection_lost", "connection_made", "data_received"),  # asyncio's Protocol
}


def _classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    for tree in ("localmem", "finetune"):
        for path in (ROOT / tree).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield path, node


def _public_methods(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [method for method in methods if not method.name.startswith("_")]


def test_public_methods_are_documented() -> None:
    classes = list(_classes())
    documented = {method.name for _, node in classes for method in _public_methods(node) if ast.get_docstring(method)}
    missing = [
        f"{path.relative_to(ROOT)}: {node.name}.{method.name}"
        for path, node in classes
        for method in _public_methods(node)
        if not ast.get_docstring(method) and method.name not in documented | LIBRARY_METHODS
    ]
    assert missing == []
