"""Scores of a run's answers, by measure: how near to the gold answer, how much of the evidence was recalled, verdicts.

Asks no model; what needs one (judges, BERTScore, perplexity) is given. A failed answer scores 0 in every measure that
it could have been scored by.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from localmem.evaluation.answers import Answer
from localmem.evaluation.judgements import Judgement
from localmem.evaluation.metrics.ranking import recall_at
from localmem.evaluation.metrics.text import locomo_f1, rouge, token_f1
from localmem.evaluation.summary import Key, Scores, key

PAIRS = ("first", "second", "tie")  # a judge's words of two things
MARK = "†"  # stands behind a measure whose judge is not to be believed yet


def all_scores(answers: Sequence[Answer], judgements: Iterable[Judgement]) -> Scores:
    """Every measure, the ones that say most first: verdicts, then nearness to the gold answer, then evidence."""
    return {**_verdicts(judgements, answers), **_texts(answers), **_evidence(answers)}


def _texts(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    asked = [answer for answer in answers if any(gold.strip() for gold in answer.gold)]
    questions = [answer for answer in asked if answer.kind == "question"]
    found = {"F1": _best(asked, token_f1), "ROUGE-L": _best(asked, _rouge_l)}
    if locomo := [answer for answer in questions if answer.work.data == "locomo"]:
        found["LoCoMo F1"] = {
            key(one): 0.0 if one.error else locomo_f1(one.text, one.gold[0], one.about) for one in locomo
        }
    return found


def _best(answers: Sequence[Answer], measure: Callable[[str, str], float]) -> dict[Key, float]:
    """By the gold answer that is nearest, where there are several."""
    return {
        key(one): 0.0 if one.error else max(measure(one.text, gold) for gold in one.gold if gold.strip())
        for one in answers
    }


def _rouge_l(text: str, gold: str) -> float:
    return rouge([text], [gold])["rougeL"][0]


def _evidence(answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    """What was recalled comes from a turn, or a given memory, where the answer stands: from what share, from any.

    The mean of the latter is Theanine's accuracy of golden memories (Table 3).
    """
    given = [one for one in answers if one.evidence]
    if not given:
        return {}
    found = {key(one): 0.0 if one.error else recall_at(one.units, set(one.evidence), len(one.units)) for one in given}
    return {"evidence recalled": found, "any of it": {name: float(share > 0) for name, share in found.items()}}


def _verdicts(judgements: Iterable[Judgement], answers: Sequence[Answer]) -> dict[str, dict[Key, float]]:
    failed = [answer for answer in answers if answer.error]
    found: defaultdict[str, dict[Key, float]] = defaultdict(dict)
    for one in judgements:
        for scale, value in _scales(one).items():
            name = f"{one.judge}: {scale}" if scale else one.judge
            found[f"{name}{'' if one.believable else MARK}"][(*one.case.work, one.case.probe)] = value
    for scores in found.values():
        scores |= {key(answer): 0.0 for answer in failed}
    return dict(found)


def _scales(one: Judgement) -> Mapping[str, float]:
    """What a verdict is told by: whether it is right, where it can be; else each of its scales."""
    if "right" in one.scores:
        return {"": one.scores["right"]}
    if set(one.scores) == set(PAIRS):
        other = one.case.other
        return {f"better than {other}": one.scores["first"], f"worse than {other}": one.scores["second"]}
    return one.scores
