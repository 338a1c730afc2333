"""Requests generated from the server's own OpenAPI description, valid and broken: no 500, answers as described.

One function, for a short test and for `scripts/drills fuzz`. The generator is schemathesis; its seed is fixed.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import APIOperation, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS: Sequence[CheckFunction] = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
_LONGEST_WAIT = 0.01  # seconds that a generated request may wait for a job


Report = tuple[Counter[str], dict[str, list[str]]]


def fuzz(url: str, examples: int, start: int = 1, only: str | None = None) -> Report:
    """Send `examples` valid and as many broken requests to each route; (requests by route, complaints by route).

    `only` is one route's path.
    """
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    counts: Counter[str] = Counter()
    complaints: dict[str, list[str]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()  # type: ignore[union-attr]  # of a valid description
        if only not in (None, operation.path):
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            _fuzz_route(operation, mode, examples, start, counts, complaints)
    return counts, complaints


def _fuzz_route(
    operation: APIOperation[Any, Any, Any, Any],
    mode: GenerationMode,
    examples: int,
    start: int,
    counts: Counter[str],
    complaints: dict[str, list[str]],
) -> None:
    @seed(start)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case[Any]) -> None:
        if "wait" in case.query:
            case.query["wait"] = _LONGEST_WAIT
        counts[operation.label] += 1
        response = case.call()
        try:
            case.validate_response(response, checks=list(CHECKS))
        except FailureGroup as group:  # all complaints are collected
            failures = [f"{response.status_code} {failure}" for failure in group.exceptions]
            complaints.setdefault(operation.label, []).extend(failures)

    with suppress(Unsatisfiable):  # a route without parameters has no broken request
        send()
