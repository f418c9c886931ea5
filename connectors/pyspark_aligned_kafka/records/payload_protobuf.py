"""Values of Protobuf as a struct column: one compiled pass over the bytes of each message, by the nodes of its type.

Each node has a cell wherever the message around it begins, a default one, and what is read replaces it. So the last
occurrence of a field counts, occurrences of a message are merged, and another field of a ``oneof`` restores defaults.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DayTimeIntervalType, DecimalType, DoubleType, FloatType

from pyspark_aligned_kafka.records.json_strings import is_utf8
from pyspark_aligned_kafka.records.payload import Decoded, IdHeader, PayloadChoice, Values
from pyspark_aligned_kafka.records.payload_cells import (
    BASE,
    CELL_ARRAYS,
    CLOSURE,
    CLOSURE_END,
    FIRST,
    MORE,
    NODE_KIND,
    Cell,
    CellColumns,
    CellKind,
    arrow_type,
    forget_value,
    keep_counts,
    no_cells,
    node_value,
    put,
    put_null,
    replaced,
)
from pyspark_aligned_kafka.records.payload_schema import DEEPEST
from pyspark_aligned_kafka.records.protobuf_framing import MessageOpener
from pyspark_aligned_kafka.records.protobuf_messages import (
    BOOL,
    BYTES,
    ENUM,
    GROUP,
    INT32,
    MESSAGE,
    SFIXED32,
    SINT32,
    SINT64,
    STRING,
    UINT32,
    Field,
    Message,
    MessageSchema,
    Shape,
    enum_names,
    with_default,
)
from pyspark_aligned_kafka.records.protobuf_wire import GROUPS, field_end, fixed_at, sized_at, tag_at
from watermark_source.machine_code.native import (
    Word,
    address_of,
    byte_at,
    compiled,
    inlined,
    long_at,
    put_byte,
    put_long,
    unfolded,
    varint_at,
    word_at,
)

_VARINT, _EIGHT, _SIZED, _OPEN_GROUP, _END_GROUP, _FOUR = range(6)
"""Wire types."""
_WIRES = (0, 1, 5, 0, 0, 0, 1, 5, 0, 2, 3, 2, 2, 0, 0, 5, 1, 0, 0)
"""The wire type of each type of a descriptor; none has the number 0."""
_MOMENT = 19
"""A type beyond those of descriptors: a message of seconds and nanoseconds that is one value."""
# Columns of the table of nodes.
_FIRST_FIELD, _FIELDS, _END, _CONTAINER, _STATE, _CELL, _PARENT, _REQUIRED, _HAS_REQUIRED = range(9)
"""The fields of a message, by number; the node behind those in this one; the list or map around it; the cell that it
begins with; the message around it; whether it must occur, and whether one within it must."""
_NODE_COLUMNS = 9
# Columns of the table of fields.
_NUMBER, _NODE, _TYPE, _WIRE, _SHAPE, _IMPLICIT, _FIRST_NAME, _NAMES_END, _FIRST_OTHER, _OTHERS_END = range(10)
"""``_FIRST_NAME``: the numbers of a closed enum. ``_FIRST_OTHER``: the nodes of the other fields of its ``oneof``."""
_FIELD_COLUMNS = 10
_A_SINGLE, _A_LIST, _A_MAP = map(int, Shape)
# Of the messages that are open: where one ends, its node, the number of a group, and the field behind the last one.
_STOP, _OF_NODE, _OF_GROUP, _HINT = range(4)
_FRAME = 4
_DONE, _NO_ROOM, _CORRUPT, _OTHER_TYPE, _NO_TEXT, _NO_VALUE, _BEYOND, _MISSING = range(8)
_REASONS = {
    _CORRUPT: "it is corrupt or truncated", _OTHER_TYPE: "field {} has another type in it",
    _NO_TEXT: "the string of field {} is not UTF-8", _NO_VALUE: "the enum of field {} has no such value",
    _BEYOND: "the timestamp or duration of field {} has more microseconds than 64 bits",
    _MISSING: "a required field is missing",
}  # fmt: skip
_CODES = 8
_STRUCT, _LIST, _MAP = int(CellKind.STRUCT), int(CellKind.LIST), int(CellKind.MAP)
_A_NULL, _A_VALUE = int(Cell.NULL), int(Cell.VALUE)
_LOW_32, _SIGN_32 = 0xFFFF_FFFF, 0x8000_0000
_MOST_SECONDS = 9_000_000_000_000
_SECONDS, _NANOS = 1, 2


@inlined
def _signed_32(bits: Word) -> Word:
    return ((bits & _LOW_32) ^ _SIGN_32) - _SIGN_32


@inlined
def _of_node(plan: Word, node: Word, column: Word) -> Word:
    return long_at(plan, node * _NODE_COLUMNS + column)


@inlined
def _of_field(fields: Word, field: Word, column: Word) -> Word:
    return long_at(fields, field * _FIELD_COLUMNS + column)


@inlined
def _slot(to: Word, node: Word) -> Word:
    """Return the place of the last cell of a node."""
    return node_value(to, node, BASE) + long_at(to.counts, node) - 1


@inlined
def _begin(to: Word, plan: Word, node: Word) -> Word:
    """Append the default cells of a node and of all within it, lists empty; return whether there was room."""
    for place in range(node_value(to, node, CLOSURE), node_value(to, node, CLOSURE_END)):
        inner = long_at(to.closures, place)
        kind = node_value(to, inner, NODE_KIND)
        cell = _of_node(plan, inner, _CELL)
        if kind in (_LIST, _MAP):
            cell = long_at(to.counts, node_value(to, inner, FIRST))
        if not put(to, inner, _of_node(plan, inner, _STATE), cell, np.int64(0)):
            return False
    return True


@inlined
def _clear(to: Word, plan: Word, node: Word) -> None:
    """Restore the default cells of a node and of all within it, and remove the elements of its lists."""
    around = _of_node(plan, node, _CONTAINER)
    for inner in range(node, _of_node(plan, node, _END)):
        container = _of_node(plan, inner, _CONTAINER)
        if container == around:
            slot = _slot(to, inner)
            cell = _of_node(plan, inner, _CELL)
            if node_value(to, inner, NODE_KIND) in (_LIST, _MAP):
                # Where the list before this one ends.
                cell = long_at(to.values, slot - 1) if long_at(to.counts, inner) > 1 else np.int64(0)
            put_byte(to.states, slot, _of_node(plan, inner, _STATE))
            put_long(to.values, slot, cell)
            put_long(to.sizes, slot, np.int64(0))
        else:
            lists = long_at(to.counts, container)
            last = node_value(to, container, BASE) + lists - 1
            put_long(to.counts, inner, long_at(to.values, last) if lists > 0 else np.int64(0))


@inlined
def _is_complete(to: Word, plan: Word, node: Word) -> Word:
    """Return whether no required field is missing in a message that has been read, list elements aside."""
    for place in range(node_value(to, node, CLOSURE), node_value(to, node, CLOSURE_END)):
        inner = long_at(to.closures, place)
        if _of_node(plan, inner, _REQUIRED) != 0 and byte_at(to.states, _slot(to, inner)) == _A_NULL:
            parent = _of_node(plan, inner, _PARENT)
            if byte_at(to.states, _slot(to, parent)) != _A_NULL:
                return False
    return True


@inlined
def _row_with(table: Word, columns: Word, low: Word, high: Word, number: Word) -> Word:
    """Return which of the rows before ``high`` begins with a number, by which they are in order; -1 if none does."""
    while low < high:
        middle = (low + high) >> 1
        found = long_at(table, middle * columns)
        if found == number:
            return middle
        if found < number:
            low = middle + 1
        else:
            high = middle
    return np.int64(-1)


@inlined
def _field_of(fields: Word, first: Word, count: Word, hint: Word, number: Word) -> Word:
    """Return the field with a number, -1 if there is none; they are often in the order of their numbers."""
    if hint < count and _of_field(fields, first + hint, _NUMBER) == number:
        return first + hint
    return _row_with(fields, np.int64(_FIELD_COLUMNS), first, first + count, number)


@inlined
def _is_named(names: Word, low: Word, high: Word, number: Word) -> Word:
    """Return whether a number is among those of a closed enum; those of any other have none listed."""
    return low == high or _row_with(names, np.int64(1), low, high, number) >= 0


@inlined
def _number(kind: Word, bits: Word) -> Word:
    """Return the number of a type that bits encode."""
    if kind in (INT32, ENUM, SFIXED32):
        return _signed_32(bits)
    if kind == UINT32:
        return bits & _LOW_32
    if kind == SINT32:
        return unfolded(bits & _LOW_32)
    if kind == SINT64:
        return unfolded(bits)
    return np.int64(bits != 0) if kind == BOOL else bits


@inlined
def _number_at(  # noqa: PLR0917 - compiled
    kind: Word, wire: Word, fields: Word, field: Word, names: Word, data: Word, at: Word, stop: Word
) -> tuple[Word, Word, Word]:
    """Return how a number of a field ended, the number, and where it ended."""
    bits, end = np.int64(0), np.int64(-1)
    if wire == _VARINT:
        bits, end = varint_at(data, at, stop)
    elif wire == _FOUR:
        bits, end = fixed_at(data, at, stop, np.int64(4))
    elif stop - at >= 8:
        bits, end = np.int64(word_at(data, at)), at + 8
    if end < 0:
        return np.int64(_CORRUPT), bits, end
    number = _number(kind, bits)
    named = _is_named(names, _of_field(fields, field, _FIRST_NAME), _of_field(fields, field, _NAMES_END), number)
    return np.int64(_DONE) if named else np.int64(_NO_VALUE), number, end


@inlined
def _moment_at(  # noqa: PLR0917 - compiled
    data: Word, at: Word, stop: Word, micros: Word, nanos: Word, groups: Word
) -> tuple[Word, Word, Word]:
    """Return how a Timestamp or Duration ended, its microseconds and its nanoseconds of a second.

    It is merged with the one that was read before.
    """
    seconds = (micros - _micros_of(nanos)) // 1_000_000
    while at < stop:
        tag, at = tag_at(data, at, stop)
        if at < 0:
            return np.int64(_CORRUPT), micros, nanos
        number = tag >> 3
        if number in (_SECONDS, _NANOS):
            if tag & 7 != _VARINT:
                return np.int64(_OTHER_TYPE), micros, nanos
            bits, at = varint_at(data, at, stop)
            if number == _SECONDS:
                seconds = bits
            else:
                nanos = _signed_32(bits)
        else:
            at = field_end(data, at, stop, tag, groups)
        if at < 0:
            return np.int64(_CORRUPT), micros, nanos
    if not -_MOST_SECONDS <= seconds <= _MOST_SECONDS:
        return np.int64(_BEYOND), micros, nanos
    return np.int64(_DONE), seconds * 1_000_000 + _micros_of(nanos), nanos


@inlined
def _micros_of(nanos: Word) -> Word:
    """Return the microseconds of nanoseconds, rounded to zero as Java does."""
    return -(-nanos // 1_000) if nanos < 0 else nanos // 1_000


@inlined
def _walk(  # noqa: PLR0911, PLR0912, PLR0915, PLR0917 - one pass over the message is the point of it
    to: Word, plan: Word, fields: Word, names: Word, others: Word, stack: Word, groups: Word,
    data: Word, at: Word, stop: Word,
) -> tuple[Word, Word]:  # fmt: skip
    """Append the cells of one message; return how it ended, and the number of the field where it did."""
    number = np.int64(0)
    if not _begin(to, plan, np.int64(0)):
        return np.int64(_NO_ROOM), number
    depth, node, group, hint, end = np.int64(0), np.int64(0), np.int64(0), np.int64(0), stop
    first, count = _of_node(plan, node, _FIRST_FIELD), _of_node(plan, node, _FIELDS)
    while True:
        closes = at >= end
        if closes and group > 0:
            return np.int64(_CORRUPT), number
        tag = np.int64(0)
        if not closes:
            tag, at = tag_at(data, at, end)
            if at < 0:
                return np.int64(_CORRUPT), number
            number = tag >> 3
            if tag & 7 == _END_GROUP:
                if group != number:
                    return np.int64(_CORRUPT), number
                closes = True
        if closes:
            if _of_node(plan, node, _HAS_REQUIRED) != 0:
                # A single message may occur again, and have the field then: it is checked with what it is in.
                whole = depth == 0 or (_of_node(plan, node, _CONTAINER) >= 0 and _of_node(plan, node, _PARENT) < 0)
                is_map = node_value(to, node, NODE_KIND) == _MAP
                if whole and not is_map and not _is_complete(to, plan, node):
                    return np.int64(_MISSING), number
            if depth == 0:
                return np.int64(_DONE), number
            depth -= 1
            top = depth * _FRAME
            end, node = long_at(stack, top + _STOP), long_at(stack, top + _OF_NODE)
            group, hint = long_at(stack, top + _OF_GROUP), long_at(stack, top + _HINT)
            first, count = _of_node(plan, node, _FIRST_FIELD), _of_node(plan, node, _FIELDS)
            continue
        wire = tag & 7
        field = _field_of(fields, first, count, hint, number)
        if field < 0:
            at = field_end(data, at, end, tag, groups)
            if at < 0:
                return np.int64(_CORRUPT), number
            continue
        kind, expected = _of_field(fields, field, _TYPE), _of_field(fields, field, _WIRE)
        shape = _of_field(fields, field, _SHAPE)
        packed = wire == _SIZED and shape == _A_LIST and expected in (_VARINT, _EIGHT, _FOUR)
        if wire != expected and not packed:
            return np.int64(_OTHER_TYPE), number
        # The next one, or the same once more.
        hint = field - first + (shape == _A_SINGLE)
        for place in range(_of_field(fields, field, _FIRST_OTHER), _of_field(fields, field, _OTHERS_END)):
            _clear(to, plan, long_at(others, place))
        target = _of_field(fields, field, _NODE)
        has_node = target < _of_node(plan, np.int64(0), _END)
        if not has_node and kind not in (MESSAGE, GROUP):
            at = field_end(data, at, end, tag, groups)
            if at < 0:
                return np.int64(_CORRUPT), number
            continue
        slot = _slot(to, target) if has_node else np.int64(0)
        value_end = end
        if wire == _SIZED:
            at, value_end = sized_at(data, at, end)
            if at < 0:
                return np.int64(_CORRUPT), number
        if kind in (MESSAGE, GROUP):
            inner = target
            if not has_node:
                pass
            elif shape == _A_SINGLE:
                put_byte(to.states, slot, np.int64(_A_VALUE))
            else:
                if shape == _A_LIST:
                    inner = node_value(to, target, FIRST)
                    has_room = _begin(to, plan, inner)
                else:
                    key, value = node_value(to, target, FIRST), node_value(to, target, MORE)
                    has_room = _begin(to, plan, key) and _begin(to, plan, value)
                if not has_room:
                    return np.int64(_NO_ROOM), number
                put_long(to.values, slot, long_at(to.counts, node_value(to, target, FIRST)))
            top = depth * _FRAME
            put_long(stack, top + _STOP, end)
            put_long(stack, top + _OF_NODE, node)
            put_long(stack, top + _OF_GROUP, group)
            put_long(stack, top + _HINT, hint)
            depth += 1
            node, hint = inner, np.int64(0)
            group, end = (number, end) if wire == _OPEN_GROUP else (np.int64(0), value_end)
            first, count = _of_node(plan, node, _FIRST_FIELD), _of_node(plan, node, _FIELDS)
            continue
        element = node_value(to, target, FIRST)
        if packed:
            while at < value_end:
                result, cell, at = _number_at(kind, expected, fields, field, names, data, at, value_end)
                if result != _DONE:
                    return result, number
                if not put(to, element, np.int64(_A_VALUE), cell, np.int64(0)):
                    return np.int64(_NO_ROOM), number
            put_long(to.values, slot, long_at(to.counts, element))
            continue
        size = np.int64(0)
        if wire == _SIZED:
            cell, size = at, value_end - at
            at = value_end
            if kind == STRING:
                if not is_utf8(data, cell, value_end):
                    return np.int64(_NO_TEXT), number
            elif kind == _MOMENT:
                micros, nanos = np.int64(0), np.int64(0)
                if shape == _A_SINGLE and byte_at(to.states, slot) != _A_NULL:
                    micros, nanos = long_at(to.values, slot), long_at(to.sizes, slot)
                result, cell, size = _moment_at(data, cell, value_end, micros, nanos, groups)
                if result != _DONE:
                    return result, number
        else:
            result, cell, at = _number_at(kind, wire, fields, field, names, data, at, end)
            if result != _DONE:
                return result, number
        if shape == _A_LIST:
            if not put(to, element, np.int64(_A_VALUE), cell, size):
                return np.int64(_NO_ROOM), number
            put_long(to.values, slot, long_at(to.counts, element))
            continue
        absent = _of_field(fields, field, _IMPLICIT) != 0 and (size if kind in (STRING, BYTES) else cell) == 0
        put_byte(to.states, slot, np.int64(_A_NULL) if absent else np.int64(_A_VALUE))
        put_long(to.values, slot, cell)
        put_long(to.sizes, slot, size)


@compiled(
    f"int64(uint8[::1], int64[::1], int64[::1], {CELL_ARRAYS}, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1],"
    " int64[::1], int64[::1], int64[::1])"
)
def _walk_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, lengths: Word,
    nodes: Word, closures: Word, before: Word, counts: Word, states: Word, cells: Word, sizes: Word,
    plan: Word, fields: Word, names: Word, others: Word, stack: Word, groups: Word, wrong: Word,
) -> Word:  # fmt: skip
    """Append the cells of all messages; return whether there was room for the cells.

    For one of negative length, and for a bad one, there is a null; ``wrong`` is what is wrong with that, and 0 with
    any other.
    """
    to = no_cells(nodes, closures, before, counts, states, cells, sizes)
    plans, field_table, numbers, siblings = address_of(plan), address_of(fields), address_of(names), address_of(others)
    data, frames, open_groups = address_of(array), address_of(stack), address_of(groups)
    for row in range(starts.shape[0]):
        wrong[row] = 0
        if lengths[row] >= 0:
            keep_counts(to)
            start = starts[row]
            result, number = _walk(
                to, plans, field_table, numbers, siblings, frames, open_groups, data, start, start + lengths[row]
            )
            if result == _NO_ROOM:
                return np.int64(0)
            if result == _DONE:
                continue
            forget_value(to)
            wrong[row] = number * _CODES + result
        if not put_null(to, np.int64(0)):
            return np.int64(0)
    return np.int64(1)


class _Plan:
    """The tables of a message: its nodes as ``CellColumns`` numbers them, and its fields."""

    def __init__(self, message: Message, columns: CellColumns) -> None:
        self._columns, self._children = columns, columns.children
        self._nodes = [[0] * _NODE_COLUMNS for _ in columns.kinds]
        self._fields: list[list[int]] = []
        self._names: list[int] = []
        self._others: list[int] = []
        self._node(0, None, -1, -1)
        self._message(message, 0, 0, -1)
        for node in reversed(range(len(columns.kinds))):
            row, inner = self._nodes[node], columns.children[node]
            row[_END] = self._nodes[inner[-1]][_END] if inner else node + 1
            row[_HAS_REQUIRED] = any(self._nodes[each][_REQUIRED] or self._nodes[each][_HAS_REQUIRED] for each in inner)
        self.nodes = np.array(self._nodes, np.int64)
        self.fields = np.array(self._fields, np.int64).reshape(-1, _FIELD_COLUMNS)
        self.names, self.others = np.array([*self._names, 0], np.int64), np.array([*self._others, 0], np.int64)

    def _node(self, node: int, field: Field | None, parent: int, container: int) -> None:
        row = self._nodes[node]
        row[_PARENT], row[_CONTAINER] = parent, container
        if field is None or field.shape is not Shape.SINGLE:
            row[_STATE] = _A_VALUE
        else:
            row[_REQUIRED] = field.required
            if isinstance(field.default, int):
                row[_STATE], row[_CELL] = _A_VALUE, field.default

    def _message(self, message: Message, holder: int, parent: int, container: int) -> None:
        """Add the fields of a message to the node ``holder``: its own, or that of the map with such entries."""
        children = self._children[holder] if holder < len(self._children) else []
        members = message.members if children else ()
        inner = dict(zip([each.number for each in members], children, strict=True))
        fields = sorted(message.fields, key=lambda each: each.number)
        rows = [[0] * _FIELD_COLUMNS for _ in fields]
        self._nodes[holder][_FIRST_FIELD], self._nodes[holder][_FIELDS] = len(self._fields), len(rows)
        self._fields += rows
        for field, row in zip(fields, rows, strict=True):
            row[_NUMBER], row[_SHAPE] = field.number, field.shape
            row[_TYPE] = field.type if field.moment is None else _MOMENT
            row[_WIRE], row[_IMPLICIT] = _WIRES[field.type], field.implicit
            row[_FIRST_NAME] = len(self._names)
            self._names += field.enum.numbers if field.enum is not None and field.enum.closed else ()
            row[_NAMES_END] = len(self._names)
            row[_FIRST_OTHER] = len(self._others)
            if field.oneof is not None:
                same = [each.number for each in fields if each.oneof == field.oneof and each is not field]
                self._others += [inner[each] for each in same if each in inner]
            row[_OTHERS_END] = len(self._others)
            if field.number in inner:
                row[_NODE] = inner[field.number]
                self._field(field, row[_NODE], parent, container)
            else:
                # It has no column: it is read, and nothing of it is kept.
                row[_NODE] = len(self._nodes)
                self._nodes.append([0] * _NODE_COLUMNS)
                if field.message is not None and field.moment is None:
                    self._message(field.message, row[_NODE], -1, -1)

    def _field(self, field: Field, node: int, parent: int, container: int) -> None:
        self._node(node, field, parent, container)
        holder, inner = node, node
        if field.shape is Shape.LIST:
            (holder,) = self._children[node]
            inner, container = holder, node
            self._node(holder, None, -1, node)
        elif field.shape is Shape.MAP:
            inner, container = -1, node
        if field.message is not None and field.moment is None:
            self._message(field.message, holder, inner, container)
        elif field.enum is not None:
            self._columns.deliver(holder, partial(enum_names, field.enum), (CellKind.INTEGER, pa.int32()))
        elif isinstance(field.default, bytes):
            self._columns.deliver(holder, partial(with_default, field.default))
        if field.shape is Shape.MAP:
            for each in self._children[node]:
                # An entry without a key or a value has the default one.
                self._nodes[each][_STATE] = _A_VALUE


class ProtobufReader:
    """``PayloadReader`` of Protobuf."""

    def __init__(self, choice: PayloadChoice) -> None:
        self._choice = choice
        schema = choice.definition
        assert isinstance(schema, MessageSchema)
        self._message = message = schema.message
        self._opener = MessageOpener(schema, choice.field) if choice.framed else None
        # The bits of floating-point numbers are cells as they are.
        self._columns = CellColumns(
            choice.schema,
            {FloatType: CellKind.INTEGER, DoubleType: CellKind.INTEGER, DecimalType: CellKind.WIDE,
             DayTimeIntervalType: CellKind.TIMESTAMP},
            unique_keys=True,
        )  # fmt: skip
        self._type = arrow_type(choice.schema)
        self._plan = _Plan(message, self._columns)
        self._stack, self._groups = np.zeros((DEEPEST + 2) * _FRAME, np.int64), np.zeros(GROUPS, np.int64)

    def read(self, values: Values, header: IdHeader = None) -> Decoded:
        """Decode messages; see ``PayloadReader``.

        Raises:
            RefusedError, UnreachableError, ResponseTimeoutError, UnsupportedFormatError: the registry has no schema.
        """
        rows, made, plan, data = len(values.starts), self._columns, self._plan, values.data
        begins, sizes, wrong = values.starts, values.lengths, np.empty(rows, np.int64)
        refused, reasons = np.zeros(rows, np.int64), [""]
        if self._opener is not None:
            begins, sizes, refused = self._opener.open(data, begins, sizes, header)
            reasons = self._opener.reasons
        made.fill(
            rows,
            lambda: _walk_all(
                data, begins, sizes, *made.arrays, plan.nodes, plan.fields, plan.names, plan.others,
                self._stack, self._groups, wrong,
            ),
        )  # fmt: skip
        column = made.column(data, self._type)
        places = np.flatnonzero(wrong + refused)
        if not len(places):
            return Decoded(column, 0)
        first = int(places[0])
        number, code = divmod(int(wrong[first]), _CODES)
        if code:
            why = f"it cannot be read as {self._message.name}: {_REASONS[code].format(number)}"
        else:
            why = reasons[refused[first] - 1]
        self._choice.report(values, first, why, len(places))
        # A struct of nulls for each of them, as from_protobuf has them.
        nulls = pa.array([dict.fromkeys(self._type.names)], self._type)
        return Decoded(replaced(column, places, nulls), len(places), why)
