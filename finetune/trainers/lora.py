"""Students: a LoRA adapter on a small chat model learns one or several stages of a teacher's memory work.

Only the assistant's tokens are learned. Where the teacher's distribution over a choice is known, the student can learn
that, too (Hinton et al., 2015). `finetune.grading` measures the result.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pydantic import Field

from finetune.packing import IGNORED, PackedRow, collate, encode, pack
from finetune.run_folder import Card, is_first_process, save_run
from finetune.traces.trace import read_traces
from finetune.trainers import teacher_trainers, training
from finetune.trainers.teacher_trainers import Method
from finetune.trainers.training import Notify, TrainingJob, TrainingRecipe, TrainingResult, require_modules
from localmem.errors import BadInput, MissingExtra
from localmem.files import read_json
from localmem.llm.adapters import AdapterNotes, require_proved, save_notes
from localmem.llm.device import quiet_loading
from localmem.llm.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel, Trainer


FEW_TRACES, FEW_STEPS = 32, 30  # below these, nothing is learned that another seed would not undo


class LoraRecipe(TrainingRecipe):
    """Recipe of `localmem distill train` for a chat model."""

    base: str = "smollm2-135m-instruct"
    """Chat model to start from, by name or folder; the command's --student."""
    licence: str = "that of the base model and of the teacher"
    """Licence of the trained weights, for their card and the manifest."""
    train: tuple[Path, ...] = ()
    """Training traces; the command takes them from the collection."""
    valid: tuple[Path, ...] = ()
    """Validation traces; the command takes them from the collection."""
    method: Method = "imitate"
    """What is learned: imitate (answers), distribution, on-policy or preferences; the last three with TRL."""
    teacher: str = ""
    """Weights of the teacher, by name or folder, for the methods distribution and on-policy."""
    beta: float | None = Field(None, ge=0)
    """Constant of the method: 0 forward to 1 reverse divergence, or the strength of preferences; null for TRL's own."""
    answer_tokens: int = Field(256, ge=1)
    """Most tokens of an answer that the student samples, for the method on-policy."""
    start: Path | None = None
    """Adapter to continue from: the --out of a finished run, whose rank stays as it is."""
    rank: int = Field(16, ge=1)
    """Rank of the adapter."""
    alpha: int | None = Field(None, ge=1)
    """What the adapter is multiplied by, over its rank; null for twice the rank."""
    dora: bool = False
    """Learn direction and length of the weights separately (Liu et al., 2024); served only when merged."""
    four_bit: bool = False
    """Hold the base model in 4 bits while training (Dettmers et al., 2023); needs bitsandbytes."""
    row_tokens: int = Field(2048, ge=1)
    """Tokens of a packed row; longer traces are left out."""
    distribution_weight: float = Field(0.5, ge=0)
    """Weight of the teacher's distribution over choices in the loss."""
    epochs: float = Field(3.0, gt=0)
    """Passes over the training data, at most."""
    batch_size: int = Field(1, ge=1)
    """Rows in a batch."""
    patience: int = Field(2, ge=1)
    """Epochs without improvement after which training stops."""
    learning_rate: float = Field(2e-4, gt=0)
    """Peak learning rate."""


def train(job: TrainingJob[LoraRecipe]) -> TrainingResult:
    """Train and write the adapter's folder. Raises BadInput before the first step."""
    require_modules("torch", "peft", "accelerate")
    recipe = job.recipe
    if recipe.four_bit and find_spec("bitsandbytes") is None:
        raise MissingExtra("4-bit weights need the package 'bitsandbytes'; run `pip install bitsandbytes`")
    from transformers import EarlyStoppingCallback, TrainingArguments, set_seed

    base = training.base_folder(recipe.base)
    chat = ChatTokenizer(base)
    training.check_checkpoints(job, chat.template_sha256)
    learned, checked = (_read_rows(paths, recipe, chat, job.notify) for paths in (recipe.train, recipe.valid))
    caution = describe_too_little(recipe, sum(row.traces for row in learned), len(learned))
    if caution:
        job.notify(caution)
    set_seed(recipe.seed)
    model = _make_student(base, recipe)
    arguments = training.trainer_arguments(job, "loss") | {
        "lr_scheduler_type": "cosine",
        "prediction_loss_only": True,
        "remove_unused_columns": False,
        "label_names": ["labels"],
        "per_device_eval_batch_size": recipe.batch_size,
    }
    if recipe.method == "imitate":
        trainer = _distillation_trainer()(
            model=model,
            args=TrainingArguments(**arguments),
            train_dataset=[{"row": row} for row in learned],
            eval_dataset=[{"row": row} for row in checked],
            data_collator=collate,
        )
        trainer.distribution_weight = recipe.distribution_weight
    else:
        traces = [[trace for path in paths for trace in read_traces(path)] for paths in (recipe.train, recipe.valid)]
        trainer = teacher_trainers.make_trainer(
            recipe.method, model, recipe.teacher, chat, arguments, *traces,
            beta=recipe.beta, row_tokens=recipe.row_tokens, answer_tokens=recipe.answer_tokens,
        )  # fmt: skip
    trainer.add_callback(EarlyStoppingCallback(recipe.patience))
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    job.notify(f"packed rows: {len(learned)} training, {len(checked)} validation; {trained:,} trained parameters")
    result = training.run_trainer(trainer, job, chat.template_sha256)
    _save_adapter(job, base.name, model, chat, result, caution)
    return result


