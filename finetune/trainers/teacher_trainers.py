"""TRL's trainers for an adapter: beside the teacher's distribution, on the student's own answers, and by preference.

`distribution` compares every token of the recorded answers with the teacher's whole distribution, and `on-policy` does
so on answers that the student samples meanwhile (Agarwal et al., 2024); both need the teacher's weights here, with the
student's vocabulary. `preferences` raises chosen answers above rejected ones (Rafailov et al., 2023). TRL is imported
when one of them is used.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from finetune.traces.trace import Trace
from finetune.trainers import training
from localmem.errors import BadInput, requires
from localmem.llm.base import alternate
from localmem.llm.device import quiet_loading
from localmem.llm.tokenizer import ChatTokenizer

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, Trainer

Method = Literal["imitate", "distribution", "on-policy", "preferences"]
Row = dict[str, Any]

_NEED = "this method of training needs {}"


def make_trainer(
    method: Method,
    model: "PeftModel",
    teacher: str,
    chat: ChatTokenizer,
    arguments: Mapping[str, Any],
    learned: Sequence[Trace],
    checked: Sequence[Trace],
    *,
    beta: float | None,
    row_tokens: int,
    answer_tokens: int,
) -> "Trainer":
    """TRL's trainer of the method. `beta` is its own constant, None for TRL's default.

    Raises BadInput for a teacher of another vocabulary, or traces without rejected answers; MissingExtra without TRL.
    """
    from datasets import Dataset

    sets = {
        f"{name}_dataset": Dataset.from_list([_row(trace, method) for trace in traces])
        for name, traces in (("train", learned), ("eval", checked))
    }
    own = {name: value for name, value in arguments.items() if name not in ("label_names", "prediction_loss_only")}
    own |= {} if beta is None else {"beta": beta}
    tokenizer = chat.tokenizer
    if method == "preferences":
        with requires(_NEED, "train"):
            from trl import DPOConfig, DPOTrainer
        return DPOTrainer(model, args=DPOConfig(**own, max_length=row_tokens), processing_class=tokenizer, **sets)
    weights = _load_teacher(teacher, model)
    if method == "distribution":
        with requires(_NEED, "train"), training.without_warnings():
            from trl.experimental.gkd import GKDConfig, GKDTrainer
        config = GKDConfig(**own, lmbda=0.0, max_length=row_tokens, max_new_tokens=answer_tokens)
        return GKDTrainer(model, weights, args=config, processing_class=tokenizer, **sets)
    with requires(_NEED, "train"):
        from trl import DistillationConfig, DistillationTrainer
    config = DistillationConfig(**own, max_completion_length=answer_tokens)
    return DistillationTrainer(model, weights, args=config, processing_class=tokenizer, **sets)


def _row(trace: Trace, method: Method) -> Row:
    """A trace as TRL reads it; its chat template is the tokenizer's."""
    prompt = [{"role": message.role, "content": message.content} for message in alternate(trace.context)]
    answer = [{"role": "assistant", "content": trace.answer}]
    if method == "distribution":
        return {"messages": [*prompt, *answer]}
    if method == "on-policy":
        return {"prompt": prompt}
    if trace.metadata.rejected is None:
        raise BadInput(f"trace {trace.id} has no rejected answer; collect with --set samples=4, and run sift again")
    rejected = [{"role": "assistant", "content": trace.metadata.rejected}]
    return {"prompt": prompt, "chosen": answer, "rejected": rejected}


def _load_teacher(name: str, student: "PeftModel") -> "PreTrainedModel":
    from transformers import AutoModelForCausalLM

    if not name:
        raise BadInput("this method compares with the teacher's distribution; name its weights with --set teacher=NAME")
    folder = training.base_folder(name)
    try:
        with quiet_loading():
            teacher: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        training.reject_base(folder, "a chat model", error)
    sizes = [model.config.get_text_config().vocab_size for model in (student, teacher)]
    if sizes[0] != sizes[1]:
        raise BadInput(
            f"the student's vocabulary has {sizes[0]} tokens and that of the teacher {name} {sizes[1]}; use a teacher "
            "of the student's family, or --set method=imitate"
        )
    return teacher
