"""Scenarios: memory systems read people's conversations of weeks and are measured on questions about them.

Without answers no backbone is asked, except by systems that need one. Each person's rows are saved as soon as they are
measured. Prints nothing: notes and progress go to functions that the caller passes.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

from pydantic import Field, TypeAdapter

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.chat.responder import Speakers
from localmem.config import Settings
from localmem.evaluation.answers import FALLBACKS, Work
from localmem.evaluation.datasets import scenarios
from localmem.evaluation.datasets.scenarios import Person
from localmem.evaluation.runner import AgentSpec, NewAgent
from localmem.evaluation.scenario_measures import BUDGET, DEPTHS, ScenarioOptions, ScenarioRow, measure_person
from localmem.experiments.retrieval_parts import Positive, RetrievalParts
from localmem.experiments.runs import (
    ExperimentRecipe,
    Notify,
    Progress,
    agent_maker,
    claim_run,
    counting,
    describe_run,
    ignore_progress,
    open_backbone,
    system_settings,
)
from localmem.files import JsonlLog
from localmem.journal import NoJournal
from localmem.llm.base import LLM
from localmem.llm.wrappers import LazyLLM, Meter, PromptUsage
from localmem.reporting.intervals import Estimate, estimate
from localmem.reporting.provenance import versions
from localmem.reporting.sections import Chapter, Report, Table, read_section, write_pages

Figures = dict[str, Any]

PEOPLE = "people.jsonl"  # the rows of each system and person


class ScenarioRecipe(ExperimentRecipe):
    """The options of a run over scenarios."""

    systems: tuple[str, ...] = ()
    """Memory system, or SYSTEM/VARIANT; by default that of the settings."""
    authors: tuple[str, ...] = ()
    """Only the people of this author, the part of a file's name before "-"."""
    limit: Positive | None = None
    """Use only the first N people."""
    answers: bool = False
    """Put the questions to the backbone, too."""
    asked_again: int = Field(default=0, ge=0)
    """Ask and deny each single fact N times, then ask again."""


@dataclass(frozen=True, slots=True)
class MeasuredPerson:
    """The rows of one system and person.

    `spent` is what the backbone was asked by prompt name, `turns` the turns that were read. `refused` counts the texts
    that did not become memory, `fallbacks` those of the memory: parts that were cut to fit, and unusable answers.
    """

    system: str
    person: str
    rows: tuple[ScenarioRow, ...]
    spent: Mapping[str, PromptUsage] = field(default_factory=dict)
    turns: int = 0
    refused: int = 0
    fallbacks: int = 0


_LINE: TypeAdapter[MeasuredPerson] = TypeAdapter(MeasuredPerson)


def measure_scenarios(
    settings: Settings,
    recipe: ScenarioRecipe,
    path: Path,
    *,
    out: Path | None = None,
    resume: bool = False,
    notify: Notify = lambda _: None,
    progress: Progress = ignore_progress,
) -> Report:
    """Let systems read the people of a folder and measure what they recall, and what is answered.

    `out` receives report.json, report.md, report.html, people.jsonl and the vectors; with `resume` an interrupted run
    continues, and further systems may join it. Raises BadInput and BadSettings.
    """
    by_system = {name: system_settings(settings, name) for name in dict.fromkeys(recipe.systems or [settings.system])}
    people = scenarios.read_people(path, recipe.authors)[: recipe.limit]
    data = scenarios.read(path)
    about = describe_run(settings, by_system, [data], recipe.model_dump(exclude={"systems"}))
    if out:
        claim_run(out, about, resume=resume, results=PEOPLE)
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-scenarios-")))
        parts = RetrievalParts(settings, folder, stack, notify, chunk=1, seed=0)
        name, count = parts.token_counter
        llm = LazyLLM(lambda: open_backbone(settings, stack, notify), count)
        new_agent = agent_maker(by_system, lambda: parts.encoder)
        log = stack.enter_context(JsonlLog(folder / PEOPLE, _LINE))
        options = ScenarioOptions(count, recipe.answers, recipe.asked_again)
        measured = _measure(by_system, people, new_agent, llm, options, log, progress)
    runs = _figures(measured)
    figures = {**about, "tokens_of": name, "runs": runs}
    notes = (
        f"{path.name}: {len(people)} people, authors {', '.join(sorted({person.author for person in people}))}",
        f"tokens of {name}; intervals of 95 % over people",
        f"git {versions().get('git', 'unknown')}",
        *data.notes,
    )
    report = Report(figures, (*_tables(runs), _costs(measured)), notes)
    if out:
        title = f"Scenarios {out.name}"
        report.save(out, title)
        write_pages(out, title, [Chapter(title, out, (read_section(out),))])
    return report


def _measure(
    systems: Iterable[str],
    people: Sequence[Person],
    new_agent: NewAgent,
    llm: LLM,
    options: ScenarioOptions,
    log: JsonlLog[MeasuredPerson],
    progress: Progress,
) -> list[MeasuredPerson]:
    """The people that the log holds, and those that it lacks, which are measured and added to it."""
    measured = list(log.records)
    finished = {(each.system, each.person) for each in measured}
    pairs = [(system, person) for system in systems for person in people if (system, person.id) not in finished]
    track = counting(progress, "measuring people", len(pairs))
    for system, person in pairs:
        meter, conversations = Meter(llm), list[Conversation]()
        spec = partial(AgentSpec, Work(system, "scenarios", person.id), Speakers(), meter)

        def new_conversation(
            bank: Bank,
            spec: Callable[[Bank, NoJournal], AgentSpec] = spec,
            conversations: list[Conversation] = conversations,
        ) -> Conversation:
            conversations.append(new_agent(spec(bank, NoJournal())))
            return conversations[-1]

        rows = tuple(measure_person(person, new_conversation, options))
        memory = conversations[0].memory
        turns = sum(len(session.turns) for session in person.sessions)
        refused, fallbacks = len(memory.bank.refused), memory.fallbacks.total()
        measured.append(MeasuredPerson(system, person.id, rows, meter.usage(), turns, refused, fallbacks))
        log.append(measured[-1])
        track(1)
    return measured


