"""Members of JSON documents into the cells of columns: one compiled pass over the bytes, by the nodes of a schema.

A document is read here only where it is plain: JSON as RFC 8259 has it up to the end of its object, each member of the
schema at most once, and of its own type. Any other document is left to ``payload_exact``, which knows all that Spark
accepts beside that. The same pass finds where one member is: that of event time, which is not walked to again.
"""

from __future__ import annotations

import numpy as np

from pyspark_aligned_kafka.records.json_scan import (
    DEPTH,
    ESCAPED_TEXT,
    NO_DOCUMENT,
    NO_JSON,
    NO_MEMBER,
    NUMBER,
    OTHER,
    PLAIN_TEXT,
    after_space,
    is_digit,
    number_end,
    word_end,
)
from pyspark_aligned_kafka.records.json_strings import (
    HAS_ESCAPES,
    HAS_SURROGATES,
    same_text,
    text_end,
    unescaped,
)
from pyspark_aligned_kafka.records.payload_cells import (
    CELL_ARRAYS,
    FIRST,
    HIGHEST,
    LOWEST,
    MEMBER_COLUMNS,
    MEMBER_NODE,
    MORE,
    NAME,
    NAME_END,
    NODE_KIND,
    SEEN,
    SIX_BITS,
    Cell,
    CellKind,
    bits_of,
    forget_value,
    keep_counts,
    member_value,
    no_cells,
    node_value,
    put,
    put_null,
)
from watermark_source.machine_code.iso_8601 import NO_MOMENT, day_of, digits, iso_moment
from watermark_source.machine_code.native import (
    Word,
    address_of,
    byte_at,
    compiled,
    inlined,
    long_at,
    power_of_ten,
    put_long,
)

# Of what encloses the value that is read: what it is, its node, its number, and the member after the last one.
_WHAT, _NODE, _NUMBER, _HINT = range(4)
_FRAME = 4
_ARRAY, _OBJECT, _IN_STRUCT, _IN_LIST, _IN_MAP = range(5)
STACK = (DEPTH + 1) * _FRAME
_DONE, _UNUSUAL, _NO_ROOM = range(3)
_VALUE, _VALUE_OR_END, _NAME_NEXT, _NAME_OR_END, _COMMA_OR_END = range(5)
_QUOTE, _COMMA, _COLON, _MINUS, _DOT, _ZERO, _NINE = (ord(c) for c in '",:-.09')
_OPEN, _CLOSE, _OPEN_ARRAY, _CLOSE_ARRAY = (ord(c) for c in "{}[]")
_T, _F, _N, _E = (ord(c) for c in "tfne")
_MOST_DIGITS = 18
_EXACT_DIGITS, _EXACT_POWER = 2**53, 22
"""Up to these a decimal fraction is one exact division or multiplication of doubles."""
_EXACT_FLOAT_DIGITS, _EXACT_FLOAT_POWER = 2**24, 10
_LARGEST_POWER, _LONGEST_NUMBER = 30, 60
"""Numbers beyond these are left to the exact reader: Arrow's parser accepts none that overflow."""
_MOST_SECONDS = 200_000_000_000
# The same for compiled code.
_STRUCT, _LIST, _MAP, _BOOLEAN, _INTEGER, _FLOAT, _DOUBLE, _DECIMAL, _STRING, _BASE64, _DATE, _TIMESTAMP = map(
    int, list(CellKind)[:12]
)
_A_NULL, _A_VALUE, _AN_ESCAPED, _A_TEXT = map(int, Cell)


@inlined
def _plain_number(data: Word, at: Word, end: Word) -> tuple[Word, Word, Word, Word]:
    """Return the digits of a JSON number as one number without sign, its power of ten, and how many digits count.

    With more than eighteen that count the first two are of no use; of nineteen the first is negative if it overflows.
    The last is whether it is written as an integer, without a fraction or an exponent.
    """
    value, power, count = np.int64(0), np.int64(0), np.int64(0)
    fraction, exponent = False, False
    at += byte_at(data, at) == _MINUS
    while at < end:
        c = byte_at(data, at)
        at += 1
        if c == _DOT:
            fraction = True
            continue
        if c | 0x20 == _E:
            exponent = True
            down = byte_at(data, at) == _MINUS
            at += not _ZERO <= byte_at(data, at) <= _NINE
            written = np.int64(0)
            while at < end:
                written = min(written * 10 + byte_at(data, at) - _ZERO, np.int64(100_000))
                at += 1
            power += -written if down else written
            break
        if count <= _MOST_DIGITS:
            value = value * 10 + c - _ZERO
        count += count > 0 or c != _ZERO
        power -= fraction
    return value, power, count, not (fraction or exponent)


