"""The options every source of this project has: event time, watermarks, idleness, alignment, markers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watermark_source import durations
from watermark_source.alignment.group import LONGEST_NAME
from watermark_source.errors import OptionError
from watermark_source.option_table import Option, boolean, duration, host_name, non_empty, ports, positive_integer, word

BOUNDED = "bounded"
MONOTONOUS = "monotonous"
INGESTION = "ingestion"
NONE = "none"

DRIVER = "driver"
"""The store that is a file of the driver's."""
NO_STORE = "none"


def _store(text: str) -> str:
    if text.strip().lower() in (DRIVER, NO_STORE):
        return text.strip().lower()
    # Loaded where it is needed: it takes a third of a second.
    from watermark_source.group_store.store import store_url  # noqa: PLC0415

    store_url(text)
    return text


def _group_name(text: str) -> str:
    name = non_empty(text)
    if len(name) > LONGEST_NAME or "\0" in name:
        raise ValueError(f"has {len(name)} characters" if len(name) > LONGEST_NAME else "has a NUL")
    return name


ENGINE_OPTIONS: tuple[Option, ...] = (
    Option(
        name="watermarkStrategy",
        parse=word((BOUNDED, MONOTONOUS, INGESTION, NONE)),
        default=BOUNDED,
        accepted="must be bounded, monotonous, ingestion or none",
        example="bounded",
        doc="How a split's watermark follows its event times. `bounded`: the highest event time seen less "
        "`maxOutOfOrderness` and one millisecond. `monotonous`: the same with no disorder allowed. `ingestion`: the "
        "same as `bounded`, and while a split has nothing left to read its watermark follows the clock at a distance "
        "of `maxWatermarkLag`. `none`: no event-time watermark; time is the clock (processing-time watermark).",
    ),
    Option(
        name="maxOutOfOrderness",
        parse=duration(minimum=0),
        default=0,
        default_text="0 seconds",
        accepted=f"must be {durations.ACCEPTED}",
        example="5 seconds",
        doc="How far an event may be behind the highest event time of its own split and still be on time. Only with "
        "`watermarkStrategy` `bounded` or `ingestion`.",
    ),
    Option(
        name="maxWatermarkLag",
        parse=duration(minimum=0),
        default_text="10 seconds",
        accepted=f"must be {durations.ACCEPTED}",
        example="10 seconds",
        doc="How far the watermark of a split that has nothing left to read is behind the driver's clock: no event may "
        "be written to its log later than this after its own event time, by that clock. Where the log's system dates "
        "the events (Kafka's `LogAppendTime`) that is the most by which clocks differ. Only with `watermarkStrategy` "
        "`ingestion`.",
    ),
    Option(
        name="maxEventTimeLag",
        parse=duration(minimum=0),
        default_text="10 seconds",
        accepted=f"must be {durations.ACCEPTED}",
        example="1 minute",
        doc="The same as `maxWatermarkLag`, where applications date the events: how long after its event time an event "
        "is written at the latest. Give one of the two.",
    ),
    Option(
        name="idleTimeout",
        parse=duration(minimum=1),
        default_text="off",
        accepted=f"must be {durations.ACCEPTED}, greater than zero",
        example="30 seconds",
        doc="A split that has nothing left to read for longer than this is idle: it no longer holds the watermark "
        "back, and what it brings later may be late. A split that is paused, behind, or cannot be reached is never "
        "idle.",
    ),
    Option(
        name="alignmentGroup",
        parse=_group_name,
        default_text="off",
        accepted=f"must be a name of at most {LONGEST_NAME} characters",
        example="checkout",
        doc="Name of the alignment group the source's splits belong to. Needs `alignmentMaxDrift`, but "
        "with `watermarkStrategy` `none`, with which a source only waits for those that hold the group. Sources "
        "that name the same group wait for each other.",
    ),
    Option(
        name="alignmentMaxDrift",
        parse=duration(minimum=0),
        default_text="off",
        accepted=f"must be {durations.ACCEPTED}",
        example="2 minutes",
        doc="How far a split's watermark may be ahead of the slowest active split of its group. A split that is "
        "further ahead is paused. One group has one drift. Needs `alignmentGroup`.",
    ),
    Option(
        name="alignmentStore",
        parse=_store,
        default=DRIVER,
        default_text="driver",
        accepted="must be driver, none, or the URL of a database, as SQLAlchemy writes them",
        example="driver",
        doc="Where the sources of the group meet. `driver`: in a private file, those of all queries of one driver. The "
        "URL of a database that all of them reach: those of several drivers; it gets a table "
        "`watermark_source_members`. `none`: nowhere, the group holds the splits of this source. A password in the URL "
        "appears in no log, error, status or checkpoint; Spark itself prints options in `explain(True)`: leave it to "
        "the database's own means (`PGPASSWORD`, `~/.pgpass`), or set `spark.sql.redaction.options.regex` to "
        "`(?i)url|alignmentstore`. Needs `alignmentGroup`.",
        secret=True,
    ),
    Option(
        name="alignmentTimeToLive",
        parse=duration(minimum=5_000),
        default=30_000,
        default_text="30 seconds",
        accepted=f"must be {durations.ACCEPTED}, at least 5 seconds",
        example="30 seconds",
        doc="The others go on without a source of the group that has said nothing for so long. Needs `alignmentGroup`.",
    ),
    Option(
        name="alignmentMembers",
        parse=positive_integer,
        default_text="whoever is there",
        accepted="must be a whole number of at least 1",
        example="2",
        doc="A new query reads nothing before so many sources of the group are there. Needs `alignmentGroup`.",
    ),
    Option(
        name="alignmentWaitForFirst",
        parse=boolean,
        default=False,
        default_text="false",
        accepted="must be true or false",
        example="false",
        doc="Whether the group waits for this source's first row. Needs `alignmentGroup`.",
    ),
    Option(
        name="maxFutureSkew",
        parse=duration(minimum=0),
        default_text="off",
        accepted=f"must be {durations.ACCEPTED}",
        example="10 minutes",
        doc="An event further in the future than this, by the driver's clock when its batch is planned, does not move "
        "the watermark: one broken clock cannot make every other row late. Such rows are delivered and counted. Not "
        "with `watermarkStrategy` `none`.",
    ),
    Option(
        name="watermarkInterval",
        parse=duration(minimum=1),
        default=1_000,
        default_text="1 second",
        accepted=f"must be {durations.ACCEPTED}, greater than zero",
        example="1 second",
        doc="While no rows come, time moves on this long after the last batch, with one without rows: the clock's with "
        "`watermarkStrategy` `none` and `ingestion`; with the others only that of a system that dates its rows.",
    ),
    Option(
        name="includeMarkers",
        parse=boolean,
        default=True,
        default_text="true",
        accepted="must be true or false",
        example="true",
        doc="Whether marker rows, which carry the watermark, are part of the stream. `follow_watermark` needs them.",
    ),
    Option(
        name="includeLate",
        parse=boolean,
        default=False,
        default_text="false",
        accepted="must be true or false",
        example="true",
        doc="Whether the stream has a column `late`: true for a row at or before the watermark that its batch begins "
        "with. `split_late` makes two streams of it. Late rows are counted in any case.",
    ),
    Option(
        name="sourceName",
        parse=non_empty,
        default_text="the format's name",
        accepted="must be a name that is not empty",
        example="orders",
        doc="A name for this source in its offsets, status and metrics. A checkpoint belongs to one name.",
    ),
    Option(
        name="minPartitions",
        parse=positive_integer,
        default_text="chosen by size",
        accepted="must be a whole number of at least 1",
        example="8",
        doc="At least so many tasks read a batch, if it has that many rows. By default small ranges share a task and "
        "big ones are cut, by their size.",
    ),
    Option(
        name="maxRecordsPerPartition",
        parse=positive_integer,
        default_text="chosen by size",
        accepted="must be a whole number of at least 1",
        example="500000",
        doc="At most so many rows are read by one task; bigger ranges are cut. With `minPartitions` both hold.",
    ),
    Option(
        name="reportHost",
        parse=host_name,
        default_text="found out",
        accepted="must be a host name or an address",
        example="driver.example.org",
        doc="Under which name or address executors reach the driver with their progress reports, if not under those "
        "its machine knows of itself; usually the same as `spark.driver.host`.",
    ),
    Option(
        name="reportPorts",
        parse=ports,
        default_text="any free port",
        accepted="must be a port or the first and last of several",
        example="40000-40015",
        doc="Ports of the driver for progress reports, where a firewall lets only some through. Each source of each "
        "running query takes one.",
    ),
)

