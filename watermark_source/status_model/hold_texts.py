"""What holds a watermark, in English: one sentence a reason, and one advice. Pure; it decides nothing.

``holds`` has decided who holds and why. Log, terminal, page, ``why``, ``why_open`` and ``explain`` call ``sentence``,
which a report has beside the codes, and ``advice``; ``hold_causes`` makes the page's headline. ``ENGLISH`` has a row
for each kind. Options and commands of a connector come from its ``Words``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from watermark_source.durations import count_text, format_duration, format_seconds
from watermark_source.planning.announced import AnnouncedBy, ObservedAnnouncements, WriterAt, WriterStatus, announced_at
from watermark_source.planning.announcement import gone_line, writers_line
from watermark_source.planning.group_limit import STORE, TO_COME
from watermark_source.planning.hold_kinds import NOTHING_KNOWN, Behind, HoldKind, SplitFacts
from watermark_source.planning.holds import THE_ANNOUNCEMENTS, HeldBy, Hold
from watermark_source.planning.range_report import RowTotals
from watermark_source.planning.watermark import is_moment, watermark_text
from watermark_source.status_model.source_status import SourceStatus
from watermark_source.words import Words

IDLE_TIMEOUT: Final = '.option("idleTimeout", "30 seconds")'
FINAL_WATERMARK: Final = '.option("finalWatermark", "true")'

# Why: a sentence without a full stop, about a member that was named before.


def sentence(hold: Hold, words: Words, about: SplitFacts = NOTHING_KNOWN) -> str:
    """Return why a split, or what is read first, is not further.

    Args:
        hold: the decision.
        words: of its connector.
        about: the facts about a split.
    """
    counts = about.holds and hold.watermark is None
    if about.is_final and hold.kind.can_be_read and not (counts and hold.kind is not HoldKind.PENDING):
        return "read to the end of this run"
    text = ENGLISH[hold.kind].sentence(hold, words, about)
    if about.hidden_ahead and hold.kind.can_be_read:
        return f"{text}; its next rows cannot be read ahead (see the log), and it holds the watermark"
    return text if about.behind is None else f"{text}; {_late(about.behind, hold)}"


def _late(behind: Behind, hold: Hold) -> str:
    was_idle = " (it was idle)" if behind.was_idle else ""
    late = f"{format_duration(behind.millis)} behind the watermark{was_idle}: its rows up to there are late"
    if hold.kind is HoldKind.LEFT_OUT:
        return f"{late}, and the watermark advances without it (idleReturn=pass)"
    return f"{late}; the watermark waits for it" + (", with idleReturn=pass it would not" if behind.was_idle else "")


def _backlog(hold: Hold, words: Words, about: SplitFacts) -> str:
    if hold.by is HeldBy.READING:
        return f"it is read to its end first, {count_text(hold.lag or 0, 'record')} to go"
    if hold.lag is None:
        return _unread(hold)
    if about.waits_for_more:
        return f"{_unread(hold)}; waits for more to come{_in_brackets(words.minimum)}"
    first = f"; slower ones go first{_in_brackets(words.limit)}" if about.waits_for_budget else ""
    return f"{_unread(hold)}{first}"


def _unread(hold: Hold) -> str:
    return "has more to read" if hold.lag is None else f"behind by {count_text(hold.lag, 'record')}"


def _in_brackets(option: str | None) -> str:
    return "" if option is None else f" ({option})"


def _pending(hold: Hold, words: Words, about: SplitFacts) -> str:
    is_first = hold.watermark is None and not about.rows.read
    return "its first records are being read" if is_first else _read(hold, words, about)


def _read(hold: Hold, _: Words, about: SplitFacts) -> str:
    if about.holds and hold.newest is not None:
        return f"all is read; its newest record is of {moment_text(hold.newest)}"
    return "caught up"


def _silent(hold: Hold, _: Words, about: SplitFacts) -> str:
    quiet = f"{_nothing(about.rows)} for {format_duration(hold.quiet or 0)}"
    if hold.timeout is not None:
        return f"{quiet}; idle after {format_duration(hold.timeout)}"
    return f"{quiet}; never idle without idleTimeout" if about.holds else quiet


def _nothing(rows: RowTotals) -> str:
    return "nothing with an event time" if rows.undated or rows.future else "nothing to read"


def _lacking(hold: Hold, words: Words, about: SplitFacts) -> str:
    why = _what_rows_lack(hold, words, about)
    if about.lag:
        return f"{_unread(hold)}; {why} so far"
    if not about.holds:
        return why
    if hold.kind is HoldKind.NO_MARKS:
        return f"{why}; holds the watermark"
    if hold.timeout is None:
        return f"{why}; holds the watermark, and is never idle without idleTimeout"
    return f"{why}; holds the watermark until it is idle (idleTimeout {format_duration(hold.timeout)})"


def _what_rows_lack(hold: Hold, words: Words, about: SplitFacts) -> str:
    rows = about.rows
    # An earlier run read others, of which some had an event time if there is a watermark.
    read = count_text(rows.read, "record") + ("" if hold.watermark is None else " of this run")
    if hold.kind is HoldKind.NO_MARKS:
        far = "" if not rows.future else f" but {count_text(rows.future)} too far in the future (maxFutureSkew)"
        return f"{read}, none with a watermark{_in_brackets(words.marks)}{far}"
    if hold.kind is HoldKind.UNDATED:
        return f"{read}, none with an event time"
    if not rows.undated:
        return f"{read}, all too far in the future (maxFutureSkew)"
    far = f"{count_text(rows.future)} too far in the future (maxFutureSkew)"
    return f"{read}: {count_text(rows.undated)} without an event time, {far}"


def _never(_: Hold, __: Words, about: SplitFacts) -> str:
    why = "no record seen since the query was started" if about.resumed else "no record seen yet"
    return f"{why}; holds the watermark" if about.holds else why


def _left_out(hold: Hold, _: Words, about: SplitFacts) -> str:
    if about.behind is not None:
        return _unread(hold) if hold.lag else "caught up"
    quiet = _nothing(about.rows) if hold.quiet is None else f"{_nothing(about.rows)} for {format_duration(hold.quiet)}"
    # A split stays idle until its next record, even if a restart has removed the timeout.
    return quiet if hold.timeout is None else f"{quiet} (idleTimeout {format_duration(hold.timeout)})"


def _paused(hold: Hold, _: Words, about: SplitFacts) -> str:
    wait = about.wait
    if wait is None:
        return "waits for its alignment group"
    if wait.max_drift is None:
        return f"reads nothing before its alignment group may begin: waits for {wait.slowest}"
    drift, of = format_duration(wait.max_drift), "" if wait.drift_of is None else f" of {wait.drift_of}"
    if wait.ahead is not None and wait.ahead > wait.max_drift:
        return f"{format_duration(wait.ahead)} ahead of {wait.slowest} (alignmentMaxDrift {drift}{of})"
    following = "record" if about.strategy.has_split_watermarks else "announced watermark"
    return f"next {following} over {drift} ahead of {wait.slowest} (alignmentMaxDrift{of})"


def moment_text(moment: int | None) -> str:
    """Return a time as UTC, or what a watermark is instead of one."""
    return f"{watermark_text(moment)} UTC" if is_moment(moment) else watermark_text(moment)


# Writers that announce watermarks.


def writer_sentence(of: WriterAt, observed: ObservedAnnouncements) -> str:
    """Return why a writer is where it is."""
    writer, silent = of.writer, observed.silent.get(of.writer.name, 0)
    if of.status is WriterStatus.SILENT:
        return f"{_has_not_announced(silent)}, longer than {_time_to_live(observed.by)}: the watermark does not wait"
    if writer.unreadable is not None:
        return f"its last record cannot be read, so the watermark waits for the next one: {writer.unreadable}"
    if of.status in _OUT:
        return _OUT[of.status]
    if writer.newest is None and writer.query is None:
        named = writer.name in observed.by.names
        return "has announced nothing yet" + (" (announcedBy)" if named else ": the checkpoint names it")
    return _announcing(of, observed, silent)


_OUT = {WriterStatus.ENDED: "announced that it writes no more", WriterStatus.IDLE: "announced that it is idle"}


def _announcing(of: WriterAt, observed: ObservedAnnouncements, silent: int) -> str:
    if of.next is not None and of.is_future:
        return f"its watermark of batch {of.next.batch} is in the future (maxFutureSkew): it waits for the clock"
    if of.next is not None:
        return f"{count_text(of.rows_before_next, 'row')} before the cut of batch {of.next.batch}"
    if announced_at(of) is None:
        return "asked to be waited for, and has no watermark yet"
    newest = of.writer.newest
    if observed.is_run and newest is not None and newest.written_at is not None:
        return f"announced last at {watermark_text(newest.written_at)} UTC, after batch {newest.batch}"
    return _has_not_announced(silent) if silent >= _WORTH_NAMING else "its newest announcement is in force"


_WORTH_NAMING = 5_000
"""Milliseconds without an announcement from which the status states them."""


def _has_not_announced(silent: int) -> str:
    return f"has announced nothing for {format_seconds(silent)}"


def _time_to_live(by: AnnouncedBy) -> str:
    return f"writerTimeToLive ({format_duration(by.time_to_live or 0)})"


# Advice: what to write or to do, without a full stop.


class Waiting(NamedTuple):
    """The window that waits."""

    bound: int = 0
    """Milliseconds of ``maxOutOfOrderness``."""
    end: int | None = None
    """Milliseconds since 1970-01-01 UTC; ``None``: any that is open."""


ANY_WINDOW: Final = Waiting()


def advice(hold: Hold, words: Words, window: Waiting = ANY_WINDOW) -> str:
    """Return what ends a hold; empty where nothing has to be done.

    Args:
        hold: the decision.
        words: of its connector.
        window: what waits for it.
    """
    if hold.by is HeldBy.WRITER:
        return _of_writer(hold, words.watermarks)[0]
    return ENGLISH[hold.kind].advice(hold, words, window)


def option_of(hold: Hold, words: Words) -> str:
    """Return the options that its advice is about; empty if none ends it."""
    if hold.by is HeldBy.WRITER:
        return _of_writer(hold, words.watermarks)[1]
    if hold.by is HeldBy.SOURCE:
        return "alignmentMembers" if hold.name == str(TO_COME) else ""
    return ENGLISH[hold.kind].option.format(event_time=words.event_time or "")


def ends_by_itself(hold: Hold) -> bool:
    """Return whether a hold ends while the query runs, without anyone's help: its advice states how."""
    if hold.kind.is_silence:
        return hold.by is HeldBy.SPLIT and hold.timeout is not None and not hold.is_last
    return hold.kind is HoldKind.SNAPSHOT or (hold.kind is HoldKind.BACKLOG and hold.by is HeldBy.SPLIT)