@inlined
def _fraction(kind: Word, value: Word, power: Word) -> tuple[Word, Word]:
    """Return whether a number of few digits is exact by one division or multiplication, and the double that it is."""
    if kind == _FLOAT:
        if value > _EXACT_FLOAT_DIGITS or abs(power) > _EXACT_FLOAT_POWER:
            return False, 0.0
        if power < 0:
            return True, np.float64(np.float32(np.float32(value) / np.float32(power_of_ten(-power))))
        return True, np.float64(np.float32(np.float32(value) * np.float32(power_of_ten(power))))
    if value > _EXACT_DIGITS or abs(power) > _EXACT_POWER:
        return False, 0.0
    # A power of ten beyond 18 is no 64-bit number.
    low = min(abs(power), np.int64(18))
    scale = np.float64(power_of_ten(low)) * np.float64(power_of_ten(abs(power) - low))
    return True, np.float64(value) / scale if power < 0 else np.float64(value) * scale


@inlined
def _decimal(value: Word, power: Word, scale: Word, beyond: Word) -> tuple[Word, Word]:
    """Return whether a number fits a decimal, and its digits at that scale, rounded half up."""
    power += scale
    if power > _MOST_DIGITS or power < -_MOST_DIGITS:
        return value == 0, np.int64(0)
    if power >= 0:
        # Without overflow: what is too large is left to the exact reader.
        if value > (2**62) // power_of_ten(power):
            return False, value
        value *= power_of_ten(power)
    else:
        unit = power_of_ten(-power)
        value = value // unit + (value % unit >= unit - unit // 2)
    return value < beyond, value


@inlined
def _moment(data: Word, at: Word, stop: Word, in_utc: Word) -> Word:  # noqa: PLR0911 - one for each part
    """Return the microseconds of ``yyyy-mm-ddThh:mm:ss`` at most nine more digits, and ``Z`` or ``+hh:mm``.

    Spark reads these as ISO 8601 does. ``in_utc``: a text without a zone is in UTC.
    """
    if stop - at < 19 or byte_at(data, at + 10) not in (0x54, 0x20) or byte_at(data, at + 16) != _COLON:
        return NO_MOMENT
    if digits(data, at + 11, stop, 2) > 23 or digits(data, at + 17, stop, 2) > 59:
        return NO_MOMENT
    zone = at + 19
    if zone < stop and byte_at(data, zone) == _DOT:
        zone += 1
        while is_digit(data, zone, stop):
            zone += 1
        if not 1 <= zone - at - 20 <= 9:
            return NO_MOMENT
    if zone == stop:
        if not in_utc:
            return NO_MOMENT
    elif stop - zone == 1:
        if byte_at(data, zone) != 0x5A:
            return NO_MOMENT
    elif stop - zone != 6 or byte_at(data, zone + 3) != _COLON or digits(data, zone + 1, stop, 2) > 17:
        return NO_MOMENT
    return iso_moment(data, at, stop)


@inlined
def _day(data: Word, at: Word, stop: Word) -> Word:
    """Return the days of ``yyyy-mm-dd``."""
    if stop - at != 10 or byte_at(data, at + 4) != _MINUS or byte_at(data, at + 7) != _MINUS:
        return NO_MOMENT
    year, month, day = digits(data, at, stop, 4), digits(data, at + 5, stop, 2), digits(data, at + 8, stop, 2)
    return NO_MOMENT if year < 1 else day_of(year, month, day)


@inlined
def _is_base64(data: Word, at: Word, stop: Word) -> Word:
    """Return whether a text is Base64 with its padding, and without blanks."""
    if (stop - at) % 4:
        return False
    end = stop
    if stop > at and byte_at(data, stop - 1) == 0x3D:
        end -= 2 if byte_at(data, stop - 2) == 0x3D else 1
    for place in range(at, end):  # noqa: SIM110 - compiled
        if SIX_BITS[byte_at(data, place)] < 0:
            return False
    return True


@inlined
def _is_character_text(data: Word, at: Word, stop: Word) -> Word:
    """Return whether no escape of a text is half of a pair of surrogates: Java writes a question mark for those."""
    while at < stop:
        if byte_at(data, at) != 0x5C:
            at += 1
            continue
        character, at = unescaped(data, at, stop)
        if 0xD800 <= character <= 0xDFFF:
            return False
    return True


