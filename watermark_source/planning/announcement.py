"""Announcements: the records by which the writers of a topic state how far its event time has advanced.

A writer sends one record after each committed batch, to ``<topic>.watermarks``: one partition, key = writer. Its value
is JSON of this form::

    {"v": 1,
     "writer": "sessions",        name of the writer, unique among the writers of the topic
     "query": "5b1d0c2e-…",       one run of a checkpoint: the query's id, or an id that a plain producer chooses
     "batch": 17,                 grows with each announcement of that query
     "wm": 1700000000000,         watermark in milliseconds, up to the year 9999; null: "wait for this writer";
                                  "end": it writes no more
     "idle": false,               whether readers need not wait for this writer until its next announcement
     "topic": "Yk2…",             id of the data topic (KIP-516)
     "ends": {"0": 5210, …}}      the cut: the end offset of each partition after the batch

It promises that of this writer no row with an event time at or before ``wm`` lies at or behind ``ends``. A partition
that is not named was created later, and counts from 0. ``batch``, ``wm`` and each end never decrease within a query.

A person who knows that a writer is gone for good sends a removal, ``{"v": 1, "writer": "sessions", "drop": true}``:
readers no longer wait for the writer, unless it announces again.

Pravega's PDP-26 has the same parts: a stream of its own, a cut, one mark a writer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeGuard

from watermark_source.errors import CorruptDataError, listed, shortened
from watermark_source.planning.watermark import LAST_MOMENT, MAX, MIN, Millis, watermark_text

VERSION = 1
_END = "end"
_KEYS = frozenset({"v", "writer", "query", "batch", "wm", "idle", "topic", "ends"})
_REMOVAL_KEYS = frozenset({"v", "writer", "drop"})
_MOST_NAME = 255
_UNSHOWN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, which logs and terminals would act on, and halves of characters, which UTF-8 has not."""
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a writer states after a batch."""

    writer: str
    query: str
    batch: int
    watermark: Millis | None
    """``None``: readers wait for the writer, which has no watermark yet. ``MAX``: it writes no more."""
    idle: bool = False
    topic: str
    """Id of the data topic. Readers ignore announcements about a topic of the same name that was deleted since."""
    ends: Mapping[str, int] = field(hash=False)
    """End position of each partition, by its number; for another system, of each part of its log by name."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A person's statement that a writer is gone for good."""

    writer: str


Statement: TypeAlias = Announcement | Removal


def encoded(statement: Statement) -> bytes:
    """Return the value of the record; equal bytes for equal statements."""
    value: dict[str, Any]
    if isinstance(statement, Removal):
        value = {"v": VERSION, "writer": statement.writer, "drop": True}
    else:
        value = {
            "v": VERSION,
            "writer": statement.writer,
            "query": statement.query,
            "batch": statement.batch,
            "wm": _END if statement.watermark == MAX else statement.watermark,
            "idle": statement.idle,
            "topic": statement.topic,
            "ends": dict(sorted(statement.ends.items())),
        }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def decoded(value: bytes | None) -> Statement:
    """Return what a record states.

    Raises:
        CorruptDataError: it is not of this format, or of a newer version; the message shows what was seen.
    """
    try:
        found = json.loads(value or b"", object_pairs_hook=_object, parse_constant=_refuse)
        return _statement(found)
    except (ValueError, RecursionError) as error:
        shown = shortened((value or b"")[:1_000].decode(errors="backslashreplace"))
        raise CorruptDataError(f"not an announcement of a watermark: {error}; seen: {shown}") from None


