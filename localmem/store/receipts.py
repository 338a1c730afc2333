"""Receipts of erasures: what was removed and rebuilt, signed, so that a copy proves it later. Erases nothing itself.

The key (Ed25519) is in the home, in `receipts.key`; an encrypted store keeps it under the store's key. Who has the
receipt and the public key in it verifies with `localmem store verify` or any Ed25519 program: the signature is over the
document without `signature`, as JSON with sorted keys and no spaces. It proves that the holder of the home wrote this
receipt, not that they hold no other copy of the data.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from localmem.errors import BadInput, StoreError
from localmem.files import write_atomic
from localmem.store.encryption import Keys

FILE = "receipts.key"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed.

    `rows` counts deleted rows by table, index files and keys. `checked` pieces of the erased texts were searched for in
    the bytes of the store's files and of all others in the home; `remaining` counts the pieces and index files that are
    still there (None on PostgreSQL, whose files cannot be read), `files` names the others that hold some. `reread` are
    sessions, by system, whose memory depended on the erased and was deleted too: they wait to be remembered again.
    `sources` are turns that still exist and that an erased unit came from: a rebuild may create the unit again. `time`
    is when it was done, `key` the public key, `signature` over all else; without a home there is none.
    """

    what: str
    rows: Mapping[str, int]
    checked: int
    remaining: int | None
    reread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    time: str = ""
    key: str = ""
    signature: str = ""


def sign(receipt: Receipt, home: Path, keys: Keys | None) -> Receipt:
    """The receipt with the time, the home's public key and its signature. Raises StoreError for an unusable key."""
    private = _signing_key(home / FILE, keys)
    key = b64encode(private.public_key().public_bytes_raw()).decode()
    dated = replace(receipt, time=datetime.now(UTC).isoformat(timespec="seconds"), key=key)
    return replace(dated, signature=b64encode(private.sign(_signed_bytes(asdict(dated)))).decode())


def verify(document: Mapping[str, object], home: Path) -> bool:
    """Whether the signature is that of the document, and whether the key is this home's: True for both.

    Raises BadInput where the signature does not fit.
    """
    try:
        public = b64decode(str(document["key"]))
        Ed25519PublicKey.from_public_bytes(public).verify(
            b64decode(str(document["signature"])), _signed_bytes(document)
        )
    except (KeyError, ValueError, InvalidSignature) as error:
        raise BadInput("the receipt was changed, or was not signed by the key in it; do not rely on it") from error
    published = home / f"{FILE}.pub"
    return published.exists() and published.read_text().strip() == document["key"]


def _signed_bytes(document: Mapping[str, object]) -> bytes:
    values = {name: value for name, value in document.items() if name not in ("signature", "object")}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _signing_key(path: Path, keys: Keys | None) -> Ed25519PrivateKey:
    password = keys.derive("receipts") if keys else None
    if path.exists():
        try:
            private = load_pem_private_key(path.read_bytes(), password)
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(
                f"{path} cannot be used ({error}); move it away, and the next receipt makes a new one"
            ) from error
        if isinstance(private, Ed25519PrivateKey):
            return private
        raise StoreError(f"{path} is not an Ed25519 key; move it away to get a new one")
    private = Ed25519PrivateKey.generate()
    cipher = BestAvailableEncryption(password) if password else NoEncryption()
    write_atomic(path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, cipher), mode=0o600)
    write_atomic(path.with_name(f"{FILE}.pub"), b64encode(private.public_key().public_bytes_raw()).decode() + "\n")
    return private
