"""Students: a LoRA adapter on a small chat model learns a stage of a teacher's memory work, or several stages.

Only the assistant's tokens are learned. Where the teacher's distribution over a choice is known, the student may learn
that too (Hinton et al., 2015). Knows traces and folders; what a student is worth is `finetune.grading`'s to say.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.packing import NOT_LEARNED, Row, collate, encode, pack
from finetune.run_folder import About, first_process, save
from finetune.traces.trace import Trace, read_traces
from finetune.trainers.training import Plan, Trained, arguments, check_checkpoints, need, quietly, run
from localmem.errors import BadInput, MissingExtra
from localmem.llm.adapter_notes import AdapterNotes, save_notes
from localmem.llm.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import BitsAndBytesConfig, PreTrainedModel, Trainer


@dataclass(frozen=True, slots=True)
class Job:
    """What to train from what. `soft` is the weight of the teacher's distribution beside the loss of its words.

    `start` is an adapter to go on from; its own rank and form hold. `pack` is the number of tokens of a row; a longer
    trace is left out and counted. `dora` splits weights into
    direction and length (Liu et al., 2024); `quantised` holds the base model in 4 bits (Dettmers et al., 2023).
    """

    base: Path
    train: Sequence[Path]
    valid: Sequence[Path]
    out: Path
    plan: Plan
    start: Path | None = None
    rank: int = 16
    dora: bool = False
    quantised: bool = False
    pack: int = 2048
    soft: float = 0.5
    licence: str = "that of the base model and of the teacher"
    command: str = "localmem distill train"


def train(job: Job, *, resume: bool = False, note: Callable[[str], None] = print) -> Trained:
    """Trains and writes the adapter's folder. Raises BadInput before the first step."""
    need("torch", "peft", "accelerate")
    if job.quantised and find_spec("bitsandbytes") is None:
        raise MissingExtra("weights of 4 bits need the package 'bitsandbytes'; run `pip install bitsandbytes`")
    from transformers import EarlyStoppingCallback, TrainingArguments, set_seed

    chat = ChatTokenizer(job.base)
    check_checkpoints(job.out, resume=resume)
    learned, checked = (_rows(paths, job, chat, note) for paths in (job.train, job.valid))
    set_seed(job.plan.seed)
    model = _student(job)
    settings = arguments(job.plan, "loss", job.out) | {
        "greater_is_better": False,
        "lr_scheduler_type": "cosine",
        "prediction_loss_only": True,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "per_device_eval_batch_size": job.plan.batch,
    }
    trainer = _trainer_type()(
        model=model,
        args=TrainingArguments(**settings),
        train_dataset=[{"row": row} for row in learned],
        eval_dataset=[{"row": row} for row in checked],
        data_collator=collate,
        callbacks=[EarlyStoppingCallback(job.plan.patience)],
    )
    trainer.soft = job.soft
    note(f"{len(learned)} rows to learn from, {len(checked)} to check on; {_trainable(model):,} numbers are trained")
    trained = run(trainer, job.out)
    _save(job, model, chat, trained)
    return trained


def _rows(paths: Sequence[Path], job: Job, chat: ChatTokenizer, note: Callable[[str], None]) -> list[Row]:
    traces = [trace for path in paths for trace in read_traces(path)]
    rows = [encode(trace, chat) for trace in traces]
    fitting = [row for row in rows if len(row.ids) <= job.pack]
    if not fitting:
        files = ", ".join(map(str, paths))
        raise BadInput(f"{files} holds {len(rows)} traces, none of at most {job.pack} tokens; collect more")
    if len(fitting) < len(rows):
        note(f"{len(rows) - len(fitting)} of {len(rows)} traces are longer than {job.pack} tokens and left out")
    return pack(fitting, job.pack, job.plan.seed)


def _student(job: Job) -> "PeftModel":
    """The base model with a fresh adapter on every linear layer; only the adapter learns, in float32."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    base = _base(job)
    base.config.use_cache = False  # nothing is read twice
    if job.start:
        return _going_on(base, job.start)
    config = LoraConfig(
        r=job.rank,
        lora_alpha=2 * job.rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        use_dora=job.dora,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base, config)
    if not isinstance(model, PeftModel):
        raise BadInput(f"{job.base} takes no adapter; give a model whose layers are linear")
    if torch.cuda.is_available():
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def _going_on(base: "PreTrainedModel", start: Path) -> "PeftModel":
    from peft import PeftModel

    if not (start / "adapter_config.json").is_file():
        raise BadInput(f"there is no adapter in {start} to go on from; give the --out of a run that is done")
    try:
        return PeftModel.from_pretrained(base, str(start), is_trainable=True)
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{start} does not suit the student: {' '.join(str(error).split())[:200]}") from error


def _base(job: Job) -> "PreTrainedModel":
    """In float32, in the bfloat16 that was asked for, or in 4 bits with what computes beside them in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    wide = torch.bfloat16 if job.plan.precision == "bfloat16" and not job.quantised else torch.float32
    more = {"quantization_config": _four_bits()} if job.quantised else {}
    try:
        with quietly():
            base: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                str(job.base), dtype=wide, local_files_only=True, **more
            )
    except (OSError, ValueError) as error:
        raise BadInput(f"{job.base} is no chat model to start from: {' '.join(str(error).split())[:200]}") from error
    if job.quantised:
        from peft import prepare_model_for_kbit_training

        prepared: PreTrainedModel = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
        return prepared
    return base


