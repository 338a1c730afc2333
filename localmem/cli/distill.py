"""`localmem distill`: collect a teacher's outputs, filter them, and train and compare students."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import click

from finetune.free_chat import write_replies
from finetune.traces.collector import DUPLICATE
from finetune.traces.division import PART_NAMES
from finetune.traces.human_labels import Stage, convert_labels
from finetune.trainers.lora import LoraRecipe
from finetune.trainers.lora import merge as merge_adapter
from finetune.trainers.training import base_folder, update_recipe
from localmem.cli import students
from localmem.cli.finetune import make_job, out_option, print_result, resume_option
from localmem.cli.options import (
    EXISTING_FILE,
    FOLDER,
    DatasetFile,
    SettingsFlags,
    config_option,
    files_by_name,
    interruptible,
    json_option,
    note,
    print_json,
    print_table,
    settings_options,
    step_progress,
)
from localmem.cli.recipes import recipe_options
from localmem.experiments.distillation import (
    TRACES,
    CollectionRecipe,
    collect_traces,
    filter_collection,
    import_traces,
    train_student,
)
from localmem.experiments.runs import RUN

_collection_option = click.option("--out", type=FOLDER, required=True, help="Folder of the collection.", metavar="DIR")


@click.group()
def distill() -> None:
    """Distill a teacher's memory steps into small models."""


