"""What the options of a query of ``aligned-kafka`` mean, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark_aligned_kafka.client import settings
from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.options.event_time_options import announced_topic, event_time_choice, mark_choice
from pyspark_aligned_kafka.options.kafka_option_table import (
    COLUMNS_ACCEPTED,
    FORMAT,
    HEADERS,
    KAFKA_COLUMNS,
    OPTION_TABLE,
)
from pyspark_aligned_kafka.options.payload_options import payload_choices
from pyspark_aligned_kafka.options.positions import Everywhere, Latest, NoMatch, OffsetRetries, PositionPolicy
from pyspark_aligned_kafka.options.subscription import Subscription
from pyspark_aligned_kafka.records.event_time_choice import EventTimeChoice, WithoutTime
from pyspark_aligned_kafka.records.payload import PayloadChoice
from watermark_source.planning.policy import AfterCatchUp, MinimumRows, RowLimits
from watermark_source.planning.strategy import Abilities
from watermark_source.spark.column_names import EVENT_TIME, LATE, MARKER
from watermark_source.spark.options import EngineOptions, SourceOptions

_WHAT_TO_READ = ("subscribe", "subscribePattern", "assign")
# In the order in which Spark prefers them.
_WHERE_TO_BEGIN = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_WHERE_TO_END = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
ABILITIES = Abilities(marks=True, row_positions=True, rows_ahead=True, announcements=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Every option of one query after checking. Picklable; its ``repr`` shows no secret."""

    subscription: Subscription
    start: PositionPolicy | None
    """Where to begin; ``None`` where a stream or a batch usually does."""
    end: PositionPolicy | None
    """Where a batch ends; ``None`` at latest."""
    limits: RowLimits
    fail_on_data_loss: bool
    offset_retries: OffsetRetries
    push_down: bool
    """Whether filters of a batch cut down what is read."""
    poll_timeout_ms: int
    decompressed_max_bytes: int
    """Limit on the bytes of a decompressed batch."""
    columns: tuple[str, ...]
    """Chosen columns of Spark's Kafka schema, in its order."""
    payloads: tuple[PayloadChoice, ...]
    """How keys and values are decoded to columns."""
    event_time: EventTimeChoice | None
    """``None`` for the record's timestamp."""
    marks: EventTimeChoice | None
    """Where records carry a watermark; ``None``: no strategy uses it."""
    announced: str | None
    """The topic whose writers announce watermarks; ``None``: no strategy uses it."""
    commit_group: str | None
    client: ClientSettings
    engine: EngineOptions

    @property
    def times_text(self) -> str | None:
        """The user's options for time as text; ``None`` where event time is the records' timestamp."""
        places = {} if self.event_time is None else {"eventTimeColumn": str(self.event_time.place)}
        if self.marks is not None:
            places["watermarkColumn"] = str(self.marks.place)
        return ", ".join(f"{option} = {place}" for option, place in places.items()) or None

    def with_undated(self, without: WithoutTime) -> KafkaOptions:
        """Return the options with ``eventTimeErrors`` as given, where event time is not the records' timestamp."""
        choice = self.event_time
        return self if choice is None else replace(self, event_time=replace(choice, without=without))


def parse(given: Mapping[str, str]) -> KafkaOptions:
    """Check all options of a query; names ignore case.

    It connects to no broker. Schemas are read: a file that ``valueSchema`` names, or a version of a subject at the
    schema registry.

    Raises:
        OptionError: a value or a combination is not accepted.
        UnknownOptionError: no such option or setting; names the nearest one.
        RefusedError, UnreachableError, ResponseTimeoutError: the schema registry returned no schema.
    """
    return meaning_of(SourceOptions.of(OPTION_TABLE, given, format_name=FORMAT, abilities=lambda _: ABILITIES))