# -- figures and tables ------------------------------------------------------------------------------------------------


def _figures(measured: Sequence[MeasuredPerson]) -> list[Figures]:
    """The measures of each system and wording over all questions, by type and by language."""
    runs = []
    for system in dict.fromkeys(each.system for each in measured):
        rows = [row for each in measured if each.system == system for row in each.rows]
        for wording in dict.fromkeys(row.wording for row in rows):
            group = [row for row in rows if row.wording == wording]
            parts = {
                name: {
                    value: _means([row for row in group if getattr(row, field) == value])
                    for value in dict.fromkeys(getattr(row, field) for row in group)
                }
                for name, field in (("types", "type"), ("languages", "language"))
            }
            runs.append({"system": system, "wording": wording, **_means(group), **parts})
    return runs


def _costs(measured: Sequence[MeasuredPerson]) -> Table:
    """What each system asked of the backbone, without and with its replies, and what did not become memory."""
    rows = []
    for system in dict.fromkeys(each.system for each in measured):
        people = [each for each in measured if each.system == system]
        spent = [(name.endswith("/respond"), usage) for each in people for name, usage in each.spent.items()]
        stages, replies = (
            reduce(PromptUsage.plus, (usage for is_reply, usage in spent if is_reply is of_replies), PromptUsage())
            for of_replies in (False, True)
        )
        turns = max(1, sum(each.turns for each in people))
        row: Figures = {
            "system": system,
            "calls a turn": f"{stages.calls / turns:.2f}",
            "tokens a turn": f"{(stages.input_tokens + stages.output_tokens) / turns:.0f}",
            "texts refused": sum(each.refused for each in people),
            "fallbacks": sum(each.fallbacks for each in people),
        }
        if replies.calls:
            row["prompt tokens of a reply"] = f"{replies.input_tokens / replies.calls:.0f}"
        rows.append(row)
    return Table.of(f"Asked of the backbone to remember and recall, and what did not become memory; {FALLBACKS}", rows)


def _means(rows: Sequence[ScenarioRow]) -> Figures:
    """The mean of each measure over the questions that have it, with an interval over people."""
    measures = {}
    for name in dict.fromkeys(name for row in rows for name in row.measures):
        measured = [row for row in rows if name in row.measures]
        mean = estimate([row.measures[name] for row in measured], [row.person for row in measured])
        measures[name] = {**mean.as_dict(), "questions": len(measured)}
    return {"people": len({row.person for row in rows}), "questions": len(rows), "measures": measures}


_EVIDENCE = (*(f"recall@{k}" for k in DEPTHS), "shown", f"shown@{BUDGET}")
_ANSWERS = ("right", "false denial", "right denial")
_WORKINGS = tuple(f"{name}{source}" for source in ("", " from evidence") for name in ("worked out", "right lines"))


_Group = tuple[Figures, Mapping[str, str], Figures]  # a run, the part of it, the figures of that part


def _tables(runs: Sequence[Figures]) -> tuple[Table, ...]:
    """The figures for a person; a table without a figure is left out."""
    everything: list[_Group] = [(run, {}, run) for run in runs]
    types, languages = (
        [(run, {part.removesuffix("s"): name}, figures) for run in runs for name, figures in run[part].items()]
        for part in ("types", "languages")
    )
    several = len({name for run in runs for name in run["languages"]}) > 1
    tables = (
        _table("Evidence found and shown", everything, (*_EVIDENCE, "tokens")),
        _table("Forgotten and yet shown", everything, ("came up",)),
        _table("Ordinary requests with memory shown, or refused", everything, ("ordinary shown", "ordinary refused")),
        _table("Answers", everything, _ANSWERS),
        _table("Facts that were first, after being asked for and denied", everything, ("still first",)),
        _table("Facts that were shown, after being asked for and denied", everything, ("still shown",)),
        _table("Worked out, of temporal and multi-session questions", everything, _WORKINGS),
        _table("Worked out, by type", types, _WORKINGS),
        _table("By type", types, (*_EVIDENCE, *_ANSWERS)),
        _table("By language", languages if several else [], (*_EVIDENCE, *_ANSWERS)),
    )
    return tuple(table for table in tables if table.rows)


def _table(caption: str, groups: Sequence[tuple[Figures, Mapping[str, str], Figures]], names: Sequence[str]) -> Table:
    """A row for each group (its run, what it is a part of, its figures) that has one of the measures."""
    rows = []
    for run, labels, figures in groups:
        measures = {name: figures["measures"][name] for name in names if name in figures["measures"]}
        if measures.keys() - {"tokens"}:
            questions = max(figure["questions"] for name, figure in measures.items() if name != "tokens")
            cells = {name: _cell(name, figure) for name, figure in measures.items()}
            rows.append({"system": run["system"], "wording": run["wording"], **labels, "questions": questions} | cells)
    return Table.of(caption, rows)


def _cell(name: str, figure: Mapping[str, float]) -> str:
    return Estimate.of(figure).as_text(digits=0 if name == "tokens" else 3)
