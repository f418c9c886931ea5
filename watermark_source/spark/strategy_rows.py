"""One row for each watermark strategy: the value of ``watermarkStrategy``, its options, and how to make the object.

A class of the user's own is a value, too, ``package.module:Class``: its row is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from watermark_source.durations import format_duration
from watermark_source.errors import OptionError
from watermark_source.option_table import given_text, word
from watermark_source.planning.announced import AnnouncedBy
from watermark_source.planning.disorder import MILLION, SEGMENT
from watermark_source.planning.generator import Own, OwnWithMarks, class_name, load_generator, names_a_class
from watermark_source.planning.policy import GroupHold
from watermark_source.planning.strategy import (
    Abilities,
    Announced,
    Bounded,
    Ingestion,
    LookAhead,
    Monotonous,
    Percentile,
    ProcessingTime,
    Punctuated,
    WatermarkStrategy,
)

BOUNDED = "bounded"
PERCENTILE = "percentile"
PUNCTUATED = "punctuated"
INGESTION = "ingestion"
ANNOUNCED = "announced"
NONE = "none"

WAITS = "wait"
PASSES = "pass"
"""Values of ``idleReturn``."""

NOTHING = "nothing"
"""The default of ``idleFollows``."""
_OFF = (None, False, WAITS, NOTHING, GroupHold.NOTHING, GroupHold.SNAPSHOT)
"""Values of options that are not in use."""

_BOUND = "maxOutOfOrderness"
_INTERVAL = "watermarkInterval"
_LAG = "maxWatermarkLag"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRow:
    """A strategy as users choose it."""

    name: str
    """The value of ``watermarkStrategy``."""
    kind: type[WatermarkStrategy]
    doc: str
    """Continues "`name`: " in the text of the option."""
    make: Callable[[Mapping[str, Any], Mapping[str, str]], WatermarkStrategy]
    """Makes the strategy of all options' values and the user's texts; raises ``OptionError``."""
    options: tuple[str, ...] = ()
    """Options that are refused with strategies whose row does not name them."""
    excluded: Mapping[str, str] = field(default_factory=dict)
    """Options that have no meaning with it, and why."""
    interval: int | None = None
    """Milliseconds of ``watermarkInterval`` by default, where that is not the option's own default."""

    def refusal(self, abilities: Abilities) -> str | None:
        """Return why a connector with these abilities refuses the strategy, after its name; ``None`` if it does not."""
        if abilities.dates_rows and self.kind.needless_where_dated is not None:
            return f"is not needed here: {self.kind.needless_where_dated}"
        return next((why for ability, why in self.kind.needs.items() if not getattr(abilities, ability)), None)

    def check(self, values: Mapping[str, Any], given: Mapping[str, str], abilities: Abilities) -> None:
        """Refuse a strategy that the connector cannot serve, or that its system makes needless, and others' options.

        So are options that have no meaning with it.

        Raises:
            OptionError: what was given, and the reason.
        """
        if (why := self.refusal(abilities)) is not None:
            raise OptionError("watermarkStrategy", self.name, why, example=BOUNDED)
        # Others than strategies may need the interval, too: ``EngineOptions.of`` checks it.
        for name in dict.fromkeys(name for row in STRATEGIES for name in row.options if name != _INTERVAL):
            text = given_text(given, name)
            if text is not None and name not in self.options:
                belongs = _any_of(row.name for row in STRATEGIES if name in row.options)
                raise OptionError(
                    name, text, f"belongs to watermarkStrategy {belongs}, and the strategy is {self.name}",
                    example="leave it out",
                )  # fmt: skip
        for name, why in self.excluded.items():
            if values[name] not in _OFF:
                raise OptionError(
                    name, given_text(given, name), f"has no meaning with watermarkStrategy {self.name}: {why}",
                    example="leave it out",
                )  # fmt: skip


def strategy_row(name: str) -> StrategyRow:
    """Return the row of a strategy, by the value of ``watermarkStrategy``.

    Raises:
        OptionError: it names a class of the user's own that cannot be used.
    """
    if not names_a_class(name):
        return next(row for row in STRATEGIES if row.name == name)
    kind = OwnWithMarks if uses_marks(name) else Own
    options = (_INTERVAL,) if Own(name).sees_silence else ()
    return StrategyRow(name=name, kind=kind, doc="", make=lambda _, __: kind(name), options=options)


def strategy_name(text: str) -> str:
    """Parse the name of a strategy, in any case, or that of a class, ``package.module:Class``."""
    return class_name(text) if names_a_class(text) else word(row.name for row in STRATEGIES)(text)


def uses_marks(name: str) -> bool:
    """Return whether a strategy, by the value of ``watermarkStrategy``, uses the watermarks that records carry.

    Raises:
        OptionError: it names a class of the user's own that cannot be used.
    """
    return bool(load_generator(name).reads_marks) if names_a_class(name) else name == PUNCTUATED


def only_with(option: str) -> str:
    """Return the sentence in an option's text that names the strategies to which it belongs."""
    return f"Only with `watermarkStrategy` {_any_of(f'`{row.name}`' for row in STRATEGIES if option in row.options)}."


def not_with(option: str) -> str:
    """Return the sentence in an option's text that names the strategies with which it has no meaning."""
    return f"Not with `watermarkStrategy` {_any_of(f'`{row.name}`' for row in STRATEGIES if option in row.excluded)}."


def without_look_ups() -> str:
    """Return the strategies with which no event time is looked up, for a text."""
    return _any_of([*(f"`{row.name}`" for row in STRATEGIES if not row.kind.looks_up_times), "a class of your own"])