IN_A_BATCH = frozenset({"includeMarkers", "minPartitions", "maxRecordsPerPartition"})
"""The engine's options that mean something in a batch read too; it ignores the others."""

DEFAULT_WATERMARK_LAG = 10_000
_LAGS = ("maxWatermarkLag", "maxEventTimeLag")
"""Two names for one bound: of clocks, and of an application."""
_OF_OTHERS = ("alignmentTimeToLive", "alignmentMembers", "alignmentWaitForFirst", "snapshotHoldsGroup")
"""Options about the other sources of a group: there must be a place to meet them."""
_OF_EVENT_TIME = {
    "alignmentMaxDrift": "the clock is the same everywhere",
    "idleTimeout": "a clock is never idle",
    "maxFutureSkew": "a row's event time is the clock's, and never in the future",
}
"""Options that need event times, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The engine's options after parsing; durations in milliseconds."""

    source_name: str
    out_of_orderness: int
    """Of the bounded strategy; meaningless when ``processing_time`` is set."""
    watermark_lag: int | None
    """Of the ingestion strategy; ``None`` with the others."""
    processing_time: bool
    idle_timeout: int | None
    alignment_group: str | None
    alignment_max_drift: int | None
    alignment_store: str | None = field(repr=False)
    alignment_time_to_live: int
    alignment_members: int | None
    alignment_wait_for_first: bool
    snapshot_holds_group: bool
    max_future_skew: int | None
    watermark_interval: int
    include_markers: bool
    include_late: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    report_host: str | None
    report_ports: range | None

    @classmethod
    def of(
        cls, values: Mapping[str, Any], *, format_name: str, given: Mapping[str, str], dated: bool = False
    ) -> EngineOptions:
        """Build from parsed values and check what concerns several options at once.

        ``dated``: the source's system dates its rows by itself, and tells what time it is.

        Raises:
            OptionError: options that cannot be together, or one that another needs.
        """
        named = {name.lower() for name in given}
        group, drift = values["alignmentGroup"], values["alignmentMaxDrift"]
        if (group is None) != (drift is None) and (group is None or values["watermarkStrategy"] != NONE):
            here, missing = ("alignmentGroup", "alignmentMaxDrift") if drift is None else (
                "alignmentMaxDrift", "alignmentGroup")  # fmt: skip
            example = "2 minutes" if drift is None else "checkout"
            raise OptionError(missing, None, f"is needed because {here} is set", example=example)
        strategy = values["watermarkStrategy"]
        if strategy not in (BOUNDED, INGESTION) and "maxoutoforderness" in named:
            raise OptionError(
                "maxOutOfOrderness", given_text(given, "maxOutOfOrderness"),
                f"belongs to watermarkStrategy bounded or ingestion, and the strategy is {strategy}",
                example="leave it out",
            )  # fmt: skip
        lag = _watermark_lag(values, given, dated=dated)
        store = None if group is None or values["alignmentStore"] == NO_STORE else values["alignmentStore"]
        for name in ("alignmentStore", *_OF_OTHERS):
            if group is None and name.lower() in named:
                raise OptionError("alignmentGroup", None, f"is needed because {name} is set", example="checkout")
        for name in _OF_OTHERS:
            if store is None and name.lower() in named:
                raise OptionError(
                    "alignmentStore", NO_STORE, f"must be a place to meet, because {name} is set", example=DRIVER
                )
        if strategy not in (NONE, INGESTION) and not dated and "watermarkinterval" in named:
            raise OptionError(
                "watermarkInterval", given_text(given, "watermarkInterval"),
                f"belongs to watermarkStrategy none or ingestion, and the strategy is {strategy}: its watermark "
                "follows rows, not the clock", example="leave it out",
            )  # fmt: skip
        for name, why in _OF_EVENT_TIME.items():
            if strategy == NONE and values[name] is not None:
                raise OptionError(
                    name, given_text(given, name), f"has no meaning with watermarkStrategy none: {why}",
                    example="leave it out",
                )  # fmt: skip
        if strategy == NONE and group is not None and store is None:
            raise OptionError(
                "alignmentStore", NO_STORE,
                "cannot be with watermarkStrategy none: on the clock a source waits for others alone",
                example=DRIVER,
            )  # fmt: skip
        return cls(
            source_name=values["sourceName"] or format_name,
            out_of_orderness=values["maxOutOfOrderness"] if strategy in (BOUNDED, INGESTION) else 0,
            watermark_lag=lag,
            processing_time=strategy == NONE,
            idle_timeout=values["idleTimeout"],
            alignment_group=group,
            alignment_max_drift=drift,
            alignment_store=store,
            alignment_time_to_live=values["alignmentTimeToLive"],
            alignment_members=values["alignmentMembers"],
            alignment_wait_for_first=values["alignmentWaitForFirst"],
            snapshot_holds_group=values.get("snapshotHoldsGroup", True),
            max_future_skew=values["maxFutureSkew"],
            watermark_interval=values["watermarkInterval"],
            include_markers=values["includeMarkers"],
            include_late=values["includeLate"],
            min_partitions=values["minPartitions"],
            max_records_per_partition=values["maxRecordsPerPartition"],
            report_host=values["reportHost"],
            report_ports=values["reportPorts"],
        )