_STOPPED_AFTER: Final = 60_000
"""Milliseconds without an announcement after which a writer may have stopped."""


def _of_writer(hold: Hold, command: str | None) -> tuple[str, str]:
    """Return the advice about a writer, and the option that it writes out."""
    if hold.name == THE_ANNOUNCEMENTS:
        return (writers_line([]), "watermarkStrategy") if hold.kind is HoldKind.NEVER else ("", "")
    if hold.timeout is not None and (hold.kind is HoldKind.NO_ANSWER or hold.kind.is_caught_up):
        return f"once it has announced nothing for {format_duration(hold.timeout)}, {hold.name} is left out", ""
    option = "writerTimeToLive" if hold.timeout is None else ""
    if hold.kind is HoldKind.NO_ANSWER:
        return gone_line([hold.name], command), option
    if hold.kind is not HoldKind.NEVER:
        if not hold.kind.is_caught_up:
            return "", ""
        if hold.quiet is not None and hold.quiet <= _STOPPED_AFTER:
            return f"see why(query) in the job of {hold.name}, which announced less than a minute ago", ""
    return writers_line([hold.name], command, hold.timeout), option


def _silent_advice(hold: Hold, words: Words, window: Waiting) -> str:
    if hold.is_last:
        return from_start(words) if hold.began_behind else no_later_record(words, window)
    if hold.timeout is None:
        return f"to continue without a silent {words.split}, write {IDLE_TIMEOUT}"
    left = "" if hold.quiet is None else f", in {format_duration(max(0, hold.timeout - hold.quiet))}"
    return f"once it has been silent for {format_duration(hold.timeout)}{left}, {hold.name} is left out"


