"""All errors that localmem raises for its users. Each message is one line: the problem, the value, the cure."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_PASSWORDS = (re.compile(r"(//[^:/@]*:).*(?=@)"), re.compile(r"(password=)[^&']*"))  # in URLs


def without_passwords(text: str) -> str:
    """A text for people, without the passwords of the URL in it."""
    for password in _PASSWORDS:
        text = password.sub(r"\1***", text)
    return text


class LocalmemError(Exception):
    """Base of all errors; `str(error)` is the line for the user."""


class BadInput(LocalmemError):
    """An unusable file, argument or request."""


class OutOfOrder(BadInput):
    """A turn older than the one before it."""


class PromptTooLong(BadInput):
    """A prompt that does not fit the model's context even when trimmed."""


class BadSettings(LocalmemError):
    """An unknown key, a wrong value, or a missing part of a system."""


class ModelMissing(LocalmemError):
    """Weights that are not on this machine."""


class ModelDamaged(LocalmemError):
    """Weights whose checksum differs from the manifest."""


class PullFailed(LocalmemError):
    """A failed download of weights."""


class BadVectors(LocalmemError):
    """Vectors that cannot be searched: not a number, not of unit length, or of another dimension."""


class MissingExtra(LocalmemError):
    """An optional Python package that is not installed."""


@contextmanager
def requires(need: str, extra: str) -> Iterator[None]:
    """Turns an ImportError of the block into MissingExtra: `need`, with {} for the package, and the command for it."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{need.format(repr(error.name))}; run `pip install 'localmem[{extra}]'`") from error


class NetworkRefused(LocalmemError):
    """Something tried to reach another machine that the settings do not name."""


class LLMError(LocalmemError):
    """The backbone refused or failed."""


class LLMUnavailable(LLMError):
    """No server answers; retrying later may help."""


class BadReply(LLMError):
    """An answer that does not match the requested format, because it was cut or violates the schema."""


class PartialFailure(LocalmemError):
    """Some items of a batch failed. `results` holds, in order, a result or the error of each item."""

    def __init__(self, results: Sequence[object]) -> None:
        failed = [item for item in results if isinstance(item, Exception)]
        super().__init__(f"{len(failed)} of {len(results)} items failed; the first: {failed[0] if failed else 'none'}")
        self.results = list(results)


class StoreError(LocalmemError):
    """The data directory is not usable."""


class NewerStore(StoreError):
    """The store was written by a newer localmem."""


class EncoderMismatch(StoreError):
    """The store holds vectors made by another encoder."""


class Conflict(StoreError):
    """Another process changed the bank between reading and writing it."""


class NotFound(StoreError):
    """No such user, session or unit."""
