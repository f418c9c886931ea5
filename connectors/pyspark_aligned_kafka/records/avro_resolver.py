"""How a writer's Avro schema resolves to the reader's, by the section "Schema Resolution" of Avro's specification.

What it makes is code for the compiled walk of ``avro_cells``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from pyspark_aligned_kafka.records.avro_cells import NO_BYTES, SKIPPED, Read
from pyspark_aligned_kafka.records.avro_names import TOO_DEEP, NamedTypes, fields_of
from pyspark_aligned_kafka.records.avro_schema import (
    MOMENTS,
    NAMED,
    UNITS,
    AvroType,
    aliases_of,
    encoded,
    number_of,
)
from watermark_source.errors import SchemaError, shortened

_PROMOTED: Final = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
                    "string": ("bytes",), "bytes": ("string",)}  # fmt: skip
_UNREAD: Final = {"boolean": (Read.FIXED, SKIPPED, 1), "float": (Read.FIXED, SKIPPED, 4),
                  "double": (Read.FIXED, SKIPPED, 8), "int": (Read.LONG, SKIPPED), "long": (Read.LONG, SKIPPED),
                  "enum": (Read.LONG, SKIPPED), "bytes": (Read.BYTES, SKIPPED, 0),
                  "string": (Read.BYTES, SKIPPED, 0)}  # fmt: skip
_MOST_CODE = 1 << 20
_WORD = (1 << 64) - 1


class UnresolvableError(Exception):
    """A type of the writer that the reader does not take; its text is the reason."""


class Resolver:
    """Resolves writers' schemas to one reader's: their code is appended to ``code``, their constants to ``constants``.

    ``children`` are the nodes of columns within each node. ``reasons`` are why a value is refused, by number.
    ``to_member``: the reader's schema has one member, and values are read no further than it.
    """

    def __init__(self, reader: AvroType, children: Sequence[Sequence[int]], *, to_member: bool = False) -> None:
        self.code: list[int] = [Read.FIXED, SKIPPED, 0]
        """It begins with the node ``NO_BYTES``."""
        self.constants = bytearray(1)
        self._places: dict[bytes, int] = {}
        self.reasons: list[str] = []
        self._reader = reader
        self._children = children
        self._to_member = to_member
        self._resolved: dict[tuple[NamedTypes, str, int], int] = {}
        """The nodes of the writer's types by their names and columns."""
        self._begin = 0

    def entry(self, writer: AvroType) -> int:
        """Return the node of values of a writer's schema.

        Raises:
            SchemaError: it is no Avro schema.
            UnresolvableError: no value of it fits the reader's schema.
        """
        self._begin = len(self.code)
        self._resolved.clear()
        try:
            return self._resolve(writer, self._reader, 0, "")
        except RecursionError:
            raise SchemaError(TOO_DEEP) from None

    def _add(self, *numbers: int) -> int:
        if len(self.code) - self._begin > _MOST_CODE:
            raise SchemaError("an Avro schema that is too large")
        self.code.extend(numbers)
        return len(self.code) - len(numbers)

    def _constant(self, content: bytes) -> tuple[int, int]:
        # The same for each schema of a subject.
        if content not in self._places:
            self._places[content] = len(self.constants)
            self.constants += content
        begin = self._places[content]
        return begin, begin + len(content)

    def _resolve(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        # Once for each named type: unions of records that name each other have exponentially many paths.
        known = writer.named, writer.name, node
        if not writer.name or known not in self._resolved:
            if writer.kind == "union":
                place = self._from_union(writer, reader, node, where)
            elif reader.kind == "union":
                place = self._to_union(writer, reader, node, where)
            else:
                place = self._plain(writer, reader, node, where)
            self._resolved[known] = place
        return self._resolved[known]

    def _skip(self, writer: AvroType) -> int:
        """Return the node of a type whose values are skipped.

        Each such node consumes a byte, or refers to a node that does: otherwise a schema of forty records that each
        contain the previous one twice would take a walk of 2 to the power of 40 steps over no bytes at all.
        """
        if writer.takes_no_bytes():
            return NO_BYTES
        known = writer.named, writer.name, SKIPPED
        if not writer.name or known not in self._resolved:
            head, inner = _unread(writer)
            place = self._add(*head, *[NO_BYTES] * len(inner))
            # Before what is within it is resolved, which may be the type itself.
            self._resolved[known] = place
            for index, each in enumerate(inner, place + len(head)):
                self.code[index] = self._skip(each)
            return place
        return self._resolved[known]

    def _from_union(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        if any(branch.kind == "union" for branch in writer.branches):
            raise SchemaError("an Avro schema with a union within a union")
        places = [self._or_refused(branch, reader, node, where) for branch in writer.branches]
        return self._add(Read.UNION, len(places), *places)

    def _or_refused(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        """Resolve a type that not every value has: only those that have it are refused."""
        try:
            return self._resolve(writer, reader, node, where)
        except UnresolvableError as problem:
            self.reasons.append(str(problem))
            return self._add(Read.REFUSED, len(self.reasons) - 1)

    def _to_union(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        if writer.kind == "null":
            if any(branch.kind == "null" for branch in reader.branches):
                return self._add(Read.NULL, node)
            raise _mismatch(writer, reader, where)
        values = reader.values
        place = _matching(writer, values)
        if place is None:
            raise _mismatch(writer, reader, where)
        if len(values) == 1:
            return self._resolve(writer, values[0], node, where)
        if (number := number_of(values)) is not None:
            return self._number(writer, number, node, is_float=values[place].kind == "float")
        nodes = self._children[node]
        inner = self._resolve(writer, values[place], nodes[place], where)
        others = [each for number, each in enumerate(nodes) if number != place]
        return self._add(Read.MEMBER, node, inner, len(others), *others)

    def _plain(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:  # noqa: PLR0911 - one a kind
        kind = reader.kind
        if kind in NAMED and (writer.kind != kind or not reader.has_name_of(writer)):
            raise _mismatch(writer, reader, where)
        if kind == "fixed" and writer.size != reader.size:
            raise UnresolvableError(f"{_at(where)}the writer's {writer} has {writer.size} bytes, not {reader.size}")
        if kind == "record":
            return self._record(writer, reader, node, where)
        if kind == "enum":
            return self._enum(writer, reader, node)
        if reader.decimal is not None:
            return self._decimal(writer, reader, node, where)
        if writer.kind != kind and kind not in _PROMOTED.get(writer.kind, ()):
            raise _mismatch(writer, reader, where)
        if kind == "fixed":
            return self._add(Read.FIXED, node, reader.size)
        if kind == "array":
            (inner,) = self._children[node]
            return self._add(Read.LIST, node, self._or_refused(writer.element, reader.element, inner, where))
        if kind == "map":
            keys, inner = self._children[node]
            return self._add(Read.MAP, node, keys, self._or_refused(writer.element, reader.element, inner, where))
        if kind in ("bytes", "string"):
            return self._add(Read.BYTES, node, int(kind == "string"))
        if kind == "boolean":
            return self._add(Read.BOOLEAN, node)
        _check_times(writer, reader, where)
        if reader.moment in MOMENTS:
            # A moment has the unit of its writer.
            return self._add(Read.SCALED, node, *UNITS[(writer.moment or reader.moment).rpartition("-")[2]])
        return self._number(writer, kind, node, is_float=kind == "float")

    def _number(self, writer: AvroType, kind: str, node: int, *, is_float: bool) -> int:
        if kind in ("int", "long"):
            return self._add(Read.INT if writer.kind == "int" else Read.LONG, node)
        if writer.kind in ("int", "long"):
            return self._add(Read.NUMBER, node, int(is_float), int(writer.kind == "int"))
        return self._add(Read.FLOAT if writer.kind == "float" else Read.DOUBLE, node)

    def _decimal(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        precision, scale = reader.decimal or (1, 0)
        if writer.kind != reader.kind or writer.decimal is None or writer.decimal[1] != scale:
            raise UnresolvableError(
                f"{_at(where)}the writer's {shortened(json.dumps(writer.json))} cannot be read as a decimal "
                f"of {reader.kind} with scale {scale}"
            )
        size = writer.size if writer.kind == "fixed" else -1
        return self._add(Read.DECIMAL, node, size, *_words(10**precision), *_words(-(10**precision)))

    def _enum(self, writer: AvroType, reader: AvroType, node: int) -> int:
        known, default = set(reader.symbols), reader.json.get("default")
        places: list[int] = []
        for symbol in writer.symbols:
            text = symbol if symbol in known else default
            begin, end = self._constant(text.encode()) if isinstance(text, str) and text in known else (0, -1)
            places += [begin, end - begin]
        return self._add(Read.ENUM, node, len(writer.symbols), *places)

    def _record(self, writer: AvroType, reader: AvroType, node: int, where: str) -> int:
        fields, values, children = fields_of(reader.json), fields_of(writer.json), self._children[node]
        written = {str(field["name"]) for field in values}
        sources: dict[str, int] = {}
        """Which field of the reader each of the writer's is."""
        for place, field in enumerate(fields):
            found = next(
                (name for name in (field["name"], *aliases_of(field)) if name in written and name not in sources), None
            )
            if found is not None:
                sources[str(found)] = place
        steps: list[int] = []
        prefix = f"{where}." if where else ""
        if self._to_member:
            places = [place for place, field in enumerate(values) if field["name"] in sources]
            values = values[: max(places, default=-1) + 1]
        for field in values:
            name, kind = str(field["name"]), writer.inner(field["type"])
            if name in sources:
                place = sources[name]
                inner = reader.inner(fields[place]["type"])
                steps.append(self._resolve(kind, inner, children[place], f"{prefix}{fields[place]['name']}"))
            elif not kind.takes_no_bytes():
                steps.append(self._skip(kind))
        for place, field in enumerate(fields):
            if place in sources.values():
                continue
            if "default" not in field:
                raise UnresolvableError(f"the writer has no field {prefix}{field['name']}, and it has no default")
            inner = reader.inner(field["type"])
            at = self._constant(encoded(inner, field["default"]))
            value = self._resolve(inner, inner, children[place], f"{prefix}{field['name']}")
            steps.append(self._add(Read.DEFAULT, *at, value))
        if self._to_member and node == 0:
            steps.append(self._add(Read.REST))
        return self._add(Read.RECORD, node, len(steps), *steps)


def _unread(writer: AvroType) -> tuple[tuple[int, ...], Sequence[AvroType]]:
    """Return the node of a type that is skipped, but the last of its arguments, and the types whose nodes these are."""
    kind = writer.kind
    if kind == "union":
        return (Read.UNION, len(writer.branches)), writer.branches
    if kind == "record":
        inner = [writer.inner(field["type"]) for field in fields_of(writer.json)]
        inner = [each for each in inner if not each.takes_no_bytes()]
        return (Read.RECORD, SKIPPED, len(inner)), inner
    if kind in ("array", "map"):
        return (Read.LIST, SKIPPED) if kind == "array" else (Read.MAP, SKIPPED, SKIPPED), [writer.element]
    return (Read.FIXED, SKIPPED, writer.size) if kind == "fixed" else _UNREAD[kind], ()


def _matching(writer: AvroType, values: Sequence[AvroType]) -> int | None:
    """Return the branch of a reader's union for a type: the same one, or else the first that it resolves to."""
    rules: list[Callable[[AvroType], bool]] = [
        lambda value: value.kind == writer.kind and value.name == writer.name,
        lambda value: value.kind == writer.kind and (value.kind not in NAMED or value.has_name_of(writer)),
        lambda value: value.kind in _PROMOTED.get(writer.kind, ()),
    ]
    return next((place for rule in rules for place, value in enumerate(values) if rule(value)), None)


def _check_times(writer: AvroType, reader: AvroType, where: str) -> None:
    """Refuse a day, a time or a moment of another unit or kind: by Avro's rules its number would be another time."""
    written, read = writer.time, reader.time
    is_scaled = reader.moment in MOMENTS and written.rpartition("-")[0] == read.rpartition("-")[0]
    if written and read and written != read and not is_scaled:
        raise UnresolvableError(f"{_at(where)}the writer's {written} cannot be read as {read}")


def _mismatch(writer: AvroType, reader: AvroType, where: str) -> UnresolvableError:
    return UnresolvableError(f"{_at(where)}the writer's {writer} does not resolve to {reader}")


def _at(where: str) -> str:
    return f"{where}: " if where else ""


def _words(number: int) -> tuple[int, int]:
    """Return a number of 128 bits as two signed words."""
    high, low = number >> 64, number & _WORD
    return high, low - (1 << 64) if low >> 63 else low
