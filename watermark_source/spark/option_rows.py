"""The table of options that every source of this project has: event time, watermarks, idleness, alignment, markers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from watermark_source import durations
from watermark_source.errors import shortened
from watermark_source.option_table import (
    Option,
    Renamed,
    a_duration,
    at_least_one,
    duration,
    host_name,
    non_empty,
    one_of,
    ports,
    true_or_false,
)
from watermark_source.planning.announcement import is_name
from watermark_source.planning.generator import OPTION
from watermark_source.planning.group import LONGEST_NAME
from watermark_source.planning.policy import AfterCatchUp, GroupHold
from watermark_source.spark.strategy_rows import (
    BOUNDED,
    NOTHING,
    PASSES,
    STRATEGIES,
    WAITS,
    StrategyRow,
    not_with,
    on_time,
    only_with,
    strategy_name,
)

AUTO = "auto"

GROUP = "group"

DRIVER = "driver"
"""The store that is a file of the driver's."""
NO_STORE = "none"
_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]]*)(?::(?P<ports>[^:]+))?")


def _idle_timeout(text: str) -> int | str:
    return AUTO if text.strip().lower() == AUTO else duration(minimum=1)(text)


def _store(text: str) -> str:
    if text.strip().lower() in (DRIVER, NO_STORE):
        return text.strip().lower()
    # Loaded where it is needed: workers have no use for it.
    from watermark_source.group_store.database import store_of  # noqa: PLC0415

    store_of(text)
    return text


