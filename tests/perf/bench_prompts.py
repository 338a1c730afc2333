"""Compares versions of the prompt files on the stages that have labels, with the configured backbone. Prints JSON.

Give two folders, for example those of two commits: `--prompts old=FOLDER --prompts new=FOLDER`. Each stage asks both
versions about the same items at temperature 0 and gives each item a score; higher is better. `difference` is the second
version minus the first, paired by item, with a 95 % interval; `changed` counts items with another answer.

- operation, link, continue: the probability of the correct option, and how often it was chosen
- segment: SeCom's Score of each dialogue
- judge/CRITERION: the probability of the correct verdict (words), or 1 minus the mean error as a share of the scale
- text/PROMPT: the mean log-probability per token of a human text as the answer (memory sentences of MSC and
  Conversation Chronicles, summaries of DialogSum). Answers of small models are mostly copies of the dialogue, so the
  overlap of their words with a gold text says little about a prompt; this measure needs no generated answer.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import torch

from finetune.traces.human_labels import read_event_pairs
from localmem import factory, prompts
from localmem.classification import LLMClassifier
from localmem.config import load_settings
from localmem.evaluation import DATA
from localmem.evaluation.datasets import msc_cc
from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.evaluation.datasets.segmented_dialogues import SegmentedDialogue, read_segmented_dialogues
from localmem.evaluation.episodes import Episode
from localmem.evaluation.judging.calibration import Label, calibrate_judge, read_labelled_set
from localmem.evaluation.judging.judges import FIRST, JUDGES, SECOND, TIE, Judge, Pair, Words, get_judge
from localmem.evaluation.judging.verdicts import Verdict, ask_judge
from localmem.evaluation.metrics.model_based import Scorer
from localmem.experiments.segmenter_comparison import evaluate_segmenter
from localmem.files import read_lines
from localmem.llm.base import LLM
from localmem.llm.wrappers import Recorder
from localmem.prompts import render
from localmem.reporting.intervals import difference
from localmem.reporting.provenance import versions
from localmem.segmentation.segmenters import LLMSegmenter
from localmem.systems.theanine.link import OTHER, RELATIONS
from localmem.text.dialogue import prompt_names, transcript
from localmem.types import Choice, Completion, Message, Prompt, Turn
from localmem.weights import model_path

SEED = 0
_SENTENCES = ("memory_retrieval/summarize", "theanine/summarize", "comedy/summarize")
_ABOUT_ONE = ("carecall/summarize", "creem/first")
_PROSE = ("memorybank/day", "rebot/summarize")
_UPDATE = "rsum/update"
_FROM_EPISODES = (*_SENTENCES, *_ABOUT_ONE, _UPDATE)


class Measured(NamedTuple):
    """What one version did in a stage: a score and an answer for each item, and figures of the whole stage."""

    scores: Sequence[float]
    answers: Sequence[str]
    figures: Mapping[str, float] = {}


Stage = Callable[[], Measured]


@contextmanager
def prompt_folder(folder: Path) -> Iterator[None]:
    """Reads prompts from this folder instead of the package's."""
    prompts.load.cache_clear()
    with patch.object(prompts, "files", lambda _: folder):
        yield
    prompts.load.cache_clear()


def compare(folders: Mapping[str, Path], stage: Stage) -> dict[str, object]:
    """The stage under each folder, and the second minus the first."""
    measured = {}
    for name, folder in folders.items():
        with prompt_folder(folder):
            measured[name] = stage()
    first, second, *_ = measured.values()
    changes = [theirs - ours for ours, theirs in zip(first.scores, second.scores, strict=True)]
    return {
        "items": len(first.scores),
        **{
            name: {"score": round(sum(result.scores) / len(result.scores), 4), **result.figures}
            for name, result in measured.items()
        },
        "difference": difference(second.scores, first.scores).as_dict(),
        "better": sum(change > 0 for change in changes),
        "worse": sum(change < 0 for change in changes),
        "changed": sum(ours != theirs for ours, theirs in zip(first.answers, second.answers, strict=True)),
    }