def describe_too_little(recipe: LoraRecipe, traces: int, rows: int) -> str:
    """That so few traces or steps teach nothing; "" for more."""
    steps = ceil(ceil(rows / (recipe.batch_size * recipe.accumulate)) * recipe.epochs)
    if traces >= FEW_TRACES and steps >= FEW_STEPS:
        return ""
    return (
        f"{steps} steps on {traces} traces in {rows} rows teach nothing, whatever is measured: this only tries the "
        f"commands out; collect {FEW_TRACES} traces or more, and train {FEW_STEPS} steps or more"
    )


def merge(adapter: Path, base: Path, out: Path) -> None:
    """Write base and adapter as one model in bfloat16, with tokenizer, chat template and notes.

    Raises BadInput, and BadSettings for an adapter that failed its proof.
    """
    require_modules("torch", "peft")
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    _require_adapter(adapter)
    notes = require_proved(adapter)
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty; choose another --out")
    try:
        with quiet_loading():
            plain = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float32, local_files_only=True)
            merged = PeftModel.from_pretrained(plain, str(adapter)).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        _reject_adapter(adapter, base, error)
    with quiet_loading():
        merged.to(torch.bfloat16).save_pretrained(str(out))
    AutoTokenizer.from_pretrained(str(base), local_files_only=True).save_pretrained(str(out))
    if notes:
        save_notes(out, notes)


def _read_rows(paths: Sequence[Path], recipe: LoraRecipe, chat: ChatTokenizer, notify: Notify) -> list[PackedRow]:
    traces = [trace for path in paths for trace in read_traces(path)]
    rows = [encode(trace, chat) for trace in traces]
    fitting = [row for row in rows if len(row.ids) <= recipe.row_tokens]
    files = ", ".join(map(str, paths))
    if not traces:
        raise BadInput(f"{files}: no trace; collect from three users or sessions or more, so that no part is empty")
    if not fitting:
        raise BadInput(f"{files}: none of {len(rows)} traces has at most {recipe.row_tokens} tokens; collect more")
    if len(fitting) < len(rows):
        notify(f"{len(rows) - len(fitting)} of {len(rows)} traces exceed {recipe.row_tokens} tokens and are left out")
    return pack(fitting, recipe.row_tokens, recipe.seed)


