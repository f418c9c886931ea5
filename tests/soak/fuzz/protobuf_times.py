"""Any bytes as a Protobuf value of which a member is read: what it is, or null.

An input: a byte that chooses a path to a field, one for a header with an id, that, then the value.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from tests.protobuf_examples import OPTIONAL, REPEATED, add_field, class_of, file_of
from tests.protobuf_pairs import reader_of
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.column_outcomes import decoded

_KINDS = ("int64", "uint64", "sint64", "int32", "sint32", "uint32", "fixed64", "sfixed64", "fixed32", "sfixed32",
          "google.protobuf.Timestamp", "string")  # fmt: skip


def _file() -> object:
    file = file_of()
    for name in ("Inner", "Outer"):
        message = file.message_type.add(name=name)
        message.oneof_decl.add(name="choice")
        for number, kind in enumerate(_KINDS, 1):
            add_field(message, f"f{number}", number, kind, label=OPTIONAL)
        add_field(message, "one", 20, "fixed32", oneof=True)
        add_field(message, "other", 21, "int64", oneof=True)
        add_field(message, "many", 22, "sint64", label=REPEATED)
        add_field(message, "inner", 23, "shop.Inner", oneof=True)
    return file


_CLASS = class_of(_file(), "shop.Outer")
_NAMES = ("one", "other", *(f"f{number}" for number in range(1, len(_KINDS) + 1)))
_PATHS = (*_NAMES, *(f"inner.{name}" for name in _NAMES), "inner.inner.other")
_READERS = [
    reader_of(_CLASS.DESCRIPTOR, paths=(tuple(path.split(".")),), framed=framed)
    for path in _PATHS
    for framed in (False, True)
]


def check(data: bytes) -> str:
    """Read the member of the value, alone and behind an id; return it. What the library refuses has none."""
    bits = Bits(data)
    number = bits.byte() % len(_PATHS)
    header, body = bits.some(), bits.rest()
    plain, framed = (decoded(each, body, header) for each in _READERS[2 * number : 2 * number + 2])
    try:
        _CLASS.FromString(body)
    except DecodeError as error:
        return f"{plain} {framed} {error}"
    return f"{plain} {framed}"
