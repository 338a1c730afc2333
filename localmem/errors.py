"""Every error a user of localmem can meet. Each message is one line: what, the value seen, the cure.

LocalmemError
├── BadInput            a file, an argument or a request that cannot be used
│   ├── OutOfOrder      a turn older than the one before it
│   └── PromptTooLong   a prompt that no trimming makes fit the model
├── BadSettings         an unknown key, a wrong value, a part that a system needs and has not got
├── ModelMissing        weights that are not on this machine
├── ModelDamaged        weights whose checksum differs from the manifest's
├── PullFailed          weights that could not be fetched
├── BadVectors          what an encoder gave cannot be searched (no numbers, no unit length)
├── MissingExtra        a Python package that an optional part needs
├── LLMError            the backbone refused, failed or is gone
│   ├── LLMUnavailable  no server answers; trying again later may help
│   └── BadReply        an answer outside the format that was asked for
├── PartialFailure      some items of a batch failed; carries the results of the others
└── StoreError          the data directory cannot be used as it is
    ├── NewerStore      written by a newer localmem
    ├── EncoderMismatch vectors made by another encoder
    ├── Conflict        someone else changed the bank in between
    └── NotFound        no such user, session or unit
"""

from collections.abc import Sequence


class LocalmemError(Exception):
    """Base of all errors below; `str(error)` is the one line a user reads."""


class BadInput(LocalmemError):
    """A file, an argument or a request that cannot be used."""


class OutOfOrder(BadInput):
    """A turn older than the one before it."""


class PromptTooLong(BadInput):
    """A prompt that no trimming makes fit the model's context."""


class BadSettings(LocalmemError):
    """An unknown key, a wrong value, or a part that a system needs and has not got."""


class ModelMissing(LocalmemError):
    """Weights that are not on this machine."""


class ModelDamaged(LocalmemError):
    """Weights whose checksum differs from the manifest's."""


class PullFailed(LocalmemError):
    """Weights that could not be fetched."""


class BadVectors(LocalmemError):
    """What an encoder gave cannot be searched: not a number, not of unit length, or of another dimension."""


class MissingExtra(LocalmemError):
    """A Python package that an optional part needs."""


class LLMError(LocalmemError):
    """The backbone refused, failed or is gone."""


class LLMUnavailable(LLMError):
    """No server answers; trying again later may help."""


class BadReply(LLMError):
    """An answer outside the format that was asked for (cut short, or not the schema)."""


class PartialFailure(LocalmemError):
    """Some items of a batch failed. `results` holds, in order, a result or the error of each item."""

    def __init__(self, results: Sequence[object]) -> None:
        failed = [item for item in results if isinstance(item, Exception)]
        super().__init__(f"{len(failed)} of {len(results)} items failed; the first: {failed[0] if failed else 'none'}")
        self.results = list(results)


class StoreError(LocalmemError):
    """The data directory cannot be used as it is."""


class NewerStore(StoreError):
    """The store was written by a newer localmem."""


class EncoderMismatch(StoreError):
    """The store holds vectors made by another encoder."""


class Conflict(StoreError):
    """Someone else changed the bank between reading and writing it."""


class NotFound(StoreError):
    """No such user, session or unit."""
