"""What holds a watermark, in a few words: the cause in a headline. Pure; it decides nothing.

``hold_texts`` has the whole sentences. Here a member is named in the middle of a sentence of its own, whose other half
states how late results are: ``Results are 10 min behind the clock: the newest record in orders-2 is from 10:22:14``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import THE_ANNOUNCEMENTS, HeldBy, Hold
from watermark_source.planning.watermark import is_moment, watermark_text
from watermark_source.status_model.hold_texts import subject

WHO: Final = "{who}"
"""Where a cause names the member."""


class Clause(NamedTuple):
    """A clause, and the name in it that a view sets off."""

    before: str
    who: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before}{self.who}{self.after}"


NO_CLAUSE: Final = Clause("")


def cause(hold: Hold, now: int) -> Clause:
    """Return why results are not later, as a clause about the member that holds them.

    Args:
        hold: the decision.
        now: the day that times need not name, milliseconds since 1970-01-01 UTC.
    """
    if hold.by is HeldBy.WRITER:
        text = _writers_cause(hold, now)
    elif hold.by is HeldBy.SOURCE:
        text = f"the alignment group waits for {WHO}"
    elif hold.by is HeldBy.READING:
        text = f"{WHO} is read to its end first" + (f", with {_records(hold)} to go" if hold.lag else "")
    else:
        text = _CAUSES[hold.kind](hold, now)
    before, found, after = text.partition(WHO)
    return Clause(before, subject(hold) if found else "", after)


def short_time(moment: int | None, now: int) -> str:
    """Return a time to the second, in UTC, with its day if that is another one than that of ``now``."""
    text = watermark_text(moment)
    if not is_moment(moment):
        return text
    day, _, time = text.partition(".")[0].partition(" ")
    return time if watermark_text(now).startswith(day) else f"{day} {time}"


def _records(hold: Hold) -> str:
    return "more" if hold.lag is None else count_text(hold.lag, "record")


def _writers_cause(hold: Hold, now: int) -> str:
    if hold.name == THE_ANNOUNCEMENTS:
        cannot = hold.kind is HoldKind.NO_ANSWER
        return f"{WHO} cannot be read" if cannot else "no writer has announced a watermark yet"
    if hold.kind is HoldKind.NO_ANSWER:
        return f"what {WHO} announced last cannot be read"
    if hold.watermark is None:
        return f"{WHO} has announced no watermark yet"
    return f"{WHO} has announced nothing newer than {short_time(hold.watermark, now)}"


def _newest(hold: Hold, now: int) -> str:
    if hold.newest is not None:
        return f"the newest record in {WHO} is from {short_time(hold.newest, now)}"
    silent = "" if hold.quiet is None else f" for {age_text(hold.quiet)}"
    return f"{WHO} has had no newer record{silent}"


_CAUSES: Final[Mapping[HoldKind, Callable[[Hold, int], str]]] = {
    HoldKind.BACKLOG: lambda hold, _: f"{WHO} still has {_records(hold)} to read",
    HoldKind.READ: _newest,
    HoldKind.PENDING: _newest,
    HoldKind.PAUSED: lambda *_: f"{WHO} is paused by its alignment group",
    HoldKind.OPEN_TRANSACTION: lambda *_: f"the next records of {WHO} are in an open transaction",
    HoldKind.SILENT: _newest,
    HoldKind.BOUND: _newest,
    HoldKind.UNDATED: lambda *_: f"no record of {WHO} has an event time",
    HoldKind.FUTURE: lambda *_: f"all event times of {WHO} are too far in the future",
    HoldKind.NO_MARKS: lambda *_: f"no record of {WHO} carries a watermark",
    HoldKind.NEVER: lambda hold, _: f"{WHO} has had no record{' since the start' if hold.began_behind else ''} yet",
    HoldKind.NO_ANSWER: lambda *_: f"the log of {WHO} does not answer",
    HoldKind.SNAPSHOT: lambda *_: f"{WHO} is read first",
    HoldKind.LEFT_OUT: lambda *_: f"{WHO} is idle, as all others are",
}
"""A row for each kind."""