def _watermark_lag(values: Mapping[str, Any], given: Mapping[str, str], *, dated: bool) -> int | None:
    strategy = values["watermarkStrategy"]
    named = [name for name in _LAGS if values[name] is not None]
    if strategy != INGESTION:
        if named:
            raise OptionError(
                named[0], given_text(given, named[0]),
                f"belongs to watermarkStrategy ingestion, and the strategy is {strategy}", example="leave it out",
            )  # fmt: skip
        return None
    if dated:
        raise OptionError(
            "watermarkStrategy", INGESTION,
            "is not needed here: the source's own system dates its rows, and with bounded the watermark follows its "
            "clock while nothing is written", example=BOUNDED,
        )  # fmt: skip
    if len(named) > 1:
        raise OptionError(named[1], given_text(given, named[1]), f"excludes {named[0]}; give one of the two")
    lag: int = values[named[0]] if named else DEFAULT_WATERMARK_LAG
    if values["maxOutOfOrderness"] > lag:
        raise OptionError(
            "maxOutOfOrderness", given_text(given, "maxOutOfOrderness"),
            f"must not exceed {named[0] if named else 'maxWatermarkLag'}, which is {durations.format_duration(lag)}: "
            "an event so far behind would be late as soon as its split has nothing left to read", example="5 seconds",
        )  # fmt: skip
    return lag


def given_text(given: Mapping[str, str], name: str) -> str | None:
    """Return the user's text for an option, whatever case its name was written in."""
    return next((str(v) for k, v in given.items() if k.lower() == name.lower()), None)
