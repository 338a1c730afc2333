"""Judges: a local model gives verdicts on answers and memories, and is itself measured before it is believed.

`judges` says what each judge is asked, `verdicts` asks, `inference` asks a trained NLI model instead, `calibration`
compares verdicts with labels, `kept` keeps the result. None knows a runner, a data set or a memory system: what is
judged comes as a mapping of strings.
"""

from localmem.evaluation.judging.calibration import BELIEVABLE, PASSED, Calibration, calibrated
from localmem.evaluation.judging.calibration_store import Model, calibration_of, model_of
from localmem.evaluation.judging.judges import JUDGES, Item, Judge, Unit, judge_named
from localmem.evaluation.judging.verdicts import Verdict, judged

__all__ = [
    "BELIEVABLE",
    "JUDGES",
    "PASSED",
    "Calibration",
    "Item",
    "Judge",
    "Model",
    "Unit",
    "Verdict",
    "calibrated",
    "calibration_of",
    "judge_named",
    "judged",
    "model_of",
]
