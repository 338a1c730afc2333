"""`localmem eval run`, `report`, `text`, `abstention`, `teafarm`, `judge`, `calibrate`: replies, and verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from localmem.cli.options import (
    DatasetFile,
    SettingsFlags,
    dataset_option,
    files_by_name,
    json_option,
    note,
    print_json,
    print_report,
    print_table,
    settings_options,
    step_progress,
)
from localmem.cli.recipes import recipe_options
from localmem.evaluation.file_scoring import (
    RunMetric,
    ScoringModels,
    TextRecipe,
    read_baseline_replies,
    read_replies,
    score_replies,
)
from localmem.evaluation.judging.calibration import CalibrationRecord
from localmem.experiments import judging
from localmem.experiments.judging import TeafarmRecipe, calibrate_judges, describe_calibration, judge_run
from localmem.experiments.run_sections import read_chapters
from localmem.experiments.runs import ANSWERS, FULL_HISTORY, EvaluationRecipe, evaluate
from localmem.experiments.scenarios import ScenarioRecipe, measure_scenarios
from localmem.files import write_json, write_jsonl


@click.command(name="run")
@dataset_option
@recipe_options(EvaluationRecipe, flags=[("systems", "system"), "limit", "ray"])
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR")
@click.option("--resume", is_flag=True, help="Continue the run in --out; further systems may join.")
@settings_options("config", "model")
def run_(
    datasets: Sequence[tuple[str, Path]], recipe: EvaluationRecipe, out: Path, resume: bool, flags: SettingsFlags
) -> None:
    """Let memory systems answer questions about data sets.

    All systems use the same backbone. The baselines full_history (all text in the prompt) and utterance_retrieval/bm25
    (plain search) are always included. Answers are written at once, so an interrupted run continues with --resume.
    """
    files = files_by_name(datasets)
    settings = flags.load_for(recipe.ray)
    with step_progress() as progress:
        evaluate(settings, recipe, datasets=files, out=out, resume=resume, notify=note, progress=progress)
    note(f"answers are in {out / ANSWERS}; run `localmem eval report {out}`")


@click.command()
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for report.html and report.md; default: the first DIR.",
    metavar="DIR",
)
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(["bertscore", "mauve", "meaning"]),
    multiple=True,
    help="Further metric of a run's answers, or of its memories by meaning. Repeatable.",
)
@click.option("--encoder", help="Encoder of these, by name or folder; default: that of the settings.", metavar="E")
@settings_options("config", "model")
@json_option
def report(
    folders: Sequence[Path],
    out: Path | None,
    metrics: Sequence[RunMetric],
    encoder: str | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Report evaluations as HTML and Markdown.

    Each DIR is the --out of `localmem eval run` or of another evaluation. The page shows quality, costs and every
    answer, and is self-contained.
    """
    from localmem.reporting.sections import markdown, write_pages

    models = ScoringModels(flags.load(), TextRecipe(encoder=encoder))
    chapters = read_chapters(folders, metrics, models)
    html, text = write_pages(out or folders[0], "localmem evaluation", chapters)
    if as_json:
        sections = [section for chapter in chapters for section in chapter.sections]
        print_json([{**asdict(section), "answers": len(section.answers)} for section in sections])
    else:
        click.echo(markdown("localmem evaluation", chapters, out or folders[0]))
    note(f"wrote {html} and {text}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="FOLDER")
@recipe_options(ScenarioRecipe, flags=[("systems", "system"), ("authors", "author")])
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report.", metavar="DIR")
@click.option("--resume", is_flag=True, help="Continue the run in --out; further systems may join.")
@settings_options("config", "model")
@json_option
def scenarios(
    folder: Path, recipe: ScenarioRecipe, out: Path | None, resume: bool, flags: SettingsFlags, as_json: bool
) -> None:
    """Measure memory on people's conversations of weeks.

    FOLDER has one JSON file a person (format: localmem/evaluation/datasets/scenarios.py). Reports the evidence that is
    found, really shown, and shown within 600 tokens, what comes up though it was to be forgotten, and the ordinary
    requests that get memory: for questions and paraphrases, by type, with intervals over people. No LLM is asked,
    except by systems that need one. With `--set answers=true` the model answers, and right answers and denials are
    counted.
    """
    if resume and not out:
        raise click.UsageError("--resume needs --out, the folder of the run to continue")
    with step_progress() as progress:
        report = measure_scenarios(flags.load(), recipe, folder, out=out, resume=resume, notify=note, progress=progress)
    print_report(report, as_json=as_json)
    if out:
        note(f"the report is in {out / 'report.md'}")


@click.command()
@settings_options("config", "model", "system")
@json_option
def abstention(flags: SettingsFlags, as_json: bool) -> None:
    """Ask questions that a conversation does not answer.

    The questions are about shipped conversations. If there is no answer, the right reply says that it does not know;
    otherwise that is a false abstention. Rules decide which replies abstain: localmem/evaluation/metrics/replies.py.
    """
    from localmem.evaluation import DATA
    from localmem.experiments.demo import measure_abstention, read_cases

    cases = read_cases(DATA / "abstention" / "questions.yaml")
    report = measure_abstention(flags.load(), cases, notify=note)
    if as_json:
        print_json(report)
    else:
        print_table(report["rows"], "keys", floatfmt=".2f")


@click.command()
@click.option("--predictions", type=click.Path(path_type=Path), help="JSONL of predictions.", metavar="FILE")
@click.option("--dataset", type=DatasetFile(), help="Score the replies shipped with msc_cc.", metavar="NAME=FILE")
@recipe_options(TextRecipe, flags=[("metrics", "metric"), "adapter"])
@click.option("--out", type=click.Path(path_type=Path), help="JSONL file for each reply's scores.", metavar="FILE")
@settings_options("config", "model")
@json_option
def text(
    predictions: Path | None,
    dataset: tuple[str, Path] | None,
    recipe: TextRecipe,
    out: Path | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Score replies against references.

    A line of --predictions has `prediction` and `reference` (or `references`), optionally `id` and `prompt`. BLEU is
    from 0 to 100, all others but perplexity from 0 to 1. MAUVE takes its vectors from the backbone; perplexity is that
    of the reference under the backbone.
    """
    if (predictions is None) == (dataset is None) or (dataset and dataset[0] != "msc_cc"):
        raise click.UsageError("give either --predictions FILE or --dataset msc_cc=FILE")
    replies = read_baseline_replies(dataset[1]) if dataset else read_replies(predictions or Path())
    models = ScoringModels(flags.load(), recipe)
    metrics = tuple(dict.fromkeys(recipe.metrics))
    scores = score_replies(replies, metrics, models=models, stem=recipe.stem)
    if out is not None:
        rows = ({name: values[index] for name, values in scores.each.items()} for index in range(len(replies)))
        lines = ({"id": reply.id, **row} for reply, row in zip(replies, rows, strict=True))
        write_jsonl(out, lines, "choose another --out")
    if as_json:
        print_json({"replies": len(replies), **models.names, "measures": dict(scores.overall)})
        return
    click.echo(", ".join([f"{len(replies)} replies", *(f"{part} {name}" for part, name in models.names.items())]))
    print_table(list(scores.overall.items()), ["metric", "value"], floatfmt=".4f")


@click.group()
def teafarm() -> None:
    """Test memory with counterfactual questions."""


@teafarm.command()
@click.option("--dataset", type=DatasetFile(), required=True, help="Source data set and its file.", metavar="NAME=FILE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="TeaBag file to write.", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N episodes.", metavar="N")
@click.option("--sessions", type=click.IntRange(1), default=5, show_default=True, help="Sessions per episode.")
@click.option("--threads", type=click.IntRange(1), default=8, show_default=True, help="Episodes to make in parallel.")
@settings_options("config", "model")
@json_option
def make(
    dataset: tuple[str, Path],
    out: Path,
    limit: int | None,
    sessions: int,
    threads: int,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Make counterfactual questions.

    Each speaker of an episode gets a question that assumes something untrue, and a session that leads up to it. The
    backbone writes everything, so a larger --model makes better questions; read some before you rely on them. Episodes
    that FILE already contains are skipped.
    """
    with step_progress() as progress:
        report = judging.make_questions(
            flags.load(), dataset, out, limit=limit, sessions=sessions, threads=threads, notify=note, progress=progress
        )
    if as_json:
        print_json(report)
        return
    existing = f"{report['existing']} of them from before"
    click.echo(f"{report['questions']} questions about {report['episodes']} episodes, {existing}, in {out}")
    for reason, count in sorted(report["counts"].items()):
        click.echo(f"{reason}: {count}")


@teafarm.command(name="run")
@recipe_options(TeafarmRecipe, flags=[("systems", "system"), "limit", "judge_model"])
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR")
@settings_options("config", "data_dir", "model")
@json_option
def run_teafarm(recipe: TeafarmRecipe, out: Path, flags: SettingsFlags, as_json: bool) -> None:
    """Put counterfactual questions to systems.

    A system reads five sessions and answers the question that a sixth leads up to; a judge decides who was not misled.
    The agent speaks for the replier, so each question has a memory of its own. What DIR already contains is not done
    again. The success rate is the share of questions answered correctly (Theanine, Table 4).
    """
    with step_progress() as progress:
        report = judging.run_teafarm(flags.load(), recipe, out, notify=note, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_rates(report, out)


def _print_rates(report: Mapping[str, Any], out: Path) -> None:
    from localmem.reporting.intervals import Estimate

    rows = [
        [
            row["system"],
            Estimate.of(row["rate"]).as_text(digits=2),
            *(row[name] for name in ("questions", "abstained", "failed", "unjudged")),
        ]
        for row in report["systems"]
    ]
    print_table(rows, ["system", "success rate", "questions", "abstained", "failed", "unjudged"])
    judge = report["judge"]
    calibration = judge["calibration"] or "not calibrated; run `localmem eval calibrate` for this judge and model"
    click.echo(f"judge {judge['name']} on {judge['model']}: {calibration}")
    note(f"answers are in {out / ANSWERS}; run `localmem eval report {out}`")


_criterion_option = click.option("--criterion", "criteria", multiple=True, help="Judge question. Repeatable.")
_judge_model_option = click.option("--judge-model", help="Backbone of the judge.", metavar="NAME")
_samples_option = click.option("--samples", type=click.IntRange(1), help="Samples per verdict.", metavar="N")
_nli_option = click.option("--nli", help="Trained NLI model for entailment, by name or folder.", metavar="NAME")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@_criterion_option
@_judge_model_option
@_samples_option
@_nli_option
@click.option("--baseline", default=FULL_HISTORY, show_default=True, help="Baseline of pairwise judges.", metavar="S")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for samples.")
@settings_options("config", "data_dir")
@json_option
def judge(
    folder: Path,
    criteria: Sequence[str],
    judge_model: str | None,
    samples: int | None,
    nli: str | None,
    baseline: str,
    seed: int,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Judge the answers of a run.

    DIR is the --out of `localmem eval run`. The default criterion is correct; answers that already have a verdict are
    skipped unless they have changed. The judge's model need not be the one that answered. Calibrate the judge first
    with `localmem eval calibrate`; reports mark verdicts of uncalibrated judges.
    """
    settings = flags.load(model=judge_model)
    counts = judge_run(
        folder, settings, criteria=criteria, samples=samples, nli=nli, baseline=baseline, seed=seed, notify=note
    )
    if as_json:
        print_json(counts)
    for name, count in counts.items():
        note(f"{name}: {count} verdicts; run `localmem eval report {folder}`")


@click.command()
@_criterion_option
@_judge_model_option
@click.option("--labelled", type=click.Path(path_type=Path), help="Labels for one criterion.", metavar="FILE")
@_samples_option
@_nli_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed for samples and intervals.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for the figures.", metavar="FILE")
@settings_options("config", "data_dir")
@json_option
def calibrate(
    criteria: Sequence[str],
    judge_model: str | None,
    labelled: Path | None,
    samples: int | None,
    nli: str | None,
    seed: int,
    out: Path | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Compare judges with labelled verdicts.

    Measures accuracy, kappa, position bias and accepted wrong answers, by default of every judge on the shipped labels.
    The figures are stored in the data directory, so that reports can mark uncalibrated judges. A judge is believable
    from a kappa (for numbers, a mean Spearman) of 0.6.
    """
    settings = flags.load(model=judge_model)
    with step_progress() as progress:
        records = calibrate_judges(
            settings,
            criteria=criteria,
            labelled=labelled,
            samples=samples,
            nli=nli,
            seed=seed,
            notify=note,
            progress=progress,
        )
    documents = [describe_calibration(record) for record in records]
    if out:
        write_json(out, documents, "choose another --out")
    if as_json:
        print_json(documents)
        return
    click.echo("\n\n".join(map(_calibration_table, records)))
    note(f"stored in {settings.data} for reports")


def _calibration_table(record: CalibrationRecord) -> str:
    """One judge's figures for the terminal; a line for each that there is."""
    figures = record.figures
    samples = f", {record.samples} samples" if record.samples > 1 else ""
    title = f"{record.judge} on {record.model.name}{samples}, {figures.items} items of {record.labelled}"
    lines = [title, figures.line]
    if figures.accuracy:
        lines.append(f"accuracy {figures.accuracy.as_text(digits=2)}")
    if figures.flipped is not None:
        sides = ", ".join(f"{share:.0%} to reply {position}" for position, share in figures.favoured.items())
        lines.append(f"{figures.flipped:.0%} flip with the order" + (f" ({sides})" if sides else ""))
    if figures.unusable or figures.trimmed:
        lines.append(f"{figures.unusable} without a verdict, {figures.trimmed} with a prompt cut to fit")
    if figures.kinds:
        accepted = {kind: f"{share:.0%}" for kind, share in figures.passed.items()}
        heads = ["kind", "items", "agreed", "accepted"][: 4 if accepted else 3]
        rows = [[kind, *row, accepted.get(kind, "")][: len(heads)] for kind, row in figures.kinds.items()]
        lines.append(tabulate(rows, heads))
    if figures.spearman:
        scales = [
            [scale, f"{rho:.2f}", ", ".join(f"{label}: {mean:.1f}" for label, mean in figures.means[scale].items())]
            for scale, rho in figures.spearman.items()
        ]
        lines.append(tabulate(scales, ["scale", "Spearman", "mean by label"], disable_numparse=True))
    return "\n".join(lines)