def measure_choices(questions: Callable[[], Sequence[Prompt]], gold: Sequence[str], llm: LLM) -> Measured:
    """Prompts of a Choice against the correct options."""
    answers = llm.generate(questions())
    scores = [_probability(answer, option) for answer, option in zip(answers, gold, strict=True)]
    right = sum(answer.text == option for answer, option in zip(answers, gold, strict=True))
    return Measured(scores, [answer.text for answer in answers], {"accuracy": round(right / len(gold), 4)})


def operation_stage(llm: LLM, limit: int) -> Stage:
    """carecall/operation on a sample of the shipped pairs, as many of each label."""
    pairs = list(read_operations().pairs)
    Random(SEED).shuffle(pairs)
    by_label = [[pair for pair in pairs if pair.label == label] for label in sorted({pair.label for pair in pairs})]
    sample = [pair for row in zip(*by_label, strict=False) for pair in row][:limit]

    def run() -> Measured:
        labels = LLMClassifier(llm).classify([(pair.first, pair.second) for pair in sample])
        scores = [label.probabilities[pair.label] for pair, label in zip(sample, labels, strict=True)]
        right = sum(label.operation == pair.label for pair, label in zip(sample, labels, strict=True))
        return Measured(scores, [label.operation for label in labels], {"accuracy": round(right / len(sample), 4)})

    return run