def options_without_strategy(refused: Mapping[str, str]) -> dict[str, str]:
    """Return the options whose strategies are all refused, and why: ``refused`` has the reasons by strategy."""
    served = {option for row in STRATEGIES if row.name not in refused for option in row.options}
    return {
        option: f"watermarkStrategy {row.name} {refused[row.name]}"
        for row in STRATEGIES
        for option in row.options
        if option not in served
    }


def _any_of(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def on_time(text: str) -> int:
    """Parse a percentage of rows; returns how many of a million that is."""
    try:
        share = Decimal(text.strip().removesuffix("%").strip()) * (MILLION // 100)
    except InvalidOperation:
        raise ValueError("not a number") from None
    if not share.is_finite() or not MILLION // 2 <= share < MILLION:
        raise ValueError("must be at least 50 and less than 100")
    if share != int(share):
        raise ValueError("has more than four digits behind the point")
    return int(share)


def _percentile(values: Mapping[str, Any], given: Mapping[str, str]) -> Percentile:
    most = values[_BOUND]
    if not most:
        raise OptionError(
            _BOUND, given_text(given, _BOUND),
            "is needed because watermarkStrategy is percentile: it is the largest bound that may be learned, and the "
            "one until enough rows are known", example="10 minutes",
        )  # fmt: skip
    largest = values["maxRecordsPerPartition"]
    if largest is not None and largest < SEGMENT:
        raise OptionError(
            "maxRecordsPerPartition", given_text(given, "maxRecordsPerPartition"),
            f"must be at least {SEGMENT} with watermarkStrategy percentile, which counts disorder in stretches of that "
            "many rows", example=str(SEGMENT),
        )  # fmt: skip
    return Percentile.of(values["watermarkPercentile"], most)


def _ingestion(values: Mapping[str, Any], given: Mapping[str, str]) -> Ingestion:
    lag: int = values[_LAG]
    if values[_BOUND] > lag:
        raise OptionError(
            _BOUND, given_text(given, _BOUND),
            f"must not exceed {_LAG}, which is {format_duration(lag)}: "
            "an event so far behind would be late as soon as its split has nothing left to read", example="5 seconds",
        )  # fmt: skip
    return Ingestion(lag, values[_BOUND])


def _look_ahead(values: Mapping[str, Any], given: Mapping[str, str]) -> LookAhead:
    if values["idleReturn"] == PASSES:
        raise OptionError(
            "idleReturn", PASSES,
            "cannot be with watermarkStrategy lookahead: a split with a row that is far behind would be left out "
            "before that is read", example=WAITS,
        )  # fmt: skip
    return LookAhead(values["lookaheadRows"], values[_BOUND])


STRATEGIES: tuple[StrategyRow, ...] = (
    StrategyRow(
        name=BOUNDED,
        kind=Bounded,
        doc="the highest event time seen less `maxOutOfOrderness` and one millisecond.",
        make=lambda values, _: Bounded(values[_BOUND]),
        options=(_BOUND,),
    ),
    StrategyRow(
        name="monotonous",
        kind=Monotonous,
        doc="the same without `maxOutOfOrderness`.",
        make=lambda _, __: Monotonous(),
    ),
    StrategyRow(
        name=PERCENTILE,
        kind=Percentile,
        doc="as `bounded`, with a bound that is learned from the rows, at most `maxOutOfOrderness`.",
        make=_percentile,
        options=(_BOUND, "watermarkPercentile"),
    ),
    StrategyRow(
        name=PUNCTUATED,
        kind=Punctuated,
        doc="the highest watermark that records carry.",
        make=lambda _, __: Punctuated(),
    ),
    StrategyRow(
        name=INGESTION,
        kind=Ingestion,
        doc="as `bounded`; while a split has nothing left to read, its watermark follows the clock, `maxWatermarkLag` "
        "behind it.",
        make=_ingestion,
        options=(_BOUND, _LAG, _INTERVAL),
    ),
    StrategyRow(
        name="lookahead",
        kind=LookAhead,
        doc="a second reader runs ahead, and the watermark is one millisecond before the lowest event time known to be "
        "unread; `maxOutOfOrderness` covers the rows that it cannot see.",
        make=_look_ahead,
        options=(_BOUND, "lookaheadRows"),
    ),
    StrategyRow(
        name=ANNOUNCED,
        kind=Announced,
        doc="what the writers of the topic announce, such as another query that writes it ([between "
        "jobs](between-jobs.md)): no bound, and no idle timeout.",
        make=lambda values, _: Announced(AnnouncedBy(values["announcedBy"] or frozenset(), values["writerTimeToLive"])),
        options=("announcedBy", "writerTimeToLive", _INTERVAL),
        excluded={
            "idleTimeout": "a partition without rows holds no watermark back; a writer that is silent does, and "
            "writerTimeToLive ends that",
            "idleReturn": "no partition is idle; a writer that comes back is waited for",
            "idleFollows": "no partition is idle",
        },
        interval=200,
    ),
    StrategyRow(
        name=NONE,
        kind=ProcessingTime,
        doc="no event-time watermark; time is the clock (processing-time watermark).",
        make=lambda _, __: ProcessingTime(),
        options=(_INTERVAL,),
        excluded={
            "alignmentMaxDrift": "the clock is the same everywhere",
            "idleTimeout": "a clock is never idle",
            "maxFutureSkew": "a row's event time is the clock's, and never in the future",
            "finalWatermark": "a clock has no end",
            "alignmentHold": "the watermark is the clock, and comes before the first row; of sources on the "
            "clock only a snapshot holds the group",
        },
    ),
)