def from_start(words: Words) -> str:
    """Return what to write where a query began behind all records that there are."""
    line = "" if words.from_start is None else f": {words.from_start} with a new checkpoint location reads them"
    return f"no record has come since the query was started, and it began behind those that were there before{line}"


def no_later_record(words: Words, window: Waiting = ANY_WINDOW) -> str:
    """Return what closes the last windows when no split has a later event time."""
    bound, end = window
    late = f" (maxOutOfOrderness {format_duration(bound)})" if bound else ""
    after = "a later event time" if end is None else f"an event time later than {moment_text(end + bound)}"
    clock = "" if words.at_rest is None else f"{words.at_rest} lets the clock close them, and "
    return (
        f"no other {words.split} has a later event time, as is normal while rows are still coming and after the last "
        f"ones: a record with {after}{late} moves it. If no more come: {clock}{FINAL_WATERMARK} closes all windows at "
        "the end of a last run with availableNow"
    )


def wrong_time(words: Words) -> str:
    """Return what to check where event times are missing or wrong."""
    return f"check {_where_times_are(words)}"


def _where_times_are(words: Words) -> str:
    options = "what the event time is taken from" if words.event_time is None else words.event_time
    return options + ("" if words.profile is None else f", with {words.profile}")


def _undated_advice(hold: Hold, words: Words, _: Waiting) -> str:
    out = f"write {IDLE_TIMEOUT}"
    if hold.timeout is not None:
        out = f"idleTimeout ({format_duration(hold.timeout)}) leaves them out"
    return f"{wrong_time(words)}; if such records are meant to be there, {out}"


