"""Evaluation runs: which settings and data a run is of, whose folder it is, and the agents that take part in it.

Knows no terminal: what is worth telling goes to a function that the caller gives.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from localmem.errors import BadInput
from localmem.files import write_json, writing

if TYPE_CHECKING:
    from localmem.chat.conversation import Conversation
    from localmem.config import Settings
    from localmem.evaluation.episodes import Dataset, Half
    from localmem.evaluation.runner import AgentSpec, NewAgent
    from localmem.llm.base import LLM
    from localmem.retrieval.base import Encoder, Retriever

Notify = Callable[[str], None]

FULL, BM25 = "full_history", "utterance_retrieval/bm25"  # rows that are always in: all of the text, and plain search
RUN, ANSWERS = "run.json", "answers.jsonl"


def settings_for(config: Path | None, model: str | None, name: str) -> "Settings":
    """The user's settings for a system or one of its variants. Raises BadSettings, BadInput."""
    from localmem.config import load_settings, system_options
    from localmem.files import read_yaml
    from localmem.resources import resource

    system, _, variant = name.partition("/")
    system_options(system, {})
    if not variant:
        return load_settings(config, {"system": system, "model": model})
    folder = resource(f"configs/systems/{system}")
    known = sorted(path.stem for path in folder.glob("*.yaml")) if folder.is_dir() else []
    if variant not in known:
        raise BadInput(f"system {system!r} has no variant {variant!r}; it has {', '.join(known) or 'none'}")
    return load_settings(config, {"model": model, **read_yaml(folder / f"{variant}.yaml")})


def narrowed(data: "Dataset", half: str, limit: int | None, sessions: int | None) -> "Dataset":
    """What is to be run of a data set. Raises BadInput where that is nothing."""
    kept = data.select(None if half == "all" else cast("Half", half))
    kept = (kept.last_sessions(sessions) if sessions else kept).select(None, limit)
    kept = replace(kept, episodes=tuple(one for one in kept.episodes if one.probes))
    if not kept.episodes:
        raise BadInput(
            f"nothing is asked of {data.name} under these limits; raise --limit or --sessions, or drop --half"
        )
    return kept


def about_run(
    settings: "Settings", chosen: "Mapping[str, Settings]", data: "Sequence[Dataset]", narrowed: Mapping[str, object]
) -> dict[str, object]:
    """What a run is of; another run in its folder must be of the same."""
    from localmem.config import system_options
    from localmem.prompts import digest_of_all
    from localmem.reporting.provenance import versions
    from localmem.weights.manifest import Manifest

    known = Manifest.load().models.get(settings.model)  # a server may serve a model that the manifest does not list
    return {
        "model": settings.model,
        "checksum": known.checksum if known else None,
        "adapters": adapters_of(settings),
        "llm": settings.llm.model_dump(mode="json", exclude={"api_key"}),
        "systems": {
            name: {
                "options": system_options(one.system, one.options),
                "retrieval": one.retrieval.model_dump(mode="json"),
            }
            for name, one in chosen.items()
        },
        "data": {one.name: {"sha256": one.sha256, "probes": sum(len(e.probes) for e in one.episodes)} for one in data},
        **narrowed,
        "prompts": digest_of_all(),
        "versions": versions(),
        "notes": [f"{one.name}: {text}" for one in data for text in one.notes],
    }


def adapters_of(settings: "Settings") -> dict[str, str]:
    """The adapters that answer, those that come along included, by the prompts they answer: name and checksum."""
    from localmem.factory import adapters
    from localmem.weights.folder import checksum

    weights = {name: folder / "adapter_model.safetensors" for name, folder in adapters(settings).items()}
    return {name: f"{path.parent.name} {checksum(path)[:12]}" for name, path in weights.items() if path.is_file()}


def claim(out: Path, about: Mapping[str, object], *, resume: bool) -> None:
    """The folder is this run's. Raises BadInput where it holds another run, or this one and no --resume.

    Further systems may join a run. One that ended before its first line, for want of a model say, left nothing that
    another must not replace.
    """
    path, begun = out / RUN, out / ANSWERS
    told = json.loads(json.dumps(about))
    with writing(out, "choose another --out"):
        if path.exists() and begun.exists() and begun.stat().st_size:
            if not resume:
                raise BadInput(f"{out} holds a run; go on with --resume, or give another --out")
            before = json.loads(path.read_text(encoding="utf-8"))
            if changed := _changed(before, told):
                raise BadInput(f"{out} holds a run with another {', '.join(changed)}; give another --out")
            if told["systems"].keys() <= before["systems"].keys():
                return
            told = {**before, "systems": {**before["systems"], **told["systems"]}}
        write_json(path, told, indent=1)


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What makes the answers of two runs differ; versions may change between them, and are told as they first were."""
    free = ("versions", "notes", "systems")
    names = [name for name in now if name not in free and before.get(name) != now[name]]
    held = before["systems"]
    return names + [f"system {name}" for name, one in now["systems"].items() if held.get(name, one) != one]


def agents_of(
    settings: "Settings", chosen: "Mapping[str, Settings]", stack: ExitStack, notify: "Notify"
) -> "tuple[LLM, NewAgent]":
    """The backbone, and what makes an agent of any of the systems on it. One encoder serves all; `notify` hears of
    long steps."""
    from localmem import factory
    from localmem.chat.conversation import Conversation
    from localmem.chat.responder import Speakers

    backbone = factory.backbone(settings, notify)
    stack.callback(backbone.close)
    encoder = _encoder(settings, stack)

    def new_agent(seat: "AgentSpec") -> "Conversation":
        held = chosen[seat.work.system]

        def index() -> "Retriever":
            return factory.retriever(held, encoder, before=factory.SYSTEMS[held.system].before)

        return Conversation(
            memory=factory.memory(held, factory.Parts(seat.llm, index), seat.bank),
            llm=seat.llm,
            journal=seat.journal,
            speakers=Speakers(seat.user, seat.assistant),
            instructions=held.chat.instructions,
            memory_position=factory.memory_position(held),
        )

    return backbone.llm, new_agent


def _encoder(settings: "Settings", stack: ExitStack) -> "Callable[[], Encoder]":
    """One encoder for all, which encodes a text but once; made when first needed."""
    import tempfile
    import threading
    from functools import cache

    from localmem import factory
    from localmem.store import Store

    @cache
    def made() -> "Encoder":
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="localmem-eval-")))
        store = stack.enter_context(Store.open(folder))
        return factory.encoder(settings, store.embeddings)

    guard = threading.Lock()

    def one() -> "Encoder":
        with guard:  # a cache alone lets two episodes that begin together make one each
            return made()

    return one


def progress(stack: ExitStack, total: int) -> "Callable[[int], None]":
    """Told how many more probes are answered; a bar on a terminal, nothing in a pipe."""
    from tqdm import tqdm

    bar = stack.enter_context(tqdm(total=total, desc="answering", unit="probe", disable=None))

    def track(count: int) -> None:
        bar.update(count)

    return track
