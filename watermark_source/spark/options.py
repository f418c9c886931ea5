"""What a user's options mean for the engine, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from watermark_source.errors import OptionError
from watermark_source.option_table import OptionTable, given_text
from watermark_source.planning.policy import AfterCatchUp, Alignment, Idleness, PlanPolicy
from watermark_source.planning.status_transitions import LONGEST_IDLE_TIMEOUT
from watermark_source.planning.strategy import Abilities
from watermark_source.spark.option_rows import AUTO, DRIVER, GROUP, NO_STORE
from watermark_source.spark.strategy_rows import NONE, PASSES, StrategyRow, strategy_row

_OF_OTHERS = ("alignmentTimeToLive", "alignmentMembers", "alignmentHold")
"""Options about the other sources of a group: there must be a place to meet them."""
_WARNING = "watermarkWarningAfter"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Where and how a source meets the others of its alignment group."""

    name: str
    store: str | None = field(repr=False)
    """``None``: it joins none."""
    time_to_live: int
    members: int | None


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Where tasks report to."""

    host: str | None = None
    ports: range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The engine's options after parsing; durations in milliseconds."""

    source_name: str
    policy: PlanPolicy
    """What the planner goes by; a stream's reader has its ``on_loss`` and ``minimum_rows``, too."""
    group: GroupOptions | None
    """``None``: the source is in no alignment group."""
    watermark_warning_after: int
    """For how long the watermark stands before a warning."""
    asks_for_markers: bool
    """Whether the user has set ``includeMarkers``, and so knows of marker rows."""
    include_late: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    reports: ReportOptions

    @classmethod
    def of(
        cls,
        values: Mapping[str, Any],
        *,
        format_name: str,
        given: Mapping[str, str],
        abilities: Abilities = Abilities(),  # noqa: B008 - frozen
    ) -> EngineOptions:
        """Build from parsed values and check what concerns several options at once.

        ``abilities``: what the connector declares; a strategy that needs more is refused.

        Raises:
            OptionError: options that cannot be together, or one that another needs.
        """
        row = strategy_row(values["watermarkStrategy"])
        row.check(values, given, abilities)
        _check_drift(values)
        strategy = row.make(values, given)
        _check_group(values, given)
        _check_interval(row, values, given, abilities)
        _check_idleness(values)
        _check_markers(values, given)
        _check_warnings(values, given)
        _check_catch_up(values)
        _check_clock(values)
        return cls(
            source_name=values["sourceName"] or format_name,
            policy=PlanPolicy(
                strategy=strategy,
                max_future_skew=values["maxFutureSkew"],
                watermark_interval=_watermark_interval(row, values, given),
                idleness=_idleness(values),
                alignment=Alignment(max_drift=values["alignmentMaxDrift"], hold=values["alignmentHold"]),
                final_watermark=values["finalWatermark"],
                after_catch_up=values["whenCaughtUp"],
                sends_markers=values["includeMarkers"],
            ),
            group=_group(values),
            watermark_warning_after=values["watermarkWarningAfter"],
            asks_for_markers=given_text(given, "includeMarkers") is not None,
            include_late=values["includeLate"],
            min_partitions=values["minPartitions"],
            max_records_per_partition=values["maxRecordsPerPartition"],
            reports=ReportOptions(*(values["reportAddress"] or ())),
        )


def _watermark_interval(row: StrategyRow, values: Mapping[str, Any], given: Mapping[str, str]) -> int:
    """Return the interval that the user wrote, else that of the strategy, else the default."""
    interval: int = values["watermarkInterval"]
    return interval if row.interval is None or given_text(given, "watermarkInterval") is not None else row.interval


def _idleness(values: Mapping[str, Any]) -> Idleness:
    learned = values["idleTimeout"] == AUTO
    return Idleness(
        timeout=LONGEST_IDLE_TIMEOUT if learned else values["idleTimeout"],
        learned=learned,
        follows_group=values["idleFollows"] == GROUP,
        passes_returning=values["idleReturn"] == PASSES,
    )


def _group(values: Mapping[str, Any]) -> GroupOptions | None:
    if values["alignmentGroup"] is None:
        return None
    return GroupOptions(
        name=values["alignmentGroup"],
        store=None if values["alignmentStore"] == NO_STORE else values["alignmentStore"],
        time_to_live=values["alignmentTimeToLive"],
        members=values["alignmentMembers"],
    )


# What cannot be together, or needs another option. A user reads the first error, so the order is that of ``of``.


def _check_drift(values: Mapping[str, Any]) -> None:
    """A group has a max drift, except where time is the clock or the group is only followed; a drift has a group."""
    group, drift = values["alignmentGroup"], values["alignmentMaxDrift"]
    needs_drift = values["watermarkStrategy"] != NONE and values["idleFollows"] != GROUP
    if group is None and drift is not None:
        raise OptionError("alignmentGroup", None, "is needed because alignmentMaxDrift is set", example="checkout")
    if group is not None and drift is None and needs_drift:
        raise OptionError("alignmentMaxDrift", None, "is needed because alignmentGroup is set", example="2 minutes")


