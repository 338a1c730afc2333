"""What latency runs left behind, and how good an evaluation found the same systems: read for a report."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from localmem.benchmark.latency.compare import read_requests
from localmem.benchmark.latency.result import RESULT, Result, Sample, load_result
from localmem.errors import BadInput
from localmem.evaluation.answers import answers_of, lines_in
from localmem.evaluation.judgements import judged_in
from localmem.evaluation.scores import all_scores
from localmem.evaluation.summary import key


@dataclass(frozen=True, slots=True)
class Run:
    """What one run left behind; `requests` are its raw samples by point, none where the result lies alone."""

    name: str
    result: Result
    requests: Mapping[str, Sequence[Sample]]

    @classmethod
    def read(cls, path: Path) -> "Run":
        """From a run's folder or its result.json. Raises BadInput."""
        result = load_result(path)
        if not result.points:
            raise BadInput(f"{path} holds no points yet; let `localmem bench latency` measure one")
        return cls((path if path.is_dir() else path.parent).resolve().name, result, read_requests(path))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """Each under a name of its own; a folder of runs stands for all in it. Raises BadInput."""
    runs = [Run.read(each) for path in paths for each in _within_folder(path)]
    names = [run.name for run in runs]
    twice = {name for name in names if names.count(name) > 1}
    numbered = enumerate(runs, start=1)
    return [replace(run, name=f"{run.name}-{number}") if run.name in twice else run for number, run in numbered]


def _within_folder(path: Path) -> list[Path]:
    """A run with several models has a folder for each."""
    inner = [] if (path / RESULT).exists() else sorted(found.parent for found in path.glob(f"*/{RESULT}"))
    return inner or [path]


@dataclass(frozen=True, slots=True)
class Quality:
    """How good the systems' answers were on one data set, by the measure that says most."""

    data: str
    measure: str
    means: Mapping[str, float]


def quality(answers: Path) -> list[Quality]:
    """Of an evaluation's file of answers and the verdicts beside it. Raises BadInput."""
    held = answers_of(lines_in(answers))
    scores = all_scores(held, judged_in(answers.parent))
    found = []
    for data in sorted({answer.work.data for answer in held}):
        ours = [answer for answer in held if answer.work.data == data]
        for measure, values in scores.items():
            by_system: defaultdict[str, list[float]] = defaultdict(list)
            for answer in ours:
                if key(answer) in values:
                    by_system[answer.work.system].append(values[key(answer)])
            if by_system:
                found.append(Quality(data, measure, {system: fmean(each) for system, each in by_system.items()}))
                break
    return found
