"""Files that only the holder of a key can read, in the format of age (age-encryption.org), by pyrage. Knows no store.

A recipient is a public key, `age1…`; its identity is in the file that age-keygen wrote. Nothing here falls back to
plain text: what is to be decrypted and is not encrypted is an error.
"""

from pathlib import Path
from typing import Any

from localmem.errors import BadInput, requires
from localmem.files import read_text, reading


def encrypt(content: bytes, recipient: str) -> bytes:
    """The content for one recipient. Raises BadInput for what is no public key."""
    pyrage = _library()
    try:
        key = pyrage.x25519.Recipient.from_str(recipient)
    except pyrage.RecipientError as error:
        raise BadInput(f"{recipient!r} is no public key of age; give one that begins with age1") from error
    return bytes(pyrage.encrypt(content, [key]))


def decrypt(file: Path, identity: Path) -> bytes:
    """The content of a file. Raises BadInput where no key of `identity` opens it."""
    pyrage = _library()
    lines = read_text(identity, "give the file that age-keygen wrote").split()
    with reading(file):
        content = file.read_bytes()
    try:
        keys = [pyrage.x25519.Identity.from_str(line) for line in lines if line.startswith("AGE-SECRET-KEY-")]
        return bytes(pyrage.decrypt(content, keys))
    except (pyrage.IdentityError, pyrage.DecryptError) as error:
        raise BadInput(f"no key in {identity} opens {file} ({error}); give its recipient's identity") from error


def _library() -> Any:  # noqa: ANN401  # it ships no types
    with requires("age files need the Python package {}", "encryption"):
        import pyrage
    return pyrage
