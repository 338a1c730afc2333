"""The end-to-end effect of students: the same `localmem eval run` with each of them in place, and without.

Wires settings into `localmem.evaluation.runner`; a run that broke off is gone on with.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput
from localmem.experiments.runs import (
    ANSWERS,
    Notify,
    Progress,
    answer_probes,
    claim_run,
    describe_run,
    ignore_progress,
    open_agents,
    select_probes,
    system_settings,
)

if TYPE_CHECKING:
    from finetune.students import Student
    from finetune.traces.trace import Trace
    from localmem.config import Settings
    from localmem.evaluation.answers import Line
    from localmem.reporting.sections import Table

# A trained part takes the place of the backbone in these systems, by this option.
_PLACES: Mapping[str, tuple[str, str]] = {"operation": ("carecall", "classifier"), "segment": ("secom", "segmenter")}
_THREADS = 8


class Whole:
    """One system over some data sets, with one student at a time; answers go into `out`, a folder for each."""

    def __init__(
        self,
        settings: "Settings",
        system: str,
        sources: Sequence[tuple[str, Path]],
        limits: Mapping[str, object],
        out: Path,
        notify: Notify,
        progress: Progress = ignore_progress,
    ) -> None:
        from localmem.evaluation.datasets import read_dataset

        self._settings, self._system, self._limits = settings, system, limits
        self._data = [
            select_probes(read_dataset(name, path), split=limits["split"], limit=limits["limit"], sessions=None)  # type: ignore[arg-type]  # as the command checked them
            for name, path in sources
        ]
        self._out = out / "end-to-end"
        self._notify, self._progress = notify, progress

    def run(self, students: "Sequence[Student]", traces: "Mapping[str, Sequence[Trace]]") -> "list[Table]":
        """Tables of quality, differences and costs; the base model's rows bear the system's own name."""
        from localmem.evaluation.answers import answers_of
        from localmem.evaluation.scores import score_answers
        from localmem.evaluation.summary import section

        lines = self._lines("base", {}, {})
        for student in students:
            routes, options = self._place(student, traces)
            lines += [
                replace(line, work=line.work._replace(system=f"{self._system} + {student.name}"))
                for line in self._lines(student.name, routes, options)
            ]
        scores = score_answers(answers_of(lines), [])
        return list(section("End to end", (), lines, scores, self._out, against=(self._system,)).tables)

    def _place(
        self, student: "Student", traces: "Mapping[str, Sequence[Trace]]"
    ) -> tuple[dict[str, Path], dict[str, object]]:
        """Adapters by prompt name, options of the system: as the student is served."""
        from localmem.llm.adapter_notes import read_notes

        if student.kind == "adapter":
            notes = read_notes(student.folder)
            names = list(notes.prompts) if notes else []
            asked = [trace.metadata.prompt for held in traces.values() for trace in held]
            return dict.fromkeys(names or asked, student.folder), {}
        (stage,) = traces
        system, option = _PLACES.get(stage, ("", ""))
        if self._system.partition("/")[0] != system:
            raise BadInput(f"{student.folder} is a part of {system or 'no system'}, not of {self._system}")
        return {}, {option: str(student.folder.resolve())}

    def _lines(self, name: str, routes: Mapping[str, Path], options: Mapping[str, object]) -> "list[Line]":
        """What came of one run; what stands in its folder already is not done again."""
        from finetune.students import routed
        from localmem.evaluation.answers import read_answers

        folder = self._out / name
        settings = routed(self._settings, routes)
        chosen = system_settings(self._settings, self._system)
        chosen = chosen.model_copy(update={"options": {**chosen.options, **options}})
        held = {self._system: chosen}
        claim_run(folder, describe_run(settings, held, self._data, self._limits), resume=True)
        with ExitStack() as stack:
            self._notify(f"{self._system} with {name}: the answers are in {folder / ANSWERS}")
            llm, new_agent = open_agents(settings, held, stack, self._notify)
            answer_probes(
                [self._system], self._data, new_agent, llm, folder,
                threads=_THREADS, retry_failed=True, progress=self._progress,
            )  # fmt: skip
        return read_answers(folder / ANSWERS)
