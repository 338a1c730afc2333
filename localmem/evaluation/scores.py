"""Scores of a run's answers by measure: verdicts of judges, nearness to the gold answer, evidence recalled.

Asks no model. A failed answer scores 0 in every measure that applies to it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from localmem.evaluation.answers import Answer
from localmem.evaluation.judgements import Judgement
from localmem.evaluation.metrics.ranking import recall_at
from localmem.evaluation.metrics.text import locomo_f1, rouge, token_f1
from localmem.evaluation.summary import Key, Scores, key

_PAIRWISE = {"first", "second", "tie"}  # the scales of a judge that compares two answers
UNCALIBRATED = "†"  # appended to a measure whose judge is not calibrated, or not well enough


def score_answers(answers: Sequence[Answer], judgements: Iterable[Judgement]) -> Scores:
    """Every measure, the most informative first: verdicts, then nearness to the gold answer, then evidence."""
    return {**_verdicts(judgements, answers), **_texts(answers), **_evidence(answers)}


def _texts(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    scorable = [answer for answer in answers if any(gold.strip() for gold in answer.gold)]
    scores = {
        "F1": _best_scores(scorable, token_f1),
        "ROUGE-L": _best_scores(scorable, lambda text, gold: rouge([text], [gold])["rougeL"][0]),
    }
    questions = [answer for answer in scorable if answer.kind == "question" and answer.work.dataset == "locomo"]
    if questions:
        scores["LoCoMo F1"] = {
            key(answer): 0.0 if answer.error else locomo_f1(answer.text, answer.gold[0], answer.about)
            for answer in questions
        }
    return scores


def _best_scores(answers: Sequence[Answer], measure: Callable[[str, str], float]) -> dict[Key, float]:
    """Against the nearest gold answer where there are several."""
    return {
        key(answer): 0.0 if answer.error else max(measure(answer.text, gold) for gold in answer.gold if gold.strip())
        for answer in answers
    }


def _evidence(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    """The share of the evidence from which recalled units come, and whether any does.

    The mean of the latter is Theanine's accuracy of golden memories (Table 3).
    """
    shares = {
        key(answer): 0.0 if answer.error else recall_at(answer.units, set(answer.evidence), len(answer.units))
        for answer in answers
        if answer.evidence
    }
    if not shares:
        return {}
    return {"evidence recalled": shares, "any of it": {name: float(share > 0) for name, share in shares.items()}}


def _verdicts(judgements: Iterable[Judgement], answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    verdicts: defaultdict[str, dict[Key, float]] = defaultdict(dict)
    for judgement in judgements:
        for scale, value in _scales(judgement).items():
            name = f"{judgement.judge}: {scale}" if scale else judgement.judge
            mark = "" if judgement.believable else UNCALIBRATED
            verdicts[f"{name}{mark}"][(*judgement.case.work, judgement.case.probe)] = value
    for scores in verdicts.values():
        scores |= {key(answer): 0.0 for answer in answers if answer.error}
    return dict(verdicts)


def _scales(judgement: Judgement) -> Mapping[str, float]:
    """The scores to report by scale: only `right` where a judge has it, under an empty name."""
    scores = judgement.scores
    if "right" in scores:
        return {"": scores["right"]}
    if set(scores) == _PAIRWISE:
        other = judgement.case.other
        return {f"better than {other}": scores["first"], f"worse than {other}": scores["second"]}
    return scores
