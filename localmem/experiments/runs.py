"""Evaluation runs: memory systems read data sets and answer their probes, all on one backbone, into one folder.

Prints nothing: progress and notes go to functions that the caller passes.
"""

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from localmem.chat.conversation import Conversation
from localmem.config import Settings, overlay, system_options, variant_settings
from localmem.errors import BadInput, BadSettings
from localmem.evaluation.answers import Line, open_answers, read_answers
from localmem.evaluation.datasets import longmemeval, read_dataset
from localmem.evaluation.episodes import Dataset, Half
from localmem.evaluation.metrics.model_based import Likelihood, Scorer
from localmem.evaluation.runner import (
    AgentSpec,
    AnswerLikelihood,
    Enter,
    NewAgent,
    Track,
    WrapLLM,
    count_probes,
    memory_sessions,
    run_systems,
)
from localmem.files import read_json, validation_line, write_json
from localmem.llm.base import LLM
from localmem.llm.thinking import WithoutThinking
from localmem.prompts import digest_of_all
from localmem.reporting.provenance import list_differences, versions
from localmem.retrieval.base import Encoder, Retriever
from localmem.types import Prompt
from localmem.weights import model_path
from localmem.weights.folder import checksum
from localmem.weights.manifest import Manifest

Notify = Callable[[str], None]  # receives a line for the user
Progress = Callable[[str, int, int], None]  # receives the step, how much of it is done, and the total
Split = Half


def ignore_progress(_step: str, _completed: int, _total: int) -> None:
    """A Progress that shows nothing."""


# Included in every comparison: the whole text in the prompt, and plain search.
FULL_HISTORY, PLAIN_SEARCH = "full_history", "utterance_retrieval/bm25"
BASELINES = (FULL_HISTORY, PLAIN_SEARCH)
RUN, ANSWERS, GOLD = "run.json", "answers.jsonl", "gold.json"


class ExperimentRecipe(BaseModel):
    """The options of an experiment; unknown ones are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class EvaluationRecipe(ExperimentRecipe):
    """The options of an evaluation run."""

    systems: tuple[str, ...] = ()
    """Memory system, or SYSTEM/VARIANT; all systems by default."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first N questions per dataset."""
    sessions: int | None = Field(default=None, ge=1)
    """Use only the last N sessions (smoke test; not comparable)."""
    split: Split | None = None
    """Half of the data: choose (development) or report (test); both by default."""
    threads: int = Field(default=8, ge=1)
    """Episodes to run in parallel."""
    perplexity: bool = False
    """Also compute the perplexity of gold answers (loads the model in process)."""
    retry_failed: bool = False
    """With --resume, retry failed sessions and answers."""
    stream: bool = False
    """Stream replies and measure the time to the first token."""
    pool: int | None = Field(default=None, ge=1)
    """LongMemEval, evidence only: number of sessions for each question; all by default."""
    ray: str | None = None
    """Address of a Ray cluster to run on (host:port, auto, or local); by default threads of this process."""