def _make_student(base: Path, recipe: LoraRecipe) -> "PeftModel":
    """The base model with a new adapter on every linear layer; only the adapter is trained, in float32."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model

    plain = _load_base(base, recipe)
    plain.config.use_cache = False  # no token is read twice
    if recipe.start:
        _require_adapter(recipe.start)
        _check_rank(recipe.start, recipe)
        try:
            return PeftModel.from_pretrained(plain, str(recipe.start), is_trainable=True)
        except (RuntimeError, ValueError) as error:
            _reject_adapter(recipe.start, base, error)
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha or 2 * recipe.rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        use_dora=recipe.dora,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(plain, config)
    if not isinstance(model, PeftModel):
        raise BadInput(f"{base} does not support adapters; use a model with linear layers")
    if torch.cuda.is_available():
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model


def _check_rank(start: Path, recipe: LoraRecipe) -> None:
    """Raise BadInput if the recipe asks for another rank or alpha than those of the adapter that it continues."""
    config = read_json(start / "adapter_config.json", dict[str, object], "use the --out of a finished run")
    for name, key in (("rank", "r"), ("alpha", "lora_alpha")):
        value = getattr(recipe, name)
        if name in recipe.model_fields_set and value is not None and value != config.get(key):
            raise BadInput(
                f"{name} {value} is asked for, and the adapter in {start} has {name} {config.get(key)}, which stays; "
                f"leave out {name}, or train without start"
            )


def _require_adapter(folder: Path) -> None:
    if not (folder / "adapter_config.json").is_file():
        raise BadInput(f"there is no adapter in {folder}; use the --out of a finished `localmem distill train`")


def _reject_adapter(adapter: Path, base: Path, error: Exception) -> NoReturn:
    raise BadInput(f"{adapter} does not fit the base model {base}: {' '.join(str(error).split())[:200]}") from error


def _load_base(base: Path, recipe: LoraRecipe) -> "PreTrainedModel":
    """In float32, in bfloat16 where that is computed, or in 4 bits with the other layers in float32.

    The base is not trained, so it loses nothing in the narrow format that it is published in; the adapter on it stays
    in float32 (peft's default).
    """
    import torch
    from peft import prepare_model_for_kbit_training
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    options: dict[str, object] = {"dtype": torch.bfloat16 if training.in_bfloat16(recipe) else torch.float32}
    if recipe.four_bit:  # NormalFloat with doubly quantised constants (Dettmers et al., 2023, section 3)
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=options["dtype"],
        )
        options = {"dtype": torch.float32, "quantization_config": quantization}
    try:
        with quiet_loading():
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(base), local_files_only=True, **options)
    except (OSError, ValueError) as error:
        training.reject_base(base, "a chat model", error)
    if recipe.four_bit:
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return model


def _distillation_trainer() -> "type[Trainer]":
    """A Trainer whose loss can include the teacher's distribution; defined here because transformers loads slowly."""
    import torch
    from transformers import Trainer

    class DistillationTrainer(Trainer):
        distribution_weight = 0.0

        def compute_loss(
            self,
            model: "torch.nn.Module",
            inputs: "dict[str, torch.Tensor]",
            return_outputs: bool = False,
            num_items_in_batch: "torch.Tensor | int | None" = None,
        ) -> "torch.Tensor | tuple[torch.Tensor, object]":
            at, ids, probabilities = (inputs.pop(f"soft_{name}") for name in ("at", "ids", "probabilities"))
            targets = torch.nn.functional.pad(inputs.pop("labels"), (0, 1), value=IGNORED)[:, 1:]
            # Logits are computed only where some row has a target: a vocabulary is wide, and most tokens of a prompt
            # are not learned.
            positions = (targets != IGNORED).any(0).nonzero()[:, 0]
            outputs = model(**inputs, logits_to_keep=positions)
            loss = token_loss(outputs.logits, targets[:, positions], num_items_in_batch)
            if num_items_in_batch is not None:
                loss = loss * self.accelerator.num_processes  # gradients are averaged over the processes
            if self.distribution_weight and len(at):
                places = torch.stack([at[:, 0], torch.searchsorted(positions, at[:, 1].contiguous())], 1)
                loss = loss + self.distribution_weight * divergence(outputs.logits, places, ids, probabilities)
            return (loss, outputs) if return_outputs else loss

    return DistillationTrainer


def token_loss(
    logits: "torch.Tensor", targets: "torch.Tensor", count: "torch.Tensor | int | None" = None
) -> "torch.Tensor":
    """The mean negative log-probability of the target tokens; `count` is their number in all batches of a step.

    `logits` (rows, positions, vocabulary); `targets` (rows, positions).
    """
    import torch

    total = torch.nn.functional.cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / (count if count is not None else (targets != IGNORED).sum())


def divergence(
    logits: "torch.Tensor", at: "torch.Tensor", ids: "torch.Tensor", probabilities: "torch.Tensor"
) -> "torch.Tensor":
    """The mean Kullback-Leibler divergence of the student's choices from the teacher's, over the options alone.

    `logits` (rows, positions, vocabulary); `at` (n, 2); `ids` and `probabilities` (n, options), padded with -1 and 0.
    """
    import torch

    options = logits[at[:, 0], at[:, 1]].gather(-1, ids.clamp(min=0)).float()
    student = options.masked_fill(ids < 0, -torch.inf).log_softmax(-1)
    terms = probabilities * (probabilities.clamp(min=1e-12).log() - student)
    return torch.where(probabilities > 0, terms, 0.0).sum(-1).mean()


def _save_adapter(
    job: TrainingJob[LoraRecipe],
    base: str,
    model: "PeftModel",
    chat: ChatTokenizer,
    result: TrainingResult,
    caution: str,
) -> None:
    """Save the adapter in bfloat16 (half the size, and the servers' format) with card, curves, and serving notes.

    The tokenizer stays with the base model: no server reads it from an adapter's folder.
    """
    import torch

    recipe = job.recipe
    traces = [trace for path in recipe.train for trace in read_traces(path)]
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.to(torch.bfloat16)
    teachers = ", ".join(sorted({trace.metadata.teacher for trace in traces}))
    prompts = {trace.metadata.prompt: trace.metadata.prompt_sha256 for trace in traces if trace.metadata.prompt_sha256}
    notes = AdapterNotes(base=base, prompts=prompts, template_sha256=chat.template_sha256)
    rank = next(iter(model.peft_config.values())).r
    card = Card(
        title=f"Student for {', '.join(sorted({path.stem for path in recipe.train}))}",
        what=f"A LoRA adapter of rank {rank} on {base}, trained on outputs of {teachers}.",
        base=base,
        data=[*recipe.train, *recipe.valid],
        settings={"start": recipe.start.name if recipe.start else None},
        more=[
            *([f"**Caution:** {caution}.\n"] if caution else []),
            "## Served with\n",
            f"The base model {notes.base}, under the setting `llm.adapters`. Loading it warns if these have changed:\n",
            *(f"- prompt `{name}`, sha256 `{digest[:16]}`" for name, digest in sorted(notes.prompts.items())),
            f"- chat template, sha256 `{notes.template_sha256[:16]}`",
        ],
    )
    save_run(job, model, None, card, result, {"traces": len(traces), "caution": caution, **notes.model_dump()})
    if is_first_process():
        save_notes(job.out, notes)