@inlined
def _text(to: Word, data: Word, at: Word, stop: Word, flags: Word, node: Word) -> Word:  # noqa: PLR0917 - compiled
    """Append the string between ``at`` and ``stop``."""
    kind = node_value(to, node, NODE_KIND)
    escaped = flags & HAS_ESCAPES
    cell, size, state = at, stop - at, np.int64(_A_VALUE)
    if kind == _STRING:
        if flags & HAS_SURROGATES or (escaped and not _is_character_text(data, at, stop)):
            return np.int64(_UNUSUAL)
        if escaped:
            state = np.int64(_AN_ESCAPED)
    elif escaped:
        return np.int64(_UNUSUAL)
    elif kind == _TIMESTAMP:
        cell = _moment(data, at, stop, node_value(to, node, LOWEST))
        if cell == NO_MOMENT:
            return np.int64(_UNUSUAL)
    elif kind == _DATE:
        cell = _day(data, at, stop)
        if cell == NO_MOMENT:
            return np.int64(_UNUSUAL)
    elif kind != _BASE64 or not _is_base64(data, at, stop):
        return np.int64(_UNUSUAL)
    done = put(to, node, state, cell, size)
    return np.int64(_DONE) if done else np.int64(_NO_ROOM)


@inlined
def _number(to: Word, data: Word, at: Word, end: Word, node: Word) -> Word:  # noqa: PLR0911, PLR0912 - compiled
    """Append the number between ``at`` and ``end``."""
    kind = node_value(to, node, NODE_KIND)
    value, power, count, is_integer = _plain_number(data, at, end)
    negative = byte_at(data, at) == _MINUS
    cell, size, state = at, end - at, np.int64(_A_VALUE)
    if kind in (_INTEGER, _TIMESTAMP):
        cell = -value if negative else value
        if not is_integer or count > _MOST_DIGITS + 1 or value < 0:
            return np.int64(_UNUSUAL)
        if kind == _INTEGER:
            if not node_value(to, node, LOWEST) <= cell <= node_value(to, node, HIGHEST):
                return np.int64(_UNUSUAL)
        elif abs(cell) > _MOST_SECONDS:
            return np.int64(_UNUSUAL)
        else:
            cell *= 1_000_000
    elif kind in (_DOUBLE, _FLOAT):
        if size > _LONGEST_NUMBER or abs(power) > _LARGEST_POWER:
            return np.int64(_UNUSUAL)
        is_exact, real = _fraction(kind, value, power)
        if count > _MOST_DIGITS or not is_exact:
            state = np.int64(_A_TEXT)
        else:
            # An integer in Java has no negative zero.
            cell = bits_of(-real if negative and (value > 0 or not is_integer) else real)
    elif kind == _DECIMAL:
        if count > _MOST_DIGITS:
            return np.int64(_UNUSUAL)
        fits, cell = _decimal(value, power, node_value(to, node, LOWEST), node_value(to, node, HIGHEST))
        if not fits:
            return np.int64(_UNUSUAL)
        if negative:
            cell = -cell
    elif kind != _STRING or not is_integer or (negative and count == 0):
        return np.int64(_UNUSUAL)
    done = put(to, node, state, cell, size)
    return np.int64(_DONE) if done else np.int64(_NO_ROOM)


@inlined
def _member(  # noqa: PLR0917 - compiled
    members: Word, names: Word, first: Word, count: Word, hint: Word, data: Word, at: Word, stop: Word, escaped: Word
) -> Word:
    """Return which member of a struct has this name, -1 if none has; they are often in the order of the schema."""
    place = hint
    for _ in range(count):
        if place >= count:
            place = np.int64(0)
        begin, end = member_value(members, first + place, NAME), member_value(members, first + place, NAME_END)
        if same_text(data, at, stop, escaped, names + begin, end - begin):
            return first + place
        place += 1
    return np.int64(-1)


