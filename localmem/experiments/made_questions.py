"""Questions about a data set's sessions, written by the backbone into a file. Prints nothing."""

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from localmem.config import Settings
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.question_maker import question_lines
from localmem.experiments.runs import Notify, Progress, ignore_progress, open_backbone
from localmem.files import write_jsonl


def make_questions(
    settings: Settings,
    dataset: tuple[str, Path],
    out: Path,
    *,
    limit: int | None = None,
    number: int = 5,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Mapping[str, int]:
    """Write the first `limit` episodes with at most `number` questions a session to `out`; return what was made."""
    episodes = read_dataset(*dataset).episodes[:limit]
    counts: Counter[str] = Counter()
    lines: list[Mapping[str, object]] = []
    with ExitStack() as stack:
        llm = open_backbone(settings, stack, notify)
        for completed, episode in enumerate(episodes, start=1):
            lines += question_lines(llm, episode, number, counts)
            progress("writing questions", completed, len(episodes))
    write_jsonl(out, lines, "choose another --out")
    return counts
