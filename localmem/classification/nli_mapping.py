"""From natural language inference to operations without training (NLI zero-shot).

Keep Me Updated, section 5.1.1: "PASS": entailment, "REPLACE": contradiction or reversely entailment, "APPEND":
neutral; DELETE is not mapped. A pure function of the probabilities of both directions.
"""

from collections.abc import Mapping
from typing import Literal

from localmem.classification import OPERATIONS, Operation, OperationLabel

Inference = Literal["entailment", "neutral", "contradiction"]
INFERENCES: tuple[Inference, ...] = ("entailment", "neutral", "contradiction")  # the digits 0 to 2 (appendix B.4)

Verdict = Mapping[Inference, float]  # the probability of each; they sum to 1


def operation_from_inference(forward: Verdict, backward: Verdict) -> OperationLabel:
    """The operation on (memory, summary): `forward` has the memory as premise, `backward` the summary.

    Reverse entailment counts only where the forward verdict is neutral, so two sentences that entail each other are a
    PASS. The paper names the cases but not how to weight them; here the two verdicts are multiplied as if independent,
    and the most probable operation wins (of equals the first in OPERATIONS). Certain verdicts give the paper's table.
    """
    reverse = backward["entailment"]
    probabilities: dict[Operation, float] = {
        "PASS": forward["entailment"],
        "APPEND": forward["neutral"] * (1 - reverse),
        "REPLACE": forward["contradiction"] + forward["neutral"] * reverse,
        "DELETE": 0.0,
    }
    return OperationLabel(max(OPERATIONS, key=lambda name: probabilities[name]), probabilities)
