"""The end-to-end effect of students: the same `localmem eval run` with each of them in place, and without.

Wires settings into `localmem.evaluation.runner`; a run that broke off is gone on with.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.errors import BadInput
from localmem.experiments.runs import ANSWERS, Notify, about_run, agents_of, claim, narrowed, progress, settings_for

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
        config: Path | None,
        settings: "Settings",
        system: str,
        sources: Sequence[tuple[str, Path]],
        limits: Mapping[str, object],
        out: Path,
        notify: Notify,
    ) -> None:
        from localmem.evaluation.datasets import read_dataset

        self._config, self._settings, self._system, self._limits = config, settings, system, limits
        half, limit = str(limits["half"]), limits["limit"]
        count = limit if isinstance(limit, int) else None
        self._data = [narrowed(read_dataset(name, path), half, count, None) for name, path in sources]
        self._out = out / "end-to-end"
        self._notify = notify

    def run(self, students: "Sequence[Student]", traces: "Mapping[str, Sequence[Trace]]") -> "list[Table]":
        """Tables of quality, differences and costs; the base model's rows bear the system's own name."""
        from localmem.evaluation.answers import answers_of
        from localmem.evaluation.scores import all_scores
        from localmem.evaluation.summary import section

        lines = self._lines("base", {}, {})
        for student in students:
            routes, options = self._place(student, traces)
            lines += [
                replace(line, work=line.work._replace(system=f"{self._system} + {student.name}"))
                for line in self._lines(student.name, routes, options)
            ]
        scores = all_scores(answers_of(lines), [])
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
        from localmem.evaluation.answers import open_answers, read_answers
        from localmem.evaluation.runner import count_probes, run

        folder = self._out / name
        settings = routed(self._settings, routes)
        chosen = settings_for(self._config, self._settings.model, self._system)
        chosen = chosen.model_copy(update={"options": {**chosen.options, **options}})
        held = {self._system: chosen}
        claim(folder, about_run(settings, held, self._data, self._limits), resume=True)
        with ExitStack() as stack:
            answers = stack.enter_context(open_answers(folder / ANSWERS))
            self._notify(f"{self._system} with {name}: the answers are in {folder / ANSWERS}")
            llm, new_agent = agents_of(settings, held, stack, self._notify)
            bar = progress(stack, count_probes(self._data))
            run([self._system], self._data, new_agent, llm, answers, threads=_THREADS, track=bar, again=True)
        return read_answers(folder / ANSWERS)