@distill.command()
@click.option(
    "--dataset",
    "--data",
    "datasets",
    type=DatasetFile(),
    multiple=True,
    help="Data set or log, and its file; jsonl=FILE for your own. Repeatable.",
    metavar="NAME=FILE",
)
@click.option("--from-store", is_flag=True, help="Use the conversations that are stored here.")
@recipe_options(CollectionRecipe, flags=[("systems", "system"), ("stages", "stage")], file=False)
@click.option("--teacher", required=True, help="Backbone whose outputs are collected.", metavar="MODEL")
@_collection_option
@resume_option
@config_option
@json_option
def collect(
    datasets: Sequence[tuple[str, Path]],
    from_store: bool,
    recipe: CollectionRecipe,
    teacher: str,
    out: Path,
    resume: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Collect a teacher's prompts and answers.

    Runs memory systems over conversations, lets the teacher reply wherever the assistant did, and writes every
    prompt and answer, in a file for each stage. A log needs no questions. The teacher runs in process, on its own vLLM,
    or on a server at llm.url. A failure loses nothing, nor does Ctrl-C; a second one does not wait for the answers that
    are under way.
    """
    files = files_by_name(datasets)
    settings = SettingsFlags(config, {}).load_for(recipe.ray, model=teacher)
    with interruptible(lambda: _describe_interrupt(out)), step_progress() as progress:
        counts = collect_traces(
            settings, recipe, files, out, from_store=from_store, resume=resume, notify=note, progress=progress
        )
    _print_counts(counts, out, as_json=as_json)


@distill.command("import")
@click.argument("files", type=FOLDER, nargs=-1, required=True, metavar="FILE...")
@click.option("--stage", required=True, help="Stage of all lines.", metavar="NAME")
@click.option("--teacher", help="Name of the model that wrote them; default: the file's name.", metavar="NAME")
@_collection_option
@json_option
def import_(files: Sequence[Path], stage: str, teacher: str | None, out: Path, as_json: bool) -> None:
    """Import outputs that you already have.

    FILE is JSONL with one chat per line: messages, ShareGPT's conversations, or prompt and completion. No file is
    imported if any line is wrong.
    """
    _print_counts(import_traces(files, stage, teacher, out), out, as_json=as_json)


@distill.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the division by conversation.")
@click.option("--judge-model", help="Model that also judges the answers.", metavar="NAME")
@click.option(
    "--criterion",
    default="score",
    show_default=True,
    help="Judge question: score, rating, entailment or correct.",
    metavar="NAME",
)
@click.option("--min-score", type=float, help="Lowest score to keep, with --judge-model.", metavar="N")
@settings_options("config", "data_dir")
@json_option
def sift(
    folder: Path,
    seed: int,
    judge_model: str | None,
    criterion: str,
    min_score: float | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Filter a collection and divide it into parts.

    Drops what a student should not learn and writes DIR/train, DIR/valid and DIR/test, divided by conversation, with a
    file for each stage. The collected traces stay as they are. A judge sees only what passes all other checks, and
    nothing twice.
    """
    if (judge_model is None) != (min_score is None):
        raise click.UsageError("--judge-model and --min-score must be used together")
    with step_progress() as progress:
        question = criterion if judge_model else None
        settings, minimum = flags.load(model=judge_model), min_score or 0.0
        rows = filter_collection(
            folder, settings, seed=seed, criterion=question, minimum=minimum, notify=note, progress=progress
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        [
            {
                "stage": row["stage"],
                **{f"{name} traces": row[part] for part, name in PART_NAMES.items()},
                "dropped": row["dropped"],
                "why dropped": ", ".join(f"{reason}: {count}" for reason, count in row["reasons"].items()),
            }
            for row in rows
        ],
        "keys",
    )


@distill.command()
@click.argument("folder", type=FOLDER, metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="Stage, or all. Repeatable.", metavar="NAME")
@click.option("--student", required=True, help="Base model: a name, a folder, or t5:tiny.", metavar="MODEL")
@recipe_options(LoraRecipe, flags=["epochs", "rank"])
@out_option
@resume_option
@json_option
def train(
    folder: Path, stages: Sequence[str], student: str, recipe: LoraRecipe, out: Path, resume: bool, as_json: bool
) -> None:
    """Train a student on a filtered collection.

    A chat model gets one LoRA adapter for all stages; serve it with the setting llm.adapters, under the prompts' names.
    For the stages operation and segment the student may be an encoder, for operation also a T5 (t5:tiny is randomly
    initialised): it is then trained as `localmem finetune` does, with that command's defaults.
    """
    job = make_job(update_recipe(recipe, base=student), out, resume=resume)
    print_result(train_student(folder, stages, job), job, as_json=as_json)


@distill.command()
@click.argument("adapter", type=FOLDER, metavar="RUN")
@click.option("--student", required=True, help="The student's base model: a name or a folder.", metavar="MODEL")
@click.option("--out", type=FOLDER, required=True, help="Folder for the merged model.", metavar="DIR")
@click.option("--gguf", type=FOLDER, help="GGUF file to write as well.", metavar="FILE")
def merge(adapter: Path, student: str, out: Path, gguf: Path | None) -> None:
    """Merge an adapter into its base model.

    The result is a model folder that vLLM and transformers load; `localmem models import` registers it. With --gguf it
    is also written as one file for llama.cpp, Ollama and LM Studio.
    """
    merge_adapter(adapter, base_folder(student), out)
    note(f"the merged model is in {out}")
    if gguf:
        from localmem.weights.gguf_export import transformers_to_gguf

        transformers_to_gguf(out, gguf)
        note(f"and as GGUF in {gguf}")


@distill.command()
@click.argument("stage", type=click.Choice(get_args(Stage)))
@click.argument("file", type=EXISTING_FILE)
@click.argument("folder", type=FOLDER, metavar="DIR")
def labels(stage: Stage, file: Path, folder: Path) -> None:
    """Convert human labels into traces of a stage.

    FILE holds labelled dialogues for the stage segment, and lines of ATOMIC for link. Only dialogues of 4 to 12
    utterances are used: SuperDialSeg has many, TIAGE and DialSeg711 have too few. Writes DIR/train, DIR/valid and
    DIR/test.
    """
    counts = convert_labels(stage, file, folder, note)
    print_table([(name, counts[part]) for part, name in PART_NAMES.items()], ["part", "traces"])


@distill.command()
@click.argument("file", type=EXISTING_FILE)
@click.option("--out", type=FOLDER, required=True, help="Predictions for `localmem eval text`.", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), default=120, show_default=True, help="Number of replies.")
def free_chat(file: Path, out: Path, limit: int) -> None:
    """Write replies of free chat as predictions.

    FILE is Synthetic-Persona-Chat's validation file. With `localmem eval text --metric perplexity` it shows whether a
    student still talks as people do.
    """
    write_replies(file, out, limit)


for command in students.COMMANDS:
    distill.add_command(command)


def _describe_interrupt(out: Path) -> str:
    if not (out / RUN).is_file():
        return "interrupted: nothing was collected"
    count = sum(path.read_bytes().count(b"\n") for path in (out / TRACES).glob("*.jsonl"))
    return (
        f"interrupted: {count} traces are saved in {out / TRACES}; waiting for the answers under way (Ctrl-C again "
        "stops at once); continue with the same command and --resume"
    )


def _print_counts(counts: Mapping[str, int], out: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"out": str(out / TRACES), "collected": dict(counts)})
        return
    stages = sorted({name.removesuffix(DUPLICATE) for name in counts})
    rows = [(stage, counts.get(stage, 0), counts.get(stage + DUPLICATE, 0)) for stage in stages]
    print_table(rows, ["stage", "new traces", "collected before"])
    note(f"traces are in {out / TRACES}; run `localmem distill sift {out}`")
