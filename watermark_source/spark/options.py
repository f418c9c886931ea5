"""What a user's options mean for the engine, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watermark_source.contract.abilities import Abilities
from watermark_source.errors import OptionError
from watermark_source.option_table import OptionTable, given_text
from watermark_source.planning.catch_up import AfterCatchUp
from watermark_source.planning.policy import Alignment, Idleness
from watermark_source.planning.status_transitions import LONGEST_IDLE_TIMEOUT
from watermark_source.planning.strategy import ProcessingTime, WatermarkStrategy
from watermark_source.spark.option_rows import AUTO, DRIVER, GROUP, NO_STORE
from watermark_source.spark.strategy_rows import NONE, PASSES, strategy_row

_OF_OTHERS = ("alignmentTimeToLive", "alignmentMembers", "alignmentWaitForFirst", "snapshotHoldsGroup")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """Into how many tasks a batch is cut."""

    min_partitions: int | None
    max_records_per_partition: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Where tasks report to."""

    host: str | None
    ports: range | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The engine's options after parsing; durations in milliseconds."""

    source_name: str
    strategy: WatermarkStrategy
    max_future_skew: int | None
    watermark_interval: int
    idleness: Idleness
    alignment: Alignment
    group: GroupOptions | None
    """``None``: the source is in no alignment group."""
    final_watermark: bool
    """Whether the run is the stream's last."""
    after_catch_up: AfterCatchUp | None
    """What begins once the logs have been read to the ends that they had at the start."""
    watermark_warning_after: int
    """For how long the watermark stands before a warning."""
    include_markers: bool
    include_late: bool
    tasks: TaskOptions
    reports: ReportOptions

    @property
    def on_clock(self) -> EngineOptions:
        """The options once event time is the clock: see ``PlanPolicy.on_clock``."""
        alignment = replace(self.alignment, max_drift=None)
        return replace(self, strategy=ProcessingTime(), max_future_skew=None, idleness=Idleness(), alignment=alignment)

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
        named = {name.lower() for name in given}
        row = strategy_row(values["watermarkStrategy"])
        row.check(given, abilities)
        row.check_excluded(values, given)
        group, drift = values["alignmentGroup"], values["alignmentMaxDrift"]
        needs_drift = values["watermarkStrategy"] != NONE and values["idleFollows"] != GROUP
        if (group is None) != (drift is None) and (group is None or needs_drift):
            here, missing = ("alignmentGroup", "alignmentMaxDrift") if drift is None else (
                "alignmentMaxDrift", "alignmentGroup")  # fmt: skip
            example = "2 minutes" if drift is None else "checkout"
            raise OptionError(missing, None, f"is needed because {here} is set", example=example)
        strategy = row.make(values, given)
        store = None if group is None or values["alignmentStore"] == NO_STORE else values["alignmentStore"]
        for name in ("alignmentStore", *_OF_OTHERS):
            if group is None and name.lower() in named:
                raise OptionError("alignmentGroup", None, f"is needed because {name} is set", example="checkout")
        of_others = [f"{name} is set" for name in _OF_OTHERS if name.lower() in named]
        if group is not None and values["idleFollows"] == GROUP:
            of_others.append("idleFollows is group")
        if store is None and of_others:
            raise OptionError(
                "alignmentStore", NO_STORE, f"must be a place to meet, because {of_others[0]}", example=DRIVER
            )
        clock_advances = "watermarkInterval" in row.options or abilities.dates_rows or values["idleFollows"] == GROUP
        if not clock_advances and "watermarkinterval" in named:
            raise OptionError(
                "watermarkInterval", given_text(given, "watermarkInterval"),
                f"belongs to watermarkStrategy none, ingestion or announced, and the strategy is {row.name}: its "
                "watermark follows rows, not the clock (except with idleFollows group)", example="leave it out",
            )  # fmt: skip
        _check_idleness(values)
        _check_end(values, given)
        _check_warnings(values, given)
        after_catch_up = _after_catch_up(values, given)
        if row.name == NONE and group is not None and store is None:
            raise OptionError(
                "alignmentStore", NO_STORE,
                "cannot be with watermarkStrategy none: on the clock a source waits for others alone",
                example=DRIVER,
            )  # fmt: skip
        return cls(
            source_name=values["sourceName"] or format_name,
            strategy=strategy,
            max_future_skew=values["maxFutureSkew"],
            watermark_interval=values["watermarkInterval"]
            if row.interval is None or "watermarkinterval" in named
            else row.interval,
            idleness=Idleness(
                timeout=LONGEST_IDLE_TIMEOUT if values["idleTimeout"] == AUTO else values["idleTimeout"],
                learned=values["idleTimeout"] == AUTO,
                follows_group=values["idleFollows"] == GROUP,
                passes_returning=values["idleReturn"] == PASSES,
            ),
            alignment=Alignment(
                max_drift=drift,
                holds_in_snapshot=values.get("snapshotHoldsGroup", True),
                waits_for_first=values["alignmentWaitForFirst"],
            ),
            group=None
            if group is None
            else GroupOptions(
                name=group,
                store=store,
                time_to_live=values["alignmentTimeToLive"],
                members=values["alignmentMembers"],
            ),
            final_watermark=values["finalWatermark"],
            after_catch_up=after_catch_up,
            watermark_warning_after=values["watermarkWarningAfter"],
            include_markers=values["includeMarkers"],
            include_late=values["includeLate"],
            tasks=TaskOptions(
                min_partitions=values["minPartitions"], max_records_per_partition=values["maxRecordsPerPartition"]
            ),
            reports=ReportOptions(host=values["reportHost"], ports=values["reportPorts"]),
        )