def _no_marks_advice(hold: Hold, words: Words, _: Waiting) -> str:
    leaves = f"{IDLE_TIMEOUT} leaves out"
    if hold.timeout is not None:
        leaves = f"idleTimeout ({format_duration(hold.timeout)}) leaves out"
    return (
        f"only a watermark in a record of {hold.name} moves it{_in_brackets(words.marks)}: the producer has to write "
        f"watermarks into every {words.split}. {leaves} one without any records, and not one whose records carry no "
        "watermark"
    )


def _paused_advice(hold: Hold, _: Words, __: Waiting) -> str:
    if hold.by is not HeldBy.SOURCE or hold.name == str(STORE):
        # What a split waits for is in its sentence, and the store's trouble in the status.
        return ""
    if hold.name == str(TO_COME):
        return (
            "start the other sources of the alignment group, or write how many there are into "
            '.option("alignmentMembers", …)'
        )
    return (
        f"the limit advances once {hold.name} does, and the watermark with it: ask why(query) of the query that reads "
        f"{hold.name}"
    )


def _left_out_advice(hold: Hold, words: Words, _: Waiting) -> str:
    if hold.follows_group:
        return (
            f'.option("idleFollows", "group") lets it follow the other sources of its alignment group while every '
            f"{words.split} is idle"
        )
    return no_later_record(words)


def _backlog_advice(hold: Hold, words: Words, _: Waiting) -> str:
    if hold.by is HeldBy.READING:
        return (
            "see the lag of each in the status. With read_committed a transaction that was open then has to end first: "
            "docs/watermarks.md, Transactions. A log that was truncated or created again after the query began has no "
            "such end any more: begin with a new checkpoint location"
        )
    return "it is being read" + ("" if words.limit is None else f"; {words.limit}, if set, limits the rows of a batch")


def _read_advice(hold: Hold, _: Words, __: Waiting) -> str:
    is_first = hold.kind is HoldKind.PENDING and hold.watermark is None
    return "the next batch shows its event times" if is_first else "its next newer record alone moves it on"


def _open_transaction_advice(_: Hold, words: Words, __: Waiting) -> str:
    return (
        f"let the producer commit or abort its transaction: no idleTimeout leaves such a {words.split} out. One whose "
        "producer has died ends after its transaction.timeout.ms"
    )


def _future_advice(_: Hold, words: Words, __: Waiting) -> str:
    return f"check the producer's clock, and {_where_times_are(words)}; see maxFutureSkew"


# All texts of a kind.


class English(NamedTuple):
    """The texts about a member that is not further for one reason."""

    sentence: Callable[[Hold, Words, SplitFacts], str]
    """Why, without a full stop, about a member that was named before."""
    clause: str
    """Of ``why_open``, about one member or all of the kind, with the names that ``monitor.window_clauses`` gives it."""
    advice: Callable[[Hold, Words, Waiting], str]
    """What to write or to do, without a full stop; empty where nothing has to be done."""
    cause: str
    """In the page's headline, in the middle of a sentence: see ``hold_causes`` for the names."""
    option: str = ""
    """What the advice is about; ``event_time``: the connector's options of event times. Empty if no option ends it."""


