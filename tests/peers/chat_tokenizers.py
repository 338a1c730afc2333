"""Whether a text can make a control token, by the tokenizers of other models: `scripts/check_tokenizers`.

For each tokenizer every control token of its own, alone and within words, and random compounds of pieces of them become
the content of a message. Encoded by its template, as a server does it from what localmem sends, and in process, the
prompt must hold as many control tokens as with a plain word.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from localmem.llm.base import alternate
from localmem.llm.tokenizer import ChatTokenizer, control_tokens
from localmem.types import Message

COMPOUNDS = 2000
_PIECES = ("<", ">", "|", "｜", "[", "]", "/", "_", "\n", " ", "a", "system", "user", "\u200b")


def contents(tokens: Sequence[str], seed: int = 1) -> Iterator[str]:
    """Texts that hold control tokens, or what could be put together to one."""
    chance = random.Random(seed)
    for token in tokens:
        yield from (token, f"I like {token} very much", f"{token}{token}", f"<{token}>")
    halves = [part for token in tokens for part in (token[: len(token) // 2], token[len(token) // 2 :])]
    for _ in range(COMPOUNDS):
        yield "".join(chance.choice((*_PIECES, chance.choice(tokens), *chance.sample(halves, 2))) for _ in range(8))


def find_leaks(folder: Path) -> tuple[int, int, list[str]]:
    """Control tokens of the tokenizer in a folder, texts that were tried, and those that made one."""
    chat = ChatTokenizer(folder)
    tokens = sorted(control_tokens(chat.tokenizer))
    ids = set(chat.tokenizer.convert_tokens_to_ids(tokens))

    def by_server(content: str) -> list[int]:
        messages = [{"role": each.role, "content": each.content} for each in alternate([Message("user", content)])]
        encoded: list[int] = chat.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        return encoded

    def in_process(content: str) -> list[int]:
        return chat.encode([Message("user", content)], {}, prefill=content)

    plain = [sum(token in ids for token in encode("a")) for encode in (by_server, in_process)]
    tried, leaks = 0, list[str]()
    for content in contents(tokens):
        tried += 1
        found = [sum(token in ids for token in encode(content)) for encode in (by_server, in_process)]
        if found != plain:
            leaks.append(content)
    return len(tokens), tried, leaks


def find_unbroken(tokens: Sequence[str]) -> tuple[int, int, list[str]]:
    """The same for a tokenizer that is not one of transformers: texts that still hold a control token, as letters."""
    tried = list(contents(tokens))
    sent = {content: alternate([Message("user", content)])[0].content for content in tried}
    return len(tokens), len(tried), [content for content in tried if any(token in sent[content] for token in tokens)]


def mistral_tokens(data: Path) -> Iterator[tuple[str, list[str]]]:
    """The control tokens of Mistral's tokenizers, by file."""
    import sentencepiece

    for file in sorted(data.glob("*.model*")):
        processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
        pieces = range(processor.get_piece_size())
        yield file.name, [processor.id_to_piece(number) for number in pieces if processor.is_control(number)]
    for file in sorted(data.glob("tekken*.json")):
        special = json.loads(file.read_text(encoding="utf-8")).get("special_tokens") or []
        yield file.name, [token["token_str"] for token in special]


def main(cache: Path) -> int:
    """Print a line for each tokenizer; 1 where a text made a control token."""
    starter = Path("models/weights/smollm2-135m-instruct")
    folders = [*(file.parent for file in sorted(cache.glob("*/tokenizer.json"))), starter]
    results = [(folder.name, find_leaks(folder)) for folder in folders]
    families = mistral_tokens(cache / "mistral_common" / "data")
    results += [(f"mistral {name}", find_unbroken(tokens)) for name, tokens in families if tokens]
    for name, (count, tried, leaks) in results:
        examples = "".join(f"\n    {leak!r}" for leak in leaks[:5])
        sys.stdout.write(f"{name}: {count} control tokens, {tried} texts, {len(leaks)} made one{examples}\n")
    return int(any(leaks for _, (_, _, leaks) in results))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
