"""All errors of the project, in one tree.

::

    WatermarkSourceError
    ├── UserError                   the user's input cannot work; nothing was read
    │   ├── OptionError             an option's value; ``UnknownOptionError`` for its name, ``StartMismatchError`` for a
    │   │                           start that does not name the existing splits
    │   ├── SchemaError             a user schema, a missing or wrong column
    │   ├── UsageError              a call of the public API that cannot work; ``MissingPackageError`` for an extra that
    │   │                           is not installed
    │   ├── GeneratorError          a watermark strategy of the user's own that failed
    │   ├── OffsetError             a checkpoint that is corrupt, foreign or from a newer version
    │   └── StreamEndedError        a query would continue a stream that has ended (``finalWatermark``)
    ├── SourceError                 the broker or server refused, failed or did not answer
    │   ├── UnreachableError        no connection within the time limit
    │   ├── RefusedError            not authenticated or not authorised
    │   ├── UnknownSplitError       a topic, partition or table that does not exist
    │   ├── ResponseTimeoutError    connected, but no answer or no progress within the time limit
    │   ├── CorruptDataError        bytes that fail their own checks
    │   ├── EventTimeError          a record without an event time in the place that the user has named
    │   ├── PayloadError            a value that does not fit the user's schema, where the user chose FAILFAST
    │   └── UnsupportedFormatError  bytes of a format that this version does not read
    ├── DataLossError               rows to be read no longer exist (``failOnDataLoss``); ``UnskippableLossError`` where
    │                               the query cannot continue without them
    └── InternalError               a bug of this project

Each message states what was seen, what is accepted or expected, and what to do. No message holds a secret. If Spark has
an error condition for the same case, the message begins with it in brackets, as Spark's own messages do.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

_SHOWN = 200
"""Characters of a wrong value that an error quotes."""
_REASON = 600
"""Characters of a reason."""
_LISTED = 10
"""Items of a long list that a message names."""


class WatermarkSourceError(Exception):
    """Root of all errors raised by this project."""


class UserError(WatermarkSourceError):
    """The user's input cannot work."""


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
        recreate = partial(type(self), example=self.example, condition=self.condition)
        return recreate, (self.option, self.seen, self.accepted)


def shortened(seen: object, most: int = _SHOWN) -> str:
    """Return a wrong value as one line of at most 200 characters: it may be a checkpoint, or name many partitions."""
    text = str(seen).replace("\n", " ")
    return text if len(text) <= most else f"{text[:most]}…"


def reason_of(error: Exception) -> str:
    """Return the text of an error as the reason in another's: whole with what to do, unless it quotes much."""
    return shortened(error, _REASON)


def printable(text: object) -> str:
    """Return a text without control characters: a terminal would obey them, and a log would break its lines."""
    return "".join(character if character.isprintable() else "?" for character in str(text))


def listed(things: Iterable[Any]) -> str:
    """Return sortable items, such as splits, as one line: the first ten in order, and the number of the others."""
    ordered = sorted(things)
    more = f" and {len(ordered) - _LISTED} more" if len(ordered) > _LISTED else ""
    return ", ".join(map(str, ordered[:_LISTED])) + more


def labelled(condition: str | None, text: str) -> str:
    """Return a message that begins with its error condition, if it has one."""
    return text if condition is None else f"[{condition}] {text}"


class UnknownOptionError(OptionError):
    """An option name that does not exist; the message names the nearest one."""


class StartMismatchError(OptionError):
    """Starting positions that do not name exactly the existing splits, which may have changed since."""


class SchemaError(UserError):
    """A schema of the user, or a column that is missing, has the wrong type, or a name that is already used."""


class UsageError(UserError):
    """A call of the public API that cannot work as written."""


class MissingPackageError(UsageError, ModuleNotFoundError):
    """A package of one of the project's extras is not installed."""


class GeneratorError(UserError):
    """A watermark strategy of the user's own raised an error, or returned what is no watermark or no state."""


class OffsetError(UserError):
    """A checkpoint offset that is corrupt, belongs to another source, or was written by a newer version."""


class StreamEndedError(UserError):
    """A query would continue a stream that has ended: its watermark is the end of time (``finalWatermark``)."""


class SourceError(WatermarkSourceError):
    """The external system refused, failed or did not answer."""


class UnreachableError(SourceError):
    """No connection could be made within the time limit."""


class RefusedError(SourceError):
    """The system answered, and refused: not authenticated or not authorised."""


class UnknownSplitError(SourceError):
    """A topic, partition or table that does not exist."""


class ResponseTimeoutError(SourceError):
    """Connected, but no answer or no progress within the time limit."""


class CorruptDataError(SourceError):
    """Bytes that fail their own checks; the message names split and position."""


class EventTimeError(SourceError):
    """A record without an event time in the place that the user has named."""


class PayloadError(SourceError):
    """A value that does not fit the user's schema, where the user chose that it ends the query."""


class UnsupportedFormatError(SourceError):
    """Bytes of a format that this version does not read; the message names split and position."""


class DataLossError(WatermarkSourceError):
    """Rows to be read no longer exist, and ``failOnDataLoss`` is true."""


class UnskippableLossError(DataLossError):
    """Rows to be read no longer exist, and what follows them cannot be read either, whatever ``failOnDataLoss`` is."""


class InternalError(WatermarkSourceError):
    """A condition that only a bug of this project can cause."""