def _check_end(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    if not values["finalWatermark"]:
        return
    if not values["includeMarkers"]:
        raise OptionError(
            "includeMarkers", given_text(given, "includeMarkers"),
            "must be true with finalWatermark: markers carry the watermark", example="leave it out",
        )  # fmt: skip


def _after_catch_up(values: Mapping[str, Any], given: Mapping[str, str]) -> AfterCatchUp | None:
    wanted = [after for after in AfterCatchUp if values.get(after.value)]
    if not wanted:
        return None
    after = wanted[0]
    if len(wanted) > 1:
        raise OptionError(
            AfterCatchUp.CLOCK.value, "true",
            f"excludes {AfterCatchUp.WATERMARK.value}: before the source has caught up, either there is no watermark "
            f"or one of event times. For no watermark, then the clock, give {AfterCatchUp.WATERMARK.value} and "
            "watermarkStrategy none", example="leave it out",
        )  # fmt: skip
    if not values["includeMarkers"]:
        raise OptionError(
            "includeMarkers", given_text(given, "includeMarkers"),
            f"must be true with {after.value}: markers carry the watermark", example="leave it out",
        )  # fmt: skip
    if after is AfterCatchUp.CLOCK and values["watermarkStrategy"] == NONE:
        raise OptionError(
            after.value, "true", "has no meaning with watermarkStrategy none: time is the clock from the start",
            example="leave it out",
        )  # fmt: skip
    if after is AfterCatchUp.CLOCK and values["finalWatermark"]:
        raise OptionError("finalWatermark", "true", f"excludes {after.value}: a clock has no end")
    return after


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
    """What the user wrote, with the options of families such as ``kafka.``; names are in any case."""
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
        values = table.parse(given)
        engine = EngineOptions.of(values, format_name=format_name, given=given, abilities=abilities(values))
        return cls(values, given, engine)

    def text(self, name: str) -> str | None:
        """Return what the user wrote for an option, ``None`` if it was left out: an error shows it."""
        return given_text(self.given, name)

    def __getitem__(self, name: str) -> Any:
        return self.parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed)

    def __len__(self) -> int:
        return len(self.parsed)