def _four_bits() -> "BitsAndBytesConfig":
    """NormalFloat with doubly quantised constants (Dettmers et al., 2023, section 3)."""
    import torch
    from transformers import BitsAndBytesConfig

    wide = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16 if wide else torch.float32,
    )


def _trainer_type() -> "type[Trainer]":
    """The Trainer whose loss may hold the teacher's distribution; made here, for transformers is heavy."""
    import torch
    from transformers import Trainer

    class Distilling(Trainer):
        soft = 0.0

        def compute_loss(
            self,
            model: "torch.nn.Module",
            inputs: "dict[str, torch.Tensor]",
            return_outputs: bool = False,
            num_items_in_batch: "torch.Tensor | int | None" = None,
        ) -> "torch.Tensor | tuple[torch.Tensor, object]":
            at, ids, probabilities = (inputs.pop(f"soft_{name}") for name in ("at", "ids", "probabilities"))
            wanted = torch.nn.functional.pad(inputs.pop("labels"), (0, 1), value=NOT_LEARNED)[:, 1:]
            kept = (wanted != NOT_LEARNED).any(0).nonzero()[:, 0]  # a vocabulary is wide, and few positions are learned
            outputs = model(**inputs, logits_to_keep=kept)
            loss = surprise(outputs.logits, wanted[:, kept], num_items_in_batch)
            if num_items_in_batch is not None:
                loss = loss * self.accelerator.num_processes  # each has a part, and their gradients' mean is taken
            if self.soft and len(at):
                places = torch.stack([at[:, 0], torch.searchsorted(kept, at[:, 1].contiguous())], 1)
                loss = loss + self.soft * divergence(outputs.logits, places, ids, probabilities)
            return (loss, outputs) if return_outputs else loss

    return Distilling


def surprise(
    logits: "torch.Tensor", wanted: "torch.Tensor", count: "torch.Tensor | int | None" = None
) -> "torch.Tensor":
    """The mean negative log-probability of the tokens that should come; `count` of them are in all batches of a step.

    `logits` (rows, positions, vocabulary); `wanted` (rows, positions).
    """
    import torch

    total = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), wanted.flatten(), ignore_index=NOT_LEARNED, reduction="sum"
    )
    return total / (count if count is not None else (wanted != NOT_LEARNED).sum())


def divergence(
    logits: "torch.Tensor", at: "torch.Tensor", ids: "torch.Tensor", probabilities: "torch.Tensor"
) -> "torch.Tensor":
    """The mean Kullback-Leibler divergence of the student's choices from the teacher's, over the options alone.

    `logits` (rows, positions, vocabulary); `at` (n, 2); `ids` and `probabilities` (n, options), padded with -1 and 0.
    """
    import torch

    options = logits[at[:, 0], at[:, 1]].gather(-1, ids.clamp(min=0)).float()
    ours = options.masked_fill(ids < 0, -torch.inf).log_softmax(-1)
    known = probabilities > 0
    each = torch.where(known, probabilities * (probabilities.clamp(min=1e-12).log() - ours), 0.0)
    return each.sum(-1).mean()


def _trainable(model: "PeftModel") -> int:
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def _save(job: Job, model: "PeftModel", chat: ChatTokenizer, trained: Trained) -> None:
    """The adapter in bfloat16 (half the size, and what a server computes in), card, curves, and what it is for.

    The tokenizer stays with the base model: no server reads it from an adapter's folder.
    """
    import torch

    traces = [trace for path in job.train for trace in read_traces(path)]
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.to(torch.bfloat16)
    prompts = {trace.metadata.prompt: trace.metadata.prompt_sha256 for trace in traces if trace.metadata.prompt_sha256}
    notes = AdapterNotes(base=job.base.name, prompts=prompts, template_sha256=chat.template_sha256)
    how = {
        "start": job.start.name if job.start else None,
        "rank": job.rank,
        "dora": job.dora,
        "quantised": job.quantised,
        "pack": job.pack,
        "soft": job.soft,
    }
    about = About(
        title=f"Student for {', '.join(sorted({path.stem for path in job.train}))}",
        what=f"A LoRA adapter of rank {job.rank} on {job.base.name}, taught by {', '.join(_teachers(traces))}.",
        command=job.command,
        base=job.base.name,
        data=[*job.train, *job.valid],
        licence=job.licence,
        settings=how,
        more=_serving(notes),
    )
    save(job.out, model, None, about, job.plan, trained, {"traces": len(traces), **notes.model_dump()})
    if first_process():
        save_notes(job.out, notes)


def _serving(notes: AdapterNotes) -> list[str]:
    """The card's lines on what the adapter is served with."""
    prompts = [f"- prompt `{name}`, sha256 `{digest[:16]}`" for name, digest in sorted(notes.prompts.items())]
    return [
        "## Served with",
        "",
        f"The base model {notes.base}, under the setting `llm.adapters`. Loading it warns where these have changed:",
        "",
        *prompts,
        f"- chat template, sha256 `{notes.template_sha256[:16]}`",
    ]


def _teachers(traces: Sequence[Trace]) -> list[str]:
    return sorted({trace.metadata.teacher for trace in traces})
