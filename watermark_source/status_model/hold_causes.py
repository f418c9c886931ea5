"""What holds a watermark, in a few words: the cause in a headline. Pure; it decides nothing.

``hold_texts`` has the whole sentences, and the words of each kind. Here a member is named in the middle of a sentence
of its own, whose other half states how late results are: ``Results are 10 min behind the clock: the newest record in
orders-2 is from 10:22:14``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from watermark_source.durations import age_text, count_text
from watermark_source.planning.hold_kinds import HoldKind
from watermark_source.planning.holds import THE_ANNOUNCEMENTS, HeldBy, Hold
from watermark_source.planning.watermark import is_moment, watermark_text
from watermark_source.status_model.hold_texts import ENGLISH, subject

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
        since = " since the start" if hold.began_behind else ""
        about = {"who": WHO, "lag": _records(hold), "newest": _newest(hold, now), "since": since}
        text = ENGLISH[hold.kind].cause.format_map(about)
    before, found, after = text.partition(WHO)
    return Clause(before, subject(hold) if found else "", after)


def short_time(moment: int | None, now: int) -> str:
    """Return a time to the second, in UTC, with its day if that is another one than that of ``now``."""
    text = watermark_text(moment)
    if not is_moment(moment):
        return text
    day, _, time = text.partition(".")[0].partition(" ")
    return time if watermark_text(now).startswith(day) else f"{day} {time}".rstrip()


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