@inlined
def _walk(  # noqa: PLR0911, PLR0912, PLR0915, PLR0917 - one pass over the document is the point of it
    to: Word, members: Word, names: Word, stack: Word, data: Word, start: Word, stop: Word, number: Word,
    wanted: Word, places: Word, row: Word, rows: Word,
) -> tuple[Word, Word]:  # fmt: skip
    """Append the cells of one document; return how it ended, and the number of structs there have been.

    Of the value of the node ``wanted`` its kind, its place and its size are put to ``places``, a line of rows each.
    """
    at = after_space(data, start, stop)
    depth = -1
    expected = _VALUE
    # The node of the value that comes, -1 where it is skipped.
    node = np.int64(0)
    if at >= stop or byte_at(data, at) != _OPEN:
        return np.int64(_UNUSUAL), number
    while True:
        if at >= stop:
            return np.int64(_UNUSUAL), number
        c = byte_at(data, at)
        if expected == _NAME_NEXT or (expected == _NAME_OR_END and c != _CLOSE):
            if c != _QUOTE:
                return np.int64(_UNUSUAL), number
            end, flags = text_end(data, at + 1, stop)
            if end < 0 or end - at > 40_000:
                return np.int64(_UNUSUAL), number
            top = depth * _FRAME
            what = long_at(stack, top + _WHAT)
            node = np.int64(-1)
            if what == _IN_STRUCT:
                parent = long_at(stack, top + _NODE)
                first = node_value(to, parent, FIRST)
                found = _member(
                    members, names, first, node_value(to, parent, MORE), long_at(stack, top + _HINT),
                    data, at + 1, end - 1, flags & HAS_ESCAPES,
                )  # fmt: skip
                if found >= 0:
                    if member_value(members, found, SEEN) == long_at(stack, top + _NUMBER):
                        return np.int64(_UNUSUAL), number
                    put_long(members, found * MEMBER_COLUMNS + SEEN, long_at(stack, top + _NUMBER))
                    put_long(stack, top + _HINT, found - first + 1)
                    node = member_value(members, found, MEMBER_NODE)
            elif what == _IN_MAP:
                parent = long_at(stack, top + _NODE)
                name_node = node_value(to, parent, FIRST)
                result = _text(to, data, at + 1, end - 1, flags, name_node)
                if result != _DONE:
                    return result, number
                node = node_value(to, parent, MORE)
            at = after_space(data, end, stop)
            if at >= stop or byte_at(data, at) != _COLON:
                return np.int64(_UNUSUAL), number
            at = after_space(data, at + 1, stop)
            expected = _VALUE
            continue
        if expected == _VALUE or (expected == _VALUE_OR_END and c != _CLOSE_ARRAY):
            result = np.int64(_DONE)
            if c in (_OPEN, _OPEN_ARRAY):
                if depth + 1 >= DEPTH - 1:
                    return np.int64(_UNUSUAL), number
                depth += 1
                top = depth * _FRAME
                put_long(stack, top + _WHAT, _OBJECT if c == _OPEN else _ARRAY)
                if node >= 0:
                    kind = node_value(to, node, NODE_KIND)
                    if kind == _STRUCT and c == _OPEN:
                        number += 1
                        put_long(stack, top + _WHAT, _IN_STRUCT)
                        put_long(stack, top + _NUMBER, number)
                        put_long(stack, top + _HINT, 0)
                        if not put(to, node, _A_VALUE, np.int64(0), np.int64(0)):
                            return np.int64(_NO_ROOM), number
                    elif kind == _MAP and c == _OPEN:
                        put_long(stack, top + _WHAT, _IN_MAP)
                    elif kind == _LIST and c == _OPEN_ARRAY:
                        put_long(stack, top + _WHAT, _IN_LIST)
                    else:
                        return np.int64(_UNUSUAL), number
                    put_long(stack, top + _NODE, node)
                    node = node_value(to, node, FIRST) if kind == _LIST else np.int64(-1)
                expected = _VALUE_OR_END if c == _OPEN_ARRAY else _NAME_OR_END
                at = after_space(data, at + 1, stop)
                continue
            begin, this = at, np.int64(OTHER)
            if c == _QUOTE:
                at, flags = text_end(data, at + 1, stop)
                this = np.int64(ESCAPED_TEXT if flags & HAS_ESCAPES else PLAIN_TEXT)
                if at >= 0 and node >= 0:
                    result = _text(to, data, begin + 1, at - 1, flags, node)
            elif _ZERO <= c <= _NINE or c == _MINUS:
                at = number_end(data, at, stop)
                this = np.int64(NUMBER)
                if at - begin > 900:
                    return np.int64(_UNUSUAL), number
                if at >= 0 and node >= 0:
                    result = _number(to, data, begin, at, node)
            else:
                at = word_end(data, at, stop) if c in (_T, _F, _N) else np.int64(-1)
                if at >= 0 and node >= 0:
                    kind = node_value(to, node, NODE_KIND)
                    if c == _N:
                        has_room = put_null(to, node)
                    elif kind == _BOOLEAN:
                        has_room = put(to, node, _A_VALUE, np.int64(c == _T), np.int64(0))
                    elif kind == _STRING:
                        has_room = put(to, node, _A_VALUE, begin, at - begin)
                    else:
                        return np.int64(_UNUSUAL), number
                    result = np.int64(_DONE) if has_room else np.int64(_NO_ROOM)
            if at < 0:
                return np.int64(_UNUSUAL), number
            if result != _DONE:
                return result, number
            if node >= 0 and node == wanted:
                quotes = np.int64(c == _QUOTE)
                put_long(places, row, this)
                put_long(places, rows + row, begin + quotes)
                put_long(places, 2 * rows + row, at - begin - 2 * quotes)
        else:
            # The end of a container, or what is behind a value.
            top = depth * _FRAME
            what = long_at(stack, top + _WHAT)
            is_list = what in (_ARRAY, _IN_LIST)
            if c == _COMMA and expected == _COMMA_OR_END:
                expected = _VALUE if is_list else _NAME_NEXT
                node = node_value(to, long_at(stack, top + _NODE), FIRST) if what == _IN_LIST else np.int64(-1)
                at = after_space(data, at + 1, stop)
                continue
            if c != (_CLOSE_ARRAY if is_list else _CLOSE):
                return np.int64(_UNUSUAL), number
            if what == _IN_STRUCT:
                parent = long_at(stack, top + _NODE)
                first = node_value(to, parent, FIRST)
                for member in range(first, first + node_value(to, parent, MORE)):
                    was_there = member_value(members, member, SEEN) == long_at(stack, top + _NUMBER)
                    if not was_there and not put_null(to, member_value(members, member, MEMBER_NODE)):
                        return np.int64(_NO_ROOM), number
            elif what in (_IN_LIST, _IN_MAP):
                parent = long_at(stack, top + _NODE)
                end = long_at(to.counts, node_value(to, parent, FIRST))
                if not put(to, parent, _A_VALUE, end, np.int64(0)):
                    return np.int64(_NO_ROOM), number
            depth -= 1
            at += 1
            if depth < 0:
                # Nor does Spark read what is behind the object. For event time the whole must be JSON.
                if wanted >= 0 and after_space(data, at, stop) < stop:
                    put_long(places, row, np.int64(NO_JSON))
                return np.int64(_DONE), number
        node = np.int64(-1)
        at = after_space(data, at, stop)
        expected = _COMMA_OR_END