def _statement(found: object) -> Statement:
    if not isinstance(found, Mapping):
        raise ValueError("expected an object")  # noqa: TRY004 - as for all that is not of the format
    version = found.get("v")
    if type(version) is not int or version != VERSION:
        raise ValueError(f'expected "v" to be {VERSION}, seen {shortened(version)}')
    if "drop" in found:
        _check_keys(found, _REMOVAL_KEYS)
        if found["drop"] is not True:
            raise ValueError('expected "drop" to be true')
        return Removal(_name(found, "writer"))
    _check_keys(found, _KEYS)
    if type(found["idle"]) is not bool:
        raise ValueError('expected "idle" to be true or false')
    ends = found["ends"]
    if not isinstance(ends, Mapping):
        raise ValueError('expected "ends" to be an object')  # noqa: TRY004 - as above
    return Announcement(
        writer=_name(found, "writer"),
        query=_name(found, "query"),
        batch=_integer(found["batch"], '"batch"', 0),
        watermark=_watermark(found["wm"]),
        idle=found["idle"],
        topic=_name(found, "topic"),
        ends={part: _integer(end, f"the end of {shortened(part)}", 0) for part, end in ends.items()},
    )


def _watermark(value: object) -> Millis | None:
    if value is None:
        return None
    if value == _END:
        return MAX
    watermark = _integer(value, '"wm"', MIN + 1)
    # A reader could never go back from such a watermark.
    if watermark > LAST_MOMENT:
        is_micros = watermark // 1_000 <= LAST_MOMENT
        raise ValueError(
            f'expected "wm" to be milliseconds since 1970-01-01 UTC, up to {LAST_MOMENT} in the year 9999, seen '
            f"{watermark}: as {'microseconds' if is_micros else 'nanoseconds'} it is "
            f'{watermark_text(watermark // (1_000 if is_micros else 1_000_000))}. "end" states that no more is written'
        )
    return Millis(watermark)


def _check_keys(found: Mapping[str, Any], expected: frozenset[str]) -> None:
    if found.keys() != expected:
        raise ValueError(f"expected the keys {sorted(expected)}, seen {shortened(sorted(found))}")


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value can be the name of a writer, or an id."""
    return isinstance(value, str) and 0 < len(value) <= _MOST_NAME and _UNSHOWN.search(value) is None


def _name(found: Mapping[str, Any], key: str) -> str:
    value = found[key]
    if not is_name(value):
        raise ValueError(
            f'expected "{key}" to be a text of 1 to {_MOST_NAME} characters, none of them a control character, seen '
            f"{shortened(ascii(value))}"
        )
    return value


def _integer(value: object, what: str, least: int) -> int:
    if type(value) is not int or not least <= value < _MOST:
        raise ValueError(f"expected {what} to be an integer from {least} to {_MOST - 1}, seen {shortened(value)}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


# What to write where a writer announces nothing.


NO_WRITER: Final = "no writer has announced a watermark yet"


_WATERMARKS: Final = "python -m watermark_source watermarks --help"
"""The command that shows the one about the writers of a log, where its connector is not known."""


def writers_line(names: Sequence[str], command: str | None = None, limit: int | None = None) -> str:
    """Return what to do about writers that announce nothing; without names, about a topic that none announces for."""
    if names:
        return f"start writer {listed(names)}; {gone_line(names, command, limit)}"
    return (
        "start the query that writes the topic, with announce_watermark(query, topic=…), or another program with a "
        'WatermarkAnnouncer; where nothing announces, leave .option("watermarkStrategy", "announced") out'
    )


def gone_line(names: Sequence[str], command: str | None = None, limit: int | None = None) -> str:
    """Return what to do about writers that announce no more.

    ``command``: about the writers of their log; ``limit``: the milliseconds of ``writerTimeToLive``, if it is set.
    """
    name, it = (names[0], "it") if len(names) == 1 else ("WRITER", "one")
    waits = "" if limit is not None else '.option("writerTimeToLive", "10 minutes") waits for it no longer; or '
    drop = on_writers(f"drop {name}", command)
    return f"if {it} is gone for good: {waits}{drop}, and remove its name from announcedBy, if it is there"


def on_writers(action: str, command: str | None = None) -> str:
    """Return the command for an action on the writers of a log, or the action and what shows the command for it."""
    return f"{action} (see {_WATERMARKS})" if command is None else f"{command} {action}"