def _check_group(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Options about a group need its name, and those about its other members a store."""
    group = values["alignmentGroup"]
    for name in ("alignmentStore", *_OF_OTHERS):
        if group is None and given_text(given, name) is not None:
            raise OptionError("alignmentGroup", None, f"is needed because {name} is set", example="checkout")
    of_others = [f"{name} is set" for name in _OF_OTHERS if given_text(given, name) is not None]
    if group is not None and values["idleFollows"] == GROUP:
        of_others.append("idleFollows is group")
    if of_others and values["alignmentStore"] == NO_STORE:
        raise OptionError(
            "alignmentStore", NO_STORE, f"must be a place to meet, because {of_others[0]}", example=DRIVER
        )


def _check_interval(
    row: StrategyRow, values: Mapping[str, Any], given: Mapping[str, str], abilities: Abilities
) -> None:
    """The interval is for a watermark that the clock advances."""
    clock_advances = "watermarkInterval" in row.options or abilities.dates_rows or values["idleFollows"] == GROUP
    text = given_text(given, "watermarkInterval")
    if text is not None and not clock_advances:
        raise OptionError(
            "watermarkInterval", text,
            "belongs to watermarkStrategy none, ingestion, announced or a class with on_silence, and the strategy is "
            f"{row.name}: its watermark follows rows, not the clock (except with idleFollows group)",
            example="leave it out",
        )  # fmt: skip


def _check_clock(values: Mapping[str, Any]) -> None:
    """Where time is the clock, the group is there to wait for its other members: it needs a store."""
    has_group, meets_none = values["alignmentGroup"] is not None, values["alignmentStore"] == NO_STORE
    if values["watermarkStrategy"] == NONE and has_group and meets_none:
        raise OptionError(
            "alignmentStore", NO_STORE,
            "cannot be with watermarkStrategy none: on the clock a source waits for others alone",
            example=DRIVER,
        )  # fmt: skip


def _check_markers(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Options that promise a watermark need markers."""
    for name in ("finalWatermark", "whenCaughtUp"):
        if values[name] and not values["includeMarkers"]:
            raise OptionError(
                "includeMarkers", given_text(given, "includeMarkers"),
                f"must be true with {name}: markers carry the watermark", example="leave it out",
            )  # fmt: skip


def _check_catch_up(values: Mapping[str, Any]) -> None:
    if values["whenCaughtUp"] is not AfterCatchUp.CLOCK:
        return
    if values["watermarkStrategy"] == NONE:
        raise OptionError(
            "whenCaughtUp", AfterCatchUp.CLOCK.value,
            "has no meaning with watermarkStrategy none, where time is the clock from the start: with watermark there "
            "is none before the logs are read to their ends, and then the clock", example=AfterCatchUp.WATERMARK.value,
        )  # fmt: skip
    if values["finalWatermark"]:
        raise OptionError("finalWatermark", "true", "excludes whenCaughtUp clock: a clock has no end")


def _check_warnings(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    text = given_text(given, _WARNING)
    why = {
        "watermarkStrategy none: the watermark is the clock, and never stands": values["watermarkStrategy"] == NONE,
        "includeMarkers false: no window follows the source's watermark": not values["includeMarkers"],
    }
    for what in (what for what, is_so in why.items() if is_so and text is not None):
        raise OptionError(_WARNING, text, f"has no meaning with {what}", example="leave it out")


def _check_idleness(values: Mapping[str, Any]) -> None:
    follows = values["idleFollows"] == GROUP
    given = {"idleReturn is pass": values["idleReturn"] == PASSES, "idleFollows is group": follows}
    for what in (what for what, is_so in given.items() if is_so and values["idleTimeout"] is None):
        raise OptionError("idleTimeout", None, f"is needed because {what}", example="30 seconds")
    if follows and values["alignmentGroup"] is None:
        raise OptionError("alignmentGroup", None, "is needed because idleFollows is group", example="checkout")


# A user's options as a connector gets them.


@dataclass(frozen=True, slots=True)
class SourceOptions(Mapping[str, Any]):
    """The user's options after the checks of ``load()``: each value by its name in the table, defaults included."""

    parsed: Mapping[str, Any] = field(repr=False)
    given: Mapping[str, str] = field(repr=False)
    """What the user wrote, with the options of families (``OptionTable.prefixes``); names are in any case."""
    engine: EngineOptions
    """What the options of every source mean."""

    @classmethod
    def of(
        cls,
        table: OptionTable,
        given: Mapping[str, str],
        *,
        format_name: str,
        abilities: Callable[[Mapping[str, Any]], Abilities],
    ) -> SourceOptions:
        """Parse the user's options by a table and check what concerns several of them at once.

        Raises:
            OptionError: a value, a name or a combination that is not accepted.
        """
        given = table.current(given)
        values = table.parse(given)
        engine = EngineOptions.of(values, format_name=format_name, given=given, abilities=abilities(values))
        return cls(values, given, engine)

    def text(self, name: str) -> str | None:
        """Return what the user wrote for an option, ``None`` if it was left out: an error shows it."""
        return given_text(self.given, name)

    def refusal(self, name: str, why: str, *, example: str | None = None) -> OptionError:
        """Return the error that refuses what the user wrote for an option, or that it was left out."""
        return OptionError(name, self.text(name), why, example=example)

    def __getitem__(self, name: str) -> Any:
        return self.parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed)

    def __len__(self) -> int:
        return len(self.parsed)
