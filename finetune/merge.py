"""A student without its adapter: base and adapter become one folder that any server loads. Knows peft."""

from pathlib import Path

from finetune.trainers.training import need, quietly
from localmem.errors import BadInput
from localmem.llm.adapter_notes import read_notes, save_notes


def merge(adapter: Path, base: Path, out: Path) -> None:
    """Writes the merged model, in bfloat16, with tokenizer, chat template and notes. Raises BadInput."""
    need("torch", "peft")
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if not (adapter / "adapter_config.json").is_file():
        raise BadInput(f"there is no adapter in {adapter}; give the --out of `localmem distill train`")
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty; give another --out")
    try:
        with quietly():
            plain = AutoModelForCausalLM.from_pretrained(str(base), dtype=torch.float32, local_files_only=True)
            merged = PeftModel.from_pretrained(plain, str(adapter)).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{adapter} does not suit {base}: {reason}") from error
    with quietly():
        merged.to(torch.bfloat16).save_pretrained(str(out))
    AutoTokenizer.from_pretrained(str(base), local_files_only=True).save_pretrained(str(out))
    if notes := read_notes(adapter):
        save_notes(out, notes)
