"""Every error of the project, in one tree.

::

    WatermarkSourceError
    ├── UserError                   what the user wrote cannot work; nothing was read
    │   ├── OptionError             an option's value; ``UnknownOptionError`` for its name, ``StartMismatchError`` for a
    │   │                           start that does not name the splits there are
    │   ├── SchemaError             a user schema, a missing or wrong column
    │   ├── UsageError              a call of the public API that cannot work; ``MissingPackageError`` for want of an
    │   │                           extra that is not installed
    │   ├── OffsetError             a checkpoint that is broken, foreign or from a newer version
    │   └── StreamEndedError        a stream that has ended (``finalWatermark``) would be read on
    ├── SourceError                 the broker or server said no, or said nothing
    │   ├── UnreachableError        no connection within the allowed time
    │   ├── RefusedError            not authenticated or not authorised
    │   ├── UnknownSplitError       a topic, partition or table that does not exist
    │   ├── ResponseTimeoutError    connected, but no answer or no progress within the allowed time
    │   ├── CorruptDataError        bytes that fail their own checks
    │   ├── EventTimeError          a record without an event time where the user's options place it
    │   └── UnsupportedFormatError  bytes of a format this version does not read
    ├── DataLossError               rows that were due are gone (``failOnDataLoss``)
    └── InternalError               a bug of ours

Each message says what was seen, what is accepted or expected, and what to do. No message ever holds a secret. Where
Spark has an error condition for the same thing, the message begins with it in brackets, as Spark's own do.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

_SHOWN = 200
"""Characters of a wrong value that an error shows."""
_LISTED = 10
"""Things of many that a message names."""


class WatermarkSourceError(Exception):
    """Root of all errors raised by this project."""


class UserError(WatermarkSourceError):
    """What the user wrote cannot work."""


class OptionError(UserError, ValueError):
    """An option has a value that is not accepted.

    The text follows one pattern: option, value seen, what is accepted, an example.
    """

    def __init__(
        self, option: str, seen: object, accepted: str, *, example: str | None = None, condition: str | None = None
    ) -> None:
        self.option = option
        self.seen = seen
        self.accepted = accepted
        self.example = example
        self.condition = condition
        shown = "" if seen is None else f' = "{shortened(seen)}"'
        hint = "" if example is None else f", for example {example}"
        super().__init__(labelled(condition, f"option {shortened(option)}{shown}: {accepted}{hint}"))

    def __reduce__(self) -> tuple[object, ...]:
        again = partial(type(self), example=self.example, condition=self.condition)
        return again, (self.option, self.seen, self.accepted)


def shortened(seen: object) -> str:
    """Return a wrong value as one line of bearable length: it may be a checkpoint, or name a thousand partitions."""
    text = str(seen).replace("\n", " ")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def listed(things: Iterable[Any]) -> str:
    """Return things that have an order, such as splits, in one line: in that order, the first ten of them."""
    ordered = sorted(things)
    more = f" and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else ""
    return ", ".join(map(str, ordered[:_LISTED])) + more


def labelled(condition: str | None, text: str) -> str:
    """Return a message that begins with its error condition, if it has one."""
    return text if condition is None else f"[{condition}] {text}"


class UnknownOptionError(OptionError):
    """An option name that does not exist; the message names the nearest one."""


class StartMismatchError(OptionError):
    """Starting positions that do not name exactly the splits there are now; there may have been others before."""


class SchemaError(UserError):
    """A schema given by the user, or a column that is missing, of the wrong type, or of a name that is taken."""


class UsageError(UserError):
    """A call of the public API that cannot work as written."""


class MissingPackageError(UsageError, ModuleNotFoundError):
    """A package of one of the project's extras is not installed."""


class OffsetError(UserError):
    """A checkpoint offset that is broken, belongs to another source, or was written by a newer version."""


class StreamEndedError(UserError):
    """A query would read on a stream that has ended: its watermark is the end of time (``finalWatermark``)."""


class SourceError(WatermarkSourceError):
    """The external system refused, failed or did not answer."""


class UnreachableError(SourceError):
    """No connection could be made within the allowed time."""


class RefusedError(SourceError):
    """The system answered, and refused: not authenticated or not authorised."""


class UnknownSplitError(SourceError):
    """A topic, partition or table that does not exist."""


class ResponseTimeoutError(SourceError):
    """Connected, but no answer or no progress within the allowed time."""


class CorruptDataError(SourceError):
    """Bytes that fail their own checks; the message names split and position."""


class EventTimeError(SourceError):
    """A record without an event time where the user's options place it."""


class UnsupportedFormatError(SourceError):
    """Bytes of a format that this version does not read; the message names split and position."""


class DataLossError(WatermarkSourceError):
    """Rows that were due are gone, and ``failOnDataLoss`` is true."""


class InternalError(WatermarkSourceError):
    """A condition that only a bug of this project can cause."""