def meaning_of(options: SourceOptions) -> KafkaOptions:
    """Return what parsed options mean, after the checks of those that concern several; raises ``OptionError``."""
    choices = payload_choices(options, (*KAFKA_COLUMNS, EVENT_TIME, LATE, MARKER))
    payloads = tuple(each for each in choices if each.column is not None)
    subscription = _subscription(options)
    return KafkaOptions(
        subscription=subscription,
        start=_positions(options, _WHERE_TO_BEGIN, options["startingOffsetsByTimestampStrategy"]),
        end=_positions(options, _WHERE_TO_END, NoMatch.LATEST),
        limits=row_limits(options),
        fail_on_data_loss=options["failOnDataLoss"],
        offset_retries=OffsetRetries(options["fetchOffset.numRetries"], options["fetchOffset.retryIntervalMs"]),
        push_down=options["pushDownPredicate"],
        poll_timeout_ms=options["kafkaConsumer.pollTimeoutMs"],
        decompressed_max_bytes=options["maxDecompressedBatchBytes"],
        columns=_chosen_columns(options, payloads),
        payloads=payloads,
        event_time=event_time_choice(options, choices),
        marks=mark_choice(options, choices),
        announced=announced_topic(options, subscription),
        commit_group=options["commitGroupId"],
        client=settings.parse_settings(options.given),
        engine=options.engine,
    )


def check_first_reading(options: KafkaOptions, start: PositionPolicy) -> None:
    """Refuse to read a topic to its end first where a query begins at its end; raises ``OptionError``."""
    if options.engine.policy.after_catch_up is AfterCatchUp.WATERMARK and start.rule == Everywhere(Latest()):
        raise start.refusal("cannot be with whenCaughtUp watermark: nothing would be read first", example="earliest")


def _subscription(options: SourceOptions) -> Subscription:
    named = [name for name in _WHAT_TO_READ if options[name] is not None]
    if not named:
        needed = "one of subscribe, subscribePattern and assign is needed"
        raise options.refusal("subscribe", needed, example='subscribe = "orders"')
    if len(named) > 1:
        raise options.refusal(named[1], f"excludes {named[0]}; give one of subscribe, subscribePattern, assign")
    subscription: Subscription = options[named[0]]
    return subscription


def _positions(options: SourceOptions, names: tuple[str, ...], no_match: NoMatch) -> PositionPolicy | None:
    name = next((each for each in names if options[each] is not None), None)
    return None if name is None else PositionPolicy(name, options.text(name) or "", options[name], no_match)


def row_limits(options: SourceOptions) -> RowLimits:
    """Return how many rows a batch of a stream has; raises ``OptionError`` if the least is more than the most."""
    least, most = options["minOffsetsPerTrigger"], options["maxOffsetsPerTrigger"]
    if least is None:
        return RowLimits(most)
    if most is not None and least > most:
        why = f"must not be more than maxOffsetsPerTrigger, which is {most}"
        raise options.refusal("minOffsetsPerTrigger", why, example=str(most))
    return RowLimits(most, MinimumRows(least, options["maxTriggerDelay"]))


def _chosen_columns(options: SourceOptions, payloads: tuple[PayloadChoice, ...]) -> tuple[str, ...]:
    named: tuple[str, ...] | None = options["columns"]
    if named is None:
        left_out = {each.field for each in payloads}
        left_out |= set() if options["includeHeaders"] else {HEADERS}
        return tuple(name for name in KAFKA_COLUMNS if name not in left_out)
    known = {*KAFKA_COLUMNS, EVENT_TIME} | {each.column for each in payloads}
    if unknown := next((name for name in named if name not in known), None):
        decoded = "".join(f", or {each.column}" for each in payloads)
        why = f'{COLUMNS_ACCEPTED}{decoded} ("{unknown}" is none of them)'
        raise options.refusal("columns", why, example="value,event_time")
    chosen = tuple(name for name in KAFKA_COLUMNS if name in named)
    if options.text("includeHeaders") is not None and options["includeHeaders"] != (HEADERS in chosen):
        difference = "leaves headers out" if options["includeHeaders"] else "names headers"
        raise options.refusal("includeHeaders", f"contradicts columns, which {difference}", example="leave it out")
    return chosen