ENGLISH: Final[Mapping[HoldKind, English]] = {
    HoldKind.BACKLOG: English(
        _backlog, "{who} {behind}, with {lag} to read", _backlog_advice, "{who} still has {lag} to read"
    ),
    HoldKind.READ: English(_read, "{who} {behind}, and {were} read to the end just now", _read_advice, "{newest}"),
    HoldKind.PENDING: English(
        _pending, "{who} {behind} without the {pending} of the last batch", _read_advice, "{newest}"
    ),
    HoldKind.PAUSED: English(
        _paused,
        "{who} {behind}{and_are} paused by the alignment group: {why}{elsewhere}",
        _paused_advice,
        "{who} is paused by its alignment group",
        "alignmentMaxDrift",
    ),
    HoldKind.OPEN_TRANSACTION: English(
        lambda *_: "its next records are in a transaction that is open",
        "{who} {behind}, and {their} next records are in a transaction that is open",
        _open_transaction_advice,
        "the next records of {who} are in an open transaction",
    ),
    HoldKind.SILENT: English(_silent, "{who} {behind}{nothing}", _silent_advice, "{newest}", "idleTimeout"),
    HoldKind.BOUND: English(
        _read,
        "{who} {have} records that late, and {watermarks_are} maxOutOfOrderness ({bound}) behind them",
        lambda *_: "if rows come less late, write a shorter maxOutOfOrderness",
        "{newest}",
        "maxOutOfOrderness",
    ),
    HoldKind.UNDATED: English(
        _lacking, "{who} {behind}: {why}", _undated_advice, "no record of {who} has an event time", "{event_time}"
    ),
    HoldKind.FUTURE: English(
        _lacking,
        "{who} {behind}: {why}",
        _future_advice,
        "all event times of {who} are too far in the future",
        "maxFutureSkew",
    ),
    HoldKind.NO_MARKS: English(
        _lacking, "{who} {behind}: {why}", _no_marks_advice, "no record of {who} carries a watermark"
    ),
    HoldKind.NEVER: English(
        _never, "{who} {have} {never}", _silent_advice, "{who} has had no record{since} yet", "idleTimeout"
    ),
    HoldKind.NO_ANSWER: English(
        lambda *_: "no answer about its log",
        "{who} {behind}, and {logs_do} not answer",
        lambda *_: "see the log for why it does not answer",
        "the log of {who} does not answer",
    ),
    HoldKind.SNAPSHOT: English(
        lambda *_: "it is read before the changes, and rows of a snapshot have no watermark",
        "{who} {are} read before the changes, and rows of a snapshot have no watermark",
        lambda *_: "the watermark begins with the changes behind it",
        "{who} is read first",
    ),
    HoldKind.LEFT_OUT: English(
        _left_out, "{who} {are} {left_out}", _left_out_advice, "{who} is idle, as all others are", "idleFollows"
    ),
}
"""A row for each kind. Views decide by the properties of ``HoldKind``, and metrics name the holder alone, so that
neither changes with a new one."""


# What holds the watermark of a source, as its status has it.


def held_text(source: SourceStatus) -> str:
    """Return who holds the watermark of a source, and why; empty if nothing does."""
    more = f"; and {count_text(source.more_holds)} more" if source.more_holds else ""
    return "; ".join(f"{holder_name(hold)}: {hold.why}" for hold in source.holds) + more


def subject(hold: Hold) -> str:
    """Return who holds."""
    is_writer = hold.by is HeldBy.WRITER and hold.name != THE_ANNOUNCEMENTS
    return f"writer {hold.name}" if is_writer else hold.name


def holder_name(hold: Hold) -> str:
    """Return who holds; of another source that it is the limit of the alignment group, not the watermark itself."""
    return f"{subject(hold)} (limit of the group)" if hold.by is HeldBy.SOURCE else subject(hold)


def advice_of(source: SourceStatus) -> str:
    """Return what ends the first hold of a source; empty where nothing has to be done."""
    if not source.slowest:
        return ""
    return advice(source.slowest[0], source.words, Waiting(source.out_of_orderness or 0))


def as_sentence(text: str) -> str:
    """Return a text with a capital letter."""
    return text[:1].upper() + text[1:]
