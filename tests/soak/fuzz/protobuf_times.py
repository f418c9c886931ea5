"""Any bytes as a Protobuf value, or as descriptors: the moment that Protobuf's library reads, or a declared error.

An input: a byte that chooses a way to a field, one for how many bytes are descriptors, those, then the value.
"""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from tests.protobuf_examples import OPTIONAL, REPEATED, Message, add_field, class_of, file_of, micros_of
from tests.soak.fuzz.bits import Bits
from tests.soak.fuzz.memory import guarded
from watermark_source.errors import SchemaError
from watermark_source.extractors.protobuf import protobuf_event_time
from watermark_source.extractors.protobuf_path import index_in_file, path_by_names
from watermark_source.extractors.protobuf_walk import walk
from watermark_source.extractors.schema_registry import UNITS, Framed, _read_ids
from watermark_source.machine_code.iso_8601 import NO_MOMENT
from watermark_source.machine_code.native import PREFIX

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
_KNOWN = [path_by_names(_CLASS.DESCRIPTOR, tuple(path.split("."))) for path in _PATHS]
_INDEX = index_in_file(_CLASS.DESCRIPTOR)
_TEXT = "f12"


def check(data: bytes) -> str:
    """Walk the value; return the moment."""
    bits = Bits(data)
    number = bits.byte() % len(_PATHS)
    descriptors = bits.some()
    if descriptors:
        return _with(descriptors)
    body = bits.rest()
    path, unit = _KNOWN[number], UNITS["millis"]
    array, edges = guarded(body), np.array([0, len(body)], np.int32)
    plain, _ = walk(Framed(array, edges, np.zeros(1, np.int64)), 0, (), path, unit)
    ids = np.zeros(1, np.int64)
    _read_ids(array, edges, np.ones(1, np.bool_), ids)
    framed, other = walk(Framed(array, edges, ids), PREFIX, _INDEX, path, unit)
    try:
        read = _CLASS.FromString(body)
    except DecodeError:
        return repr((int(plain[0]), int(framed[0]), other))
    _compare(read, _PATHS[number], int(plain[0]))
    return repr((int(plain[0]), int(framed[0]), other))


def _compare(read: Message, path: str, micros: int) -> None:
    # Of texts, the examples know a few.
    if not path.endswith(_TEXT):
        expected = micros_of(read, path)
        assert micros == (NO_MOMENT if expected is None else expected), (path, micros, expected)


def _with(descriptors: bytes) -> str:
    try:
        protobuf_event_time("at", message="a.A", descriptors=descriptors)
    except SchemaError as error:
        return f"SchemaError: {type(error).__name__}"
    return "a field"
