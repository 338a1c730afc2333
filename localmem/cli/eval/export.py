"""`localmem eval export`: a run's answers as the files of other projects."""

from pathlib import Path

import click

from localmem.cli.options import note
from localmem.files import write_json, write_jsonl


@click.command("export")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--system", required=True, help="The memory system that answered.", metavar="NAME")
@click.option("--answers-to", "dataset", help="Data set that was asked; default: the only one.", metavar="NAME")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="File to write.", metavar="FILE")
def export_answers(folder: Path, system: str, dataset: str | None, out: Path) -> None:
    """Write answers for other projects' scripts.

    DIR is the --out of `localmem eval run`. Answers to LoCoMo's questions become the JSON file that its `task_eval`
    scores, all others JSON lines of `question_id` and `hypothesis`, as LongMemEval's `evaluate_qa.py` reads them.
    """
    from localmem.evaluation.answer_files import choose_answers, hypotheses, locomo_samples
    from localmem.evaluation.answers import answers_of, read_answers
    from localmem.experiments.runs import ANSWERS

    answers = answers_of(read_answers(folder / ANSWERS))
    chosen = choose_answers(answers, system, dataset)
    if chosen and chosen[0].work.dataset == "locomo":
        write_json(out, locomo_samples(chosen, system.replace("/", "_")), "choose another --out")
    else:
        write_jsonl(out, hypotheses(chosen), "choose another --out")
    note(f"wrote {len(chosen)} answers to {out}")
