"""What ``python -m watermark_source profile --kafka`` reads: the event times of a topic's newest rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark_aligned_kafka.batch import KafkaBatch
from pyspark_aligned_kafka.client.setting_table import SETTINGS
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import OPTION_TABLE
from pyspark_aligned_kafka.source import range_reader
from watermark_source.arrow_columns import integers
from watermark_source.monitor.profile import EventTimes
from watermark_source.option_table import OptionTable
from watermark_source.planning.split import SplitRange

OPTIONS = OptionTable((*OPTION_TABLE.options, *(row.option for row in SETTINGS if row.option.secret)))
"""With the settings that are secret, which come from the environment."""


def event_times(given: Mapping[str, str], rows: int | None) -> Iterator[EventTimes]:
    """Yield event times as a batch read finds them; a record without one is counted, whatever ``eventTimeErrors`` says.

    Raises:
        OptionError: options that cannot work, before anything is connected.
        UnknownSplitError: a topic that does not exist.
    """
    counted = {"eventTimeErrors": "null"} if "eventtimecolumn" in {name.lower() for name in given} else {}
    options = kafka_options.parse({**{n: v for n, v in given.items() if n.lower() != "eventtimeerrors"}, **counted})
    ranges = [late.range for late in KafkaBatch.of(options).late_ranges()]
    if rows is not None:
        ranges = [SplitRange(r.split, max(r.start, r.end - rows), r.end) for r in ranges]
    for batch in range_reader(options, ()).read([r for r in ranges if r.end > r.start]):
        times = batch.event_time.drop_null() if batch.event_time.null_count else batch.event_time
        yield EventTimes(batch.split, integers(times) // 1_000, batch.undated)
