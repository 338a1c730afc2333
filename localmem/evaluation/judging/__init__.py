"""Judges: a local model gives verdicts on answers and memories, and is itself measured before it is believed.

`judges` says what each judge is asked, `verdicts` asks, `inference` asks a trained NLI model instead, `calibration`
compares verdicts with labels, `kept` keeps the result. None knows a runner, a data set or a memory system: what is
judged comes as a mapping of strings.
"""

from localmem.evaluation.judging.calibration import BELIEVABLE, PASSED, Calibration, calibrate_judge
from localmem.evaluation.judging.calibration_store import ModelIdentity, find_calibration, model_identity
from localmem.evaluation.judging.judges import JUDGES, Item, Judge, Unit, get_judge
from localmem.evaluation.judging.verdicts import Verdict, ask_judge

__all__ = [
    "BELIEVABLE",
    "JUDGES",
    "PASSED",
    "Calibration",
    "Item",
    "Judge",
    "ModelIdentity",
    "Unit",
    "Verdict",
    "ask_judge",
    "calibrate_judge",
    "find_calibration",
    "get_judge",
    "model_identity",
]
