"""The reads of ``python -m watermark_source profile --kafka``: the event times of a topic's newest rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import COMMAND_OPTIONS
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.records.event_time_choice import WithoutTime
from pyspark_aligned_kafka.source import KafkaBatch, range_reader
from watermark_source.arrow_columns import integers
from watermark_source.monitor.profile import SplitEventTimes
from watermark_source.planning.split import SplitRange

OPTIONS = COMMAND_OPTIONS
LOOKED_AT = 16
"""How many of the newest offsets are read for a record: the last may be a transaction's end, or compacted."""


def event_times(given: Mapping[str, str], rows: int | None) -> Iterator[SplitEventTimes]:
    """Yield the event times of a batch read, and the number of records without one, whatever ``eventTimeErrors`` is.

    Raises:
        OptionError: an option is invalid; raised before anything is connected.
        UnknownSplitError: a topic does not exist.
        EventTimeError: no record has an event time; the error quotes the newest record.
    """
    # Records without an event time are counted, also where this option does not fit the others.
    without = {name: value for name, value in given.items() if name.lower() != "eventtimeerrors"}
    options = kafka_options.parse(without).with_undated(WithoutTime.NULL)
    found = KafkaBatch.of(options).late_ranges()
    from_beginning = frozenset(late.range.split for late in found if late.late_start)
    ranges = [late.range if rows is None else newest(late.range, rows) for late in found]
    dated, undated = False, list[SplitRange]()
    for batch in range_reader(options, ()).read(ranges, from_beginning=from_beginning):
        times = batch.event_time.drop_null() if batch.event_time.null_count else batch.event_time
        dated = dated or len(times) > 0
        if batch.undated:
            undated += [r for r in ranges if r.split == batch.split]
        yield SplitEventTimes(batch.split, integers(times) // 1_000, batch.undated)
    if undated and not dated:
        refuse_undated(options, undated[0])


def newest(of: SplitRange, rows: int) -> SplitRange:
    """Return the last rows of a range."""
    return SplitRange(of.split, max(of.start, of.end - rows), of.end)


def refuse_undated(options: KafkaOptions, of: SplitRange) -> None:
    """Read records one by one, newest first, and raise the ``EventTimeError`` of the first one."""
    reader = range_reader(options.with_undated(WithoutTime.FAIL), ())
    for end in range(of.end, max(of.start, of.end - LOOKED_AT), -1):
        for _ in reader.read([SplitRange(of.split, end - 1, end)]):
            pass