def evaluate(
    settings: Settings,
    recipe: EvaluationRecipe,
    *,
    datasets: Mapping[str, Path],
    out: Path,
    baselines: Sequence[str] = BASELINES,
    resume: bool = False,
    wrap: WrapLLM = lambda llm, _: llm,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> list[Line]:
    """Let systems and baselines read data sets and answer their probes; return all valid lines.

    `datasets` maps names (`localmem.evaluation.datasets`) to files. Every answer is in `out` as soon as it is given;
    with `resume` an interrupted run continues, and further systems may join it. `wrap` wraps the LLM of each episode.
    Raises BadInput and BadSettings.
    """
    from localmem.factory import SYSTEMS

    if recipe.ray and recipe.perplexity:
        raise BadSettings("perplexity is computed in this process; omit perplexity or --ray")
    names = dict.fromkeys([*(recipe.systems or SYSTEMS), *baselines])
    selected = [_select_probes(read_dataset(name, path), recipe) for name, path in datasets.items()]
    by_system = {name: _with_gold(system_settings(settings, name), selected, out) for name in names}
    selection = recipe.model_dump(include={"split", "limit", "sessions", "perplexity", "pool"})
    claim_run(out, describe_run(settings, by_system, selected, selection), resume=resume)
    if recipe.ray:
        from localmem.experiments.ray_runs import RayRun

        run = RayRun(recipe.ray, settings, by_system, stream=recipe.stream)
        run.answer(selected, out, retry_failed=recipe.retry_failed, progress=progress)
        return read_answers(out / ANSWERS)
    likelihood = _answer_likelihood(settings, notify) if recipe.perplexity else None
    with ExitStack() as stack:
        llm, new_agent = open_agents(settings, by_system, stack, notify)
        answer_probes(
            by_system, selected, new_agent, llm, out, threads=recipe.threads, retry_failed=recipe.retry_failed,
            stream=recipe.stream, wrap=wrap, progress=progress, likelihood=likelihood,
        )  # fmt: skip
    return read_answers(out / ANSWERS)


def answer_probes(
    systems: Iterable[str],
    datasets: Sequence[Dataset],
    new_agent: NewAgent,
    llm: LLM,
    out: Path,
    *,
    threads: int,
    retry_failed: bool = False,
    stream: bool = False,
    wrap: WrapLLM = lambda llm, _: llm,
    likelihood: AnswerLikelihood | None = None,
    enter: Enter = lambda *_: None,
    progress: Progress,
) -> None:
    """Run systems over data sets and append to the answers in `out`, a folder that `claim_run` made."""
    names = list(systems)
    track = counting(progress, "answering", count_probes(datasets) * len(names))
    with open_answers(out / ANSWERS) as answers:
        run_systems(
            names, datasets, new_agent, llm, answers, threads=threads, track=track, likelihood=likelihood,
            retry_failed=retry_failed, stream=stream, wrap=wrap, enter=enter,
        )  # fmt: skip


def counting(progress: Progress, step: str, total: int) -> Track:
    """A function that adds to the completed part of a step and reports it; for any number of threads."""
    completed, lock = 0, threading.Lock()

    def track(count: int) -> None:
        nonlocal completed
        with lock:
            completed += count
            progress(step, completed, total)

    return track


# -- settings and data -------------------------------------------------------------------------------------------------


def system_settings(settings: Settings, name: str) -> Settings:
    """The settings for a system, or for its variant SYSTEM/VARIANT.

    Options of the settings' own system do not apply to other systems. Raises BadSettings and BadInput.
    """
    overrides = variant_settings(name) if "/" in name else {"system": name}
    system_options(str(overrides["system"]), {})
    values = settings.model_dump()
    if overrides["system"] != settings.system:
        values["options"] = {}
    try:
        return Settings.model_validate(overlay(values, overrides))
    except ValidationError as error:
        raise BadSettings(validation_line(error, Settings, "setting")) from error


def _with_gold(own: Settings, datasets: Sequence[Dataset], out: Path) -> Settings:
    """The settings, with the data sets' gold memory in a file of the run for a variant that has it as its memory.

    A session without gold memory keeps that of the session before. Raises BadInput if no data set has any.
    """
    if own.options.get("variant") != "gold" or own.options.get("gold"):
        return own
    gold: dict[str, list[str]] = {}
    for episode in (episode for dataset in datasets for episode in dataset.episodes if episode.golds):
        last = [unit.text for unit in episode.memories]
        gold |= {session.id: last for session in memory_sessions(episode.memories, episode.sessions)}
        for session in episode.sessions:
            units = episode.golds.get(session.id)
            gold[session.id] = last = last if units is None else [unit.text for unit in units]
    if not gold:
        names = ", ".join(dataset.name for dataset in datasets)
        raise BadInput(f"{names} has no gold memory; run {own.system}/gold over carecall or msc")
    write_json(out / GOLD, gold, "choose another --out")
    return own.model_copy(update={"options": {**own.options, "gold": str(out / GOLD)}})


def _select_probes(dataset: Dataset, recipe: EvaluationRecipe) -> Dataset:
    """The part of a data set to use. Raises BadInput if it contains no probe."""
    if recipe.pool and dataset.name == "longmemeval":
        dataset = longmemeval.draw_haystacks(dataset, recipe.pool)
    part = dataset.select(recipe.split)
    part = (part.last_sessions(recipe.sessions) if recipe.sessions else part).select(None, recipe.limit)
    part = replace(part, episodes=tuple(episode for episode in part.episodes if episode.probes))
    if not part.episodes:
        raise BadInput(f"{dataset.name} has no questions under these limits; raise limit or sessions, or omit split")
    return part


# -- the folder of a run -----------------------------------------------------------------------------------------------


def describe_run(
    settings: Settings,
    by_system: Mapping[str, Settings],
    datasets: Sequence[Dataset],
    selection: Mapping[str, object],
) -> dict[str, object]:
    """What identifies a run, for run.json: models, options, data, prompts and versions."""
    entry = Manifest.load().models.get(settings.model)  # a server may serve a model that the manifest does not list
    return {
        "model": settings.model,
        "checksum": entry.checksum if entry else None,
        "adapters": describe_adapters(settings),
        "llm": settings.llm.model_dump(mode="json", exclude={"api_key"}),
        "systems": {
            name: {
                "options": system_options(own.system, own.options),
                "retrieval": own.retrieval.model_dump(mode="json"),
            }
            for name, own in by_system.items()
        },
        "data": {dataset.name: {"sha256": dataset.sha256, "probes": count_probes([dataset])} for dataset in datasets},
        **selection,
        "prompts": digest_of_all(),
        "versions": versions(),
        "notes": [f"{dataset.name}: {note}" for dataset in datasets for note in dataset.notes],
    }


def describe_adapters(settings: Settings) -> dict[str, str]:
    """Name and checksum of the adapters in use, by the prompts that they answer."""
    from localmem.factory import adapters

    weights = {name: folder / "adapter_model.safetensors" for name, folder in adapters(settings).items()}
    return {name: f"{path.parent.name} {checksum(path)[:12]}" for name, path in weights.items() if path.is_file()}


_ABOUT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def read_about(folder: Path) -> dict[str, Any]:
    """The run.json of a run. Raises BadInput."""
    return read_json(folder / RUN, _ABOUT, "give the folder of a run")


def claim_run(out: Path, about: Mapping[str, object], *, resume: bool, results: str = ANSWERS) -> None:
    """Make `out` the folder of this run. Raises BadInput if it holds another run, or this one without `resume`.

    With `resume` it must hold a run, which may have been interrupted before its first result.
    Further systems may join a run. A run whose file `results` is missing or empty (its model was missing, for example)
    may be replaced.
    """
    answers = out / results
    if resume and not (out / RUN).is_file():
        raise BadInput(
            f"no run began in {out}: it has no {RUN}; leave out --resume to begin one, or give the --out of an "
            "interrupted one"
        )
    current = _ABOUT.validate_json(_ABOUT.dump_json(dict(about)))
    if (out / RUN).exists() and answers.exists() and answers.stat().st_size:
        if not resume:
            raise BadInput(f"{out} holds a run; continue it with --resume, or choose another --out")
        previous = read_about(out)
        if changes := _changes(previous, current):
            raise BadInput(
                f"{out} holds a run with other settings: {'; '.join(changes)}; use the earlier ones, or choose another "
                "--out"
            )
        if current["systems"].keys() <= previous["systems"].keys():
            return
        current = {**previous, "systems": {**previous["systems"], **current["systems"]}}
    write_json(out / RUN, current, "choose another --out", indent=1)


def _changes(previous: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """What makes answers of two runs differ; versions may change within a run, whose first ones are recorded."""
    ignored = ("versions", "notes", "systems")
    now = {name: value for name, value in current.items() if name not in ignored}
    lines = list_differences({name: previous.get(name) for name in now}, now)
    for name, own in current["systems"].items():
        lines += list_differences({name: previous["systems"].get(name, own)}, {name: own})
    return lines


# -- models ------------------------------------------------------------------------------------------------------------


def open_backbone(settings: Settings, stack: ExitStack, notify: Notify) -> LLM:
    """The configured backbone, closed with the stack."""
    from localmem import factory

    backbone = factory.backbone(settings, notify)
    stack.callback(backbone.close)
    return WithoutThinking(backbone.llm, settings.chat.template_kwargs)


def open_agents(
    settings: Settings, by_system: Mapping[str, Settings], stack: ExitStack, notify: Notify
) -> tuple[LLM, NewAgent]:
    """The backbone, and a function that makes agents of these systems on it, with one encoder for all of them."""
    llm = open_backbone(settings, stack, notify)
    return llm, agent_maker(by_system, _shared_encoder(settings, stack))


def agent_maker(by_system: Mapping[str, Settings], encoder: Callable[[], Encoder]) -> NewAgent:
    """A function that makes agents of these systems, which all use the one encoder."""
    from localmem import factory

    def new_agent(spec: AgentSpec) -> Conversation:
        own = by_system[spec.work.system]

        # A measurement or a teacher's record is of the backbone itself, unless a selector is named.
        llm = spec.llm if own.chat.stages == "model" else factory.stages(own, spec.llm)

        def index() -> Retriever:
            return factory.retriever(own, encoder, system=factory.SYSTEMS[own.system])

        return Conversation(
            memory=factory.memory(own, factory.Parts(llm, index), spec.bank),
            llm=spec.llm,
            journal=spec.journal,
            speakers=spec.speakers,
            instructions=own.chat.instructions,
            memory_position=factory.memory_position(own),
            sampling=factory.sampling(own),
            reader=factory.reader(own),
        )

    return new_agent


def _shared_encoder(settings: Settings, stack: ExitStack) -> Callable[[], Encoder]:
    """One encoder for all threads, loaded when first needed, that encodes each text once."""
    from localmem import factory
    from localmem.store import Store

    lock, encoders = threading.Lock(), list[Encoder]()

    def share_encoder() -> Encoder:
        with lock:  # two episodes may start together
            if not encoders:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-eval-")))
                store = stack.enter_context(Store.open(folder))
                encoders.append(factory.encoder(settings, store.embeddings))
            return encoders[0]

    return share_encoder


def _answer_likelihood(settings: Settings, notify: Notify) -> AnswerLikelihood:
    """Likelihoods under the backbone's own weights in process, because a server does not compute them."""
    scorer, lock = Scorer(model_path(settings.model), device=settings.llm.device), threading.Lock()

    def likelihood(prompt: Prompt, answer: str) -> Likelihood | None:
        try:
            with lock:
                return scorer.likelihoods([(prompt.messages, answer)])[0]
        except BadInput as error:  # longer than the context
            notify(f"no perplexity: {error}")
            return None

    return likelihood
