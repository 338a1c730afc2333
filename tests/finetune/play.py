"""Pairs that a model with a few thousand parameters can learn: one word of the second sentence decides."""

import json
from collections.abc import Mapping
from pathlib import Path

WORDS: Mapping[str, str] = {"PASS": "again", "APPEND": "also", "REPLACE": "instead", "DELETE": "over"}
INFERRED: Mapping[str, str] = {"entailment": "again", "neutral": "also", "contradiction": "instead"}
PEOPLE = ("Bo", "Eva", "Lin", "Sam")
THINGS = ("cat", "car", "bike", "boat", "flat", "job", "dog", "knee", "cold", "tent", "song", "book")
VOCABULARY = (*PEOPLE, "has", "a", "now", ".", "sentence", *THINGS, *WORDS.values())


def operation_file(folder: Path, name: str = "operations.jsonl") -> Path:
    """A group for each thing, with every label."""
    lines = [
        {"memory": f"{who} has a {thing} .", "summary": f"{who} {word} {thing} .", "label": label, "group": thing + who}
        for thing in THINGS
        for who in PEOPLE
        for label, word in WORDS.items()
    ]
    return write_lines(folder / name, lines)


def inference_file(folder: Path, name: str = "snli.jsonl") -> Path:
    """In SNLI's format."""
    lines = [
        {"sentence1": f"{who} has a {thing} .", "sentence2": f"{who} {word} {thing} .", "gold_label": label}
        for thing in THINGS
        for who in PEOPLE
        for label, word in INFERRED.items()
    ]
    return write_lines(folder / name, lines)


def write_lines(path: Path, lines: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
