"""Judges: a local model gives verdicts on answers and memories, and its own reliability is measured first.

`judges` defines what each judge is asked, `verdicts` asks a language model, `inference` asks a trained NLI model
instead, `calibration` compares verdicts with labelled ones, and `calibration_store` stores the result together with the
model it is valid for. Only the store reads settings and the model manifest. None depends on a runner, a data set or a
memory system: what is judged is a mapping of strings.
"""

from localmem.evaluation.judging.calibration import Calibration, calibrate_judge
from localmem.evaluation.judging.calibration_store import ModelIdentity, find_calibration, model_identity
from localmem.evaluation.judging.judges import JUDGES, Item, Judge, Unit, get_judge
from localmem.evaluation.judging.verdicts import Verdict, ask_judge

__all__ = [
    "JUDGES",
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