def _report_address(text: str) -> tuple[str | None, range | None]:
    """Parse a host, ports behind a colon, or both; an IPv6 address is in brackets."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError("an IPv6 address is in brackets" if found is None else "is empty")
    host = found["host"].strip("[]")
    return host_name(host) if host else None, ports(found["ports"]) if found["ports"] else None


def _group_name(text: str) -> str:
    name = non_empty(text)
    if len(name) > LONGEST_NAME or "\0" in name:
        raise ValueError(f"has {len(name)} characters" if len(name) > LONGEST_NAME else "has a NUL")
    return name


def _names(text: str) -> frozenset[str]:
    names = frozenset(name for part in text.split(",") if (name := part.strip()))
    if not names:
        raise ValueError("names no writer")
    if strange := sorted(name for name in names if not is_name(name)):
        # The source would wait for a writer that can never announce.
        raise ValueError(f"no writer can have the name {shortened(ascii(strange[0]))}")
    return names


def strategy_option(rows: Sequence[StrategyRow]) -> Option:
    """Return the option that chooses among strategies."""
    docs, names = " ".join(f"`{row.name}`: {row.doc}" for row in rows), [row.name for row in rows]
    return Option(
        name=OPTION,
        parse=strategy_name,
        accepted=f"must be {', '.join(names[:-1])} or {names[-1]}, or package.module:Class",
        default=BOUNDED,
        default_text=BOUNDED,
        example=BOUNDED,
        doc=f"How a split's watermark follows its event times. {docs} Or `package.module:Class`, [a strategy of your "
        "own](strategies.md#a-strategy-of-your-own).",
    )


ENGINE_OPTIONS: tuple[Option, ...] = (
    strategy_option(STRATEGIES),
    a_duration(
        name="maxOutOfOrderness",
        default="0 seconds",
        example="5 seconds",
        doc="How far an event may be behind the highest event time of its own split and still be on time. With "
        f"`percentile` the upper limit of the learned bound. {only_with('maxOutOfOrderness')}",
    ),
    Option(
        name="watermarkPercentile",
        parse=on_time,
        default=999_000,
        default_text="99.9",
        accepted="must be a percentage, at least 50 and less than 100, with at most four digits behind the point",
        example="99.9",
        doc="Percentage of the rows that are to be on time: the bound is the disorder that this share of the last "
        "rows did not exceed, of as many as make a hundred late ones likely: 100 000 for 99.9, 2 000 for 95. "
        f"{only_with('watermarkPercentile')}",
    ),
    at_least_one(
        name="lookaheadRows",
        default=200_000,
        example="200000",
        doc="Number of rows of each split that are read ahead of a batch: no row within this distance after a batch, "
        f"when the batch is planned, is made late by it. {only_with('lookaheadRows')}",
    ),
    a_duration(
        name="maxWatermarkLag",
        default="10 seconds",
        example="10 seconds",
        doc="How far the watermark of a split with nothing left to read stays behind the driver's clock: no event may "
        "be written to its log later than this after its own event time, by that clock. Where the log's system sets "
        f"the event times this is the largest difference between clocks. {only_with('maxWatermarkLag')}",
    ),
    Option(
        name="announcedBy",
        parse=_names,
        default_text="every writer that announces",
        accepted="must be a comma list of the names of writers",
        example="sessions-job",
        doc="Writers that must have announced a watermark before there is one. Others count as soon as they announce, "
        f"so name each writer that may not have begun yet. {only_with('announcedBy')}",
    ),
    a_duration(
        name="writerTimeToLive",
        minimum="1 second",
        example="10 minutes",
        doc="The watermark no longer waits for a writer that has announced nothing for this long, by the clock of this "
        "query's driver, while it could read the announcements; rows that the writer writes later may be late. With "
        "`Trigger.AvailableNow` it is the time from the writer's last announcement to the newest one of all writers, "
        "by the records' timestamps. By default a writer that is gone holds the watermark until it announces again or "
        f"is dropped. {only_with('writerTimeToLive')}",
    ),
    Option(
        name="idleTimeout",
        parse=_idle_timeout,
        default_text="off",
        accepted=f"must be auto, or {durations.ACCEPTED}, greater than zero",
        example="30 seconds",
        doc="A split that has had nothing left to read for longer than this is idle: it no longer holds the watermark "
        "back, and rows that it brings later may be late. `auto`: one and a half times the longest pauses that this "
        "run has seen of the split, at least 10 seconds and at most 5 minutes, and 5 minutes until ten batches after "
        "the backlog have brought rows of it. A split that is paused, behind, or cannot be reached is never idle.",
    ),
    Option(
        name="alignmentGroup",
        parse=_group_name,
        default_text="off",
        accepted=f"must be a name of at most {LONGEST_NAME} characters",
        example="checkout",
        doc="Name of the alignment group of the source's splits. Sources with the same group wait for each other. "
        "Needs `alignmentMaxDrift`, except with `watermarkStrategy` `none` or `idleFollows` `group`: without a drift "
        "a source waits only for sources that hold the group back.",
    ),
    a_duration(
        name="alignmentMaxDrift",
        example="2 minutes",
        doc="How far a split's watermark may be ahead of the slowest active split of its group. A split that is "
        "further ahead is paused. Of the sources of a group the lowest drift counts. Needs `alignmentGroup`.",
    ),
    Option(
        name="alignmentStore",
        parse=_store,
        default=DRIVER,
        default_text="driver",
        accepted="must be driver, none, or the URL of a database, as SQLAlchemy writes them",
        example="driver",
        doc="Where the sources of the group exchange their watermarks. `driver`: a private file, for all queries of "
        "one driver. The URL of a database: for several drivers that reach it; it gets a table "
        "`watermark_source_members`. A database server needs the extra `alignment` (SQLAlchemy) and the database's "
        "own driver; `sqlite:////path` needs nothing. `none`: no exchange, the group aligns the splits of this source "
        "only. A password in the URL appears in no log, error, status or checkpoint, but Spark itself prints options "
        "in `explain(True)`: use the database's own means for passwords (`PGPASSWORD`, `~/.pgpass`), or set "
        "`spark.sql.redaction.options.regex` to `(?i)url|alignmentstore`. Needs `alignmentGroup`.",
        secret=True,
    ),
    a_duration(
        name="alignmentTimeToLive",
        minimum="5 seconds",
        maximum="1 day",
        default="30 seconds",
        example="30 seconds",
        doc="The group no longer waits for a source that has published nothing for this long. Needs `alignmentGroup`.",
    ),
    at_least_one(
        name="alignmentMembers",
        default_text="no minimum",
        example="2",
        doc="A new query reads nothing until this number of sources has joined the group. Needs `alignmentGroup`.",
    ),
    one_of(
        name="alignmentHold",
        choices=(each.value for each in GroupHold),
        kind=GroupHold,
        default=GroupHold.SNAPSHOT.value,
        example=GroupHold.FIRST_WATERMARK.value,
        doc="What the other sources of the group wait for when this one begins. `snapshot`: for its snapshot, or its "
        "logs up to their ends (`whenCaughtUp` `watermark`). `firstWatermark`: for that, and until it has a watermark. "
        "`nothing`: they do not wait. Needs `alignmentGroup`.",
    ),
    one_of(
        name="whenCaughtUp",
        choices=(each.value for each in AfterCatchUp),
        kind=AfterCatchUp,
        default_text="off",
        example=AfterCatchUp.WATERMARK.value,
        doc="What begins once a new query has read its logs to the ends that they had when it began, and then to those "
        "that they had by then. `watermark`: the watermark; before there is none, and the other sources of the "
        "alignment group wait, as for a topic that is the build side of `temporal_join` "
        "([joins](joins.md#a-topic-as-build-side)). `clock`: event time becomes the clock (FLIP-326): history by event "
        "time, then [processing time](processing-time.md#history-then-the-clock); it never changes back, and cannot be "
        "with `watermarkStrategy` `none` or `finalWatermark`. Needs a start before the ends: `startingOffsets` "
        "`earliest`, for example.",
    ),
    one_of(
        name="idleReturn",
        choices=(WAITS, PASSES),
        default=WAITS,
        example="pass",
        doc="The combined watermark when an idle split returns with rows that are behind it, all of them late. "
        "`wait`: it stands still until the split has caught up. `pass`: the split is left out until then.",
    ),
    one_of(
        name="idleFollows",
        choices=(NOTHING, GROUP),
        default=NOTHING,
        example="group",
        doc="What advances the watermark while all splits are idle. `nothing`: it stands still. `group`: it follows "
        "the lowest watermark of the alignment group's other sources, and the highest once they are all idle too, so "
        "that joins and unions with them continue; rows that arrive behind it are late. Needs `alignmentGroup` and "
        "`idleTimeout`.",
    ),
    a_duration(
        name="maxFutureSkew",
        example="10 minutes",
        doc="An event further in the future than this, by the driver's clock when its batch is planned, does not "
        "advance the watermark: one wrong clock cannot make every other row late. Such rows are delivered and "
        f"counted. {not_with('maxFutureSkew')}",
    ),
    a_duration(
        name="watermarkInterval",
        minimum="1 ms",
        default="1 second",
        example="1 second",
        doc="While no rows arrive, a batch without rows advances the watermark this long after the last batch: by the "
        "clock with `watermarkStrategy` `none` and `ingestion`, and of a class with `on_silence`, by the group with "
        "`idleFollows` `group`, by the system's own time where the system sets the times of its rows. With `announced` "
        "it is the least time between two batches without rows (by default 200 milliseconds).",
    ),
    a_duration(
        name="watermarkWarningAfter",
        minimum="1 ms",
        default="1 minute",
        example="5 minutes",
        doc="After this long without a first watermark, or with one that stands still although rows are read, a "
        "warning is logged: which partition holds the watermark back, since when, and which option to set "
        "([troubleshooting](troubleshooting.md)).",
    ),
    true_or_false(
        name="finalWatermark",
        default=False,
        example="true",
        doc="Whether the stream ends with this run: after its last rows the watermark is the end of time, and "
        "windows, joins and ordering emit all that they hold. For data that are complete, with `Trigger.AvailableNow` "
        f"only. Its checkpoint reads no further rows. {not_with('finalWatermark')}",
    ),
    true_or_false(
        name="includeMarkers",
        default=True,
        example="true",
        doc="Whether marker rows, which carry the watermark, are part of the stream. `follow_watermark` needs them.",
    ),
    true_or_false(
        name="includeLate",
        default=False,
        example="true",
        doc="Whether the stream has a column `late`: true for a row at or before the watermark with which its batch "
        "begins. `split_late` makes two streams of it. Late rows are counted in any case.",
    ),
    Option(
        name="sourceName",
        parse=non_empty,
        default_text="the format's name",
        accepted="must be a name that is not empty",
        example="orders",
        doc="A name for this source in its offsets, status and metrics. A checkpoint belongs to one name.",
    ),
    at_least_one(
        name="minPartitions",
        default_text="chosen by size",
        example="8",
        doc="Minimum number of tasks that read a batch, if it has that many rows. By default small ranges share a "
        "task and large ones are cut, by their size.",
    ),
    at_least_one(
        name="maxRecordsPerPartition",
        default_text="chosen by size",
        example="500000",
        doc="Maximum number of rows read by one task; larger ranges are cut. Can be combined with `minPartitions`.",
    ),
    Option(
        name="reportAddress",
        parse=_report_address,
        default_text="detected, any free port",
        accepted="must be a host, host:ports or :ports, with a port or the first and last of several",
        example="driver.example.org:40000-40015",
        doc="Where executors send progress reports: the name or address of the driver's machine, if it is neither "
        "`spark.driver.host` of the command line nor one that the machine has for itself, and the ports, where a "
        "firewall opens only some. Each source of each running query uses one.",
    ),
)
"""The rows that every source has: event time, watermarks, idleness, alignment, markers, tasks (docs/options.md)."""

RENAMED = (
    Renamed("maxEventTimeLag", "maxWatermarkLag"),
    Renamed("alignmentWaitForFirst", "alignmentHold", {"true": "firstWatermark", "false": None}),
    Renamed("percentileRows", None, why="watermarkPercentile decides how many rows the bound is learned from"),
    Renamed("lookaheadTime", None, why="lookaheadRows limits what is read ahead"),
    Renamed("reportHost", "reportAddress", joined=""),
    Renamed("reportPorts", "reportAddress", prefix=":", joined=""),
)
"""Options of every source in earlier versions."""
IN_A_BATCH = frozenset({"includeMarkers", "minPartitions", "maxRecordsPerPartition"})
"""The engine's options that mean something in a batch read too; it ignores the others."""
ONLY_IN_STREAMS = tuple(row.name for row in ENGINE_OPTIONS if row.name not in IN_A_BATCH)
"""Names of ``ENGINE_OPTIONS`` that a batch read ignores with a warning."""
NOT_NEEDED: Mapping[str, str] = {
    "alignmentUpdateInterval": "the limit of an alignment group is computed for each batch",
    "allowUnalignedSourceSplits": "every split of every source can be paused",
    "autoWatermarkInterval": "a watermark is sent with each batch; watermarkInterval sets how often without rows",
    "bufferSize": "a split that is paused is not read, so nothing is buffered for it",
}
"""Options of Flink and Pravega about watermarks that these sources do without, and why."""