def link_stage(llm: LLM, path: Path, limit: int) -> Stage:
    """theanine/link's first question on pairs of events whose relation comes from ATOMIC."""
    pairs = read_event_pairs(path, limit // (len(RELATIONS) + 1) + 1, SEED)[:limit]
    first_day, second_day = "3 March 2025", "12 March 2025"

    def questions() -> list[Prompt]:
        form = Choice((*RELATIONS, OTHER))
        return [
            render(
                "theanine/link",
                form=form,
                step=1,
                reasoning="",
                new_date=second_day,
                new_dialogue="",
                old_date=first_day,
                old_dialogue="",
                earlier_date=first_day,
                earlier=pair.first,
                later_date=second_day,
                later=pair.second,
            )
            for pair in pairs
        ]

    return lambda: measure_choices(questions, [pair.relation for pair in pairs], llm)


def continue_stage(llm: LLM, dialogues: Sequence[SegmentedDialogue], limit: int) -> Stage:
    """secom/continue at boundaries of labelled dialogues, and at as many exchanges that continue a segment."""
    cases: dict[str, list[tuple[Sequence[Turn], Sequence[Turn]]]] = {"same": [], "new": []}
    for dialogue in dialogues:
        exchanges = dialogue.session.exchanges()
        for place in range(1, len(exchanges)):
            segment = next(segment for segment in dialogue.segments if place - 1 in segment)
            earlier = [turn for exchange in exchanges[segment.start : place] for turn in exchange.turns()]
            cases["same" if place in segment else "new"].append((earlier, exchanges[place].turns()))
    Random(SEED).shuffle(cases["same"])
    sample = [(label, *case) for label, rows in cases.items() for case in rows[: limit // 2]]

    def questions() -> list[Prompt]:
        form = Choice(("same", "new"))
        return [
            render("secom/continue", form=form, segment=transcript(earlier), exchange=transcript(turns))
            for _, earlier, turns in sample
        ]

    return lambda: measure_choices(questions, [label for label, *_ in sample], llm)


def segment_stage(llm: LLM, dialogues: Sequence[SegmentedDialogue]) -> Stage:
    """secom/segment on labelled dialogues."""

    def run() -> Measured:
        segmenter = LLMSegmenter(llm)
        predictions = evaluate_segmenter(segmenter, dialogues, lambda *_: None)
        scores = [prediction.agreement.score for prediction in predictions]
        fallbacks = {"fallbacks": segmenter.fallbacks.total()}
        return Measured(scores, [str(prediction.predicted) for prediction in predictions], fallbacks)

    return run


def judge_stage(llm: LLM, name: str, limit: int | None) -> Stage:
    """A judge on its shipped labels, with one sample for each item."""
    judge = get_judge(name).with_samples(1)
    labelled = read_labelled_set(DATA / "calibration" / f"{name}.jsonl", judge)
    labelled = labelled._replace(lines=labelled.lines[:limit])

    def run() -> Measured:
        answers: list[Completion] = []
        recorder = Recorder(llm, lambda _prompt, answer, _time: answers.append(answer))
        verdicts = ask_judge(recorder, judge, labelled.items, seed=SEED)
        rows = iter(answers)
        by_item = [list(islice(rows, judge.prompts)) for _ in labelled.lines]
        scores = [
            _judge_score(judge, line, verdict, row)
            for line, verdict, row in zip(labelled.lines, verdicts, by_item, strict=True)
        ]
        figures = calibrate_judge(judge, labelled, verdicts, seed=SEED)
        found = {"agreement": round(figures.agreement, 4)}
        if figures.accuracy is not None:
            found["accuracy"] = round(figures.accuracy.mean, 4)
        return Measured(scores, [str([answer.text for answer in row]) for row in by_item], found)

    return run


def _judge_score(judge: Judge, line: Label, verdict: Verdict, answers: Sequence[Completion]) -> float:
    if isinstance(judge.verdict, Words):
        return _probability(answers[0], line.label or "")
    if isinstance(judge.verdict, Pair):
        positions = {FIRST: ("1", "2"), SECOND: ("2", "1"), TIE: (TIE, TIE)}[line.label or ""]
        return sum(map(_probability, answers, positions)) / len(answers)
    scale = judge.verdict.high - judge.verdict.low
    errors = [abs(verdict.scores[name] - value) / scale for name, value in line.scores.items() if verdict.scores]
    return 1 - sum(errors) / len(errors) if errors else 0.0


def text_stage(scorer: Scorer, questions: Callable[[], Sequence[tuple[Sequence[Message], str]]]) -> Stage:
    """The human text as the answer to each prompt."""

    def run() -> Measured:
        likelihoods = scorer.likelihoods(questions())
        return Measured([each.log_probability / each.tokens for each in likelihoods], [""] * len(likelihoods))

    return run


def text_questions(
    name: str, episodes: Sequence[Episode], summaries: Sequence[Mapping[str, str]]
) -> list[tuple[Sequence[Message], str]]:
    """The prompt called `name` for each dialogue, with the human answer."""
    if name in _PROSE:
        return [
            (render(name, dialogue=row["dialogue"], user="#Person1#", assistant="#Person2#").messages, row["summary"])
            for row in summaries
        ]
    return [_episode_question(name, episode) for episode in episodes if _golds(name, episode)]


def _episode_question(name: str, episode: Episode) -> tuple[Sequence[Message], str]:
    (session,) = episode.sessions
    people, dialogue = prompt_names(session.turns), transcript(session.turns)
    golds = _golds(name, episode)
    if name == _UPDATE:
        newest = max(unit.session for unit in episode.memories)
        memory = [unit.text for unit in episode.memories if unit.session == newest]
        prompt = render(name, memory="\n".join(memory), dialogue=dialogue, limit=20)
        return prompt.messages, "\n".join([*memory, *golds])
    if name in _ABOUT_ONE:
        more: dict[str, object] = {"count": 5} if name == "creem/first" else {}
        prompt = render(name, form=None, dialogue=dialogue, about=people["user"], **people, **more)
    else:
        prompt = render(name, dialogue=dialogue, **people)
    return prompt.messages, json.dumps({"memories": golds}, ensure_ascii=False)


def _golds(name: str, episode: Episode) -> list[str]:
    """The gold memory sentences of the episode's session; for prompts about one speaker, those that name the user."""
    (session,) = episode.sessions
    user = prompt_names(session.turns)["user"].casefold()
    golds = [unit.text for unit in episode.golds[session.id]]
    return [text for text in golds if name not in _ABOUT_ONE or user in text.casefold()]


def _probability(answer: Completion, option: str) -> float:
    return math.exp((answer.choices or {answer.text: 0.0}).get(option, -math.inf))


def _shortest(episodes: Sequence[Episode], limit: int) -> list[Episode]:
    """The episodes with the shortest dialogues: the cost of a prompt grows with its length."""
    return sorted(episodes, key=lambda episode: len(transcript(episode.sessions[0].turns)))[:limit]


def _stages(arguments: argparse.Namespace, llm: LLM) -> Iterator[tuple[str, Stage]]:
    dialogues = [read_segmented_dialogues(path)[: arguments.dialogues] for path in arguments.segmentation]
    yield "operation", operation_stage(llm, arguments.limit)
    if arguments.atomic:
        yield "link", link_stage(llm, arguments.atomic, arguments.limit)
    if dialogues:
        yield "continue", continue_stage(llm, list(chain(*dialogues)), arguments.limit)
    for name in JUDGES:
        yield f"judge/{name}", judge_stage(llm, name, arguments.judged)
    for path, rows in zip(arguments.segmentation, dialogues, strict=True):
        yield f"segment/{path.stem}", segment_stage(llm, rows)


def _text_stages(arguments: argparse.Namespace, scorer: Scorer) -> Iterator[tuple[str, Stage]]:
    per_file = arguments.texts // max(1, len(arguments.episodes))
    episodes = [episode for path in arguments.episodes for episode in _shortest(msc_cc.read(path).episodes, per_file)]
    summaries = _read_summaries(arguments.dialogsum)[: arguments.texts] if arguments.dialogsum else []
    names = [*(_FROM_EPISODES if episodes else ()), *(_PROSE if summaries else ())]
    for name in names:
        yield f"text/{name}", text_stage(scorer, partial(text_questions, name, episodes, summaries))


def _read_summaries(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for _, line in read_lines(path, "give JSON lines with dialogue and summary")]


def main() -> None:
    """Compare the versions; print each stage to stderr when it is complete, and one JSON document at the end."""
    arguments = _parse_arguments()
    folders = {name: Path(folder) for name, _, folder in (each.partition("=") for each in arguments.prompts)}
    settings = load_settings()
    results: dict[str, object] = {}

    def run(stages: Iterator[tuple[str, Stage]]) -> None:
        for name, stage in stages:
            if _is_wanted(name, arguments.stage):
                results[name] = compare(folders, stage)
                print(name, json.dumps(results[name]), file=sys.stderr, flush=True)

    if not arguments.stage or any(not stage.startswith("text") for stage in arguments.stage):
        backbone = factory.backbone(settings, lambda _: None)
        run(_stages(arguments, backbone.llm))
        backbone.close()
    if _is_wanted("text", [stage[:4] for stage in arguments.stage]):
        scorer = Scorer(model_path(settings.model))
        if arguments.bfloat16:
            scorer._model.to(torch.bfloat16)
        run(_text_stages(arguments, scorer))
    print(json.dumps({"model": settings.model, "stages": results, "versions": versions()}, indent=1))


def _is_wanted(name: str, stages: Sequence[str]) -> bool:
    return not stages or any(name.startswith(stage) for stage in stages)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", action="append", required=True, metavar="NAME=FOLDER", help="give it twice")
    parser.add_argument("--stage", action="append", default=[], help="name of a stage, or how it begins; repeatable")
    parser.add_argument("--segmentation", type=Path, action="append", default=[], help="TIAGE or SuperDialseg JSONL")
    parser.add_argument("--atomic", type=Path, help="ATOMIC's relations (TSV)")
    parser.add_argument("--episodes", type=Path, action="append", default=[], help="episodes as `msc_cc` reads them")
    parser.add_argument("--dialogsum", type=Path, help="DialogSum JSONL")
    parser.add_argument("--limit", type=int, default=140, help="items of operation, link and continue")
    parser.add_argument("--dialogues", type=int, default=60, help="dialogues of each segmentation file")
    parser.add_argument("--judged", type=int, help="items of each judge; default: all")
    parser.add_argument("--texts", type=int, default=50, help="dialogues of each text prompt")
    parser.add_argument("--bfloat16", action="store_true", help="text stages in bfloat16, for CPUs that compute in it")
    return parser.parse_args()


if __name__ == "__main__":
    main()