@compiled(
    f"int64(uint8[::1], int64[::1], int64[::1], int64[:, ::1], uint8[::1], int64[::1], uint8[::1], {CELL_ARRAYS},"
    " int64, int64[:, ::1])"
)
def walk_all(  # noqa: PLR0917 - arrays in, arrays out
    array: Word, starts: Word, lengths: Word,
    members: Word, text: Word, stack: Word, unusual: Word,
    nodes: Word, closures: Word, before: Word, counts: Word, states: Word, cells: Word, sizes: Word,
    wanted: Word, places: Word,
) -> Word:  # fmt: skip
    """Append the cells of all documents; return whether there was room for the cells.

    A document of negative length is null. For one that is unusual, which ``unusual`` states, there is a null.
    ``places`` receives what ``json_scan`` finds, in every document that is not unusual, at the node ``wanted``, a value
    of one cell within structs alone; without such a node it is below zero, and ``places`` has no columns.
    """
    to = no_cells(nodes, closures, before, counts, states, cells, sizes)
    data, names, member_table = address_of(array), address_of(text), address_of(members)
    frames, found, rows = address_of(stack), address_of(places), starts.shape[0]
    number = np.int64(0)
    members[:, SEEN] = -1
    for row in range(rows):
        unusual[row] = 0
        if wanted >= 0:
            places[0, row] = NO_DOCUMENT if lengths[row] < 0 else NO_MEMBER
        if lengths[row] >= 0:
            keep_counts(to)
            start = starts[row]
            result, number = _walk(
                to, member_table, names, frames, data, start, start + lengths[row], number, wanted, found, row, rows
            )
            if result == _NO_ROOM:
                return np.int64(0)
            if result == _DONE:
                continue
            forget_value(to)
            unusual[row] = 1
        if not put_null(to, np.int64(0)):
            return np.int64(0)
    return np.int64(1)
