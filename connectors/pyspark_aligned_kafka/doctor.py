"""The checks of ``python -m watermark_source doctor --kafka``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial

from pyspark_aligned_kafka.cluster.list_offsets import EARLIEST, LATEST
from pyspark_aligned_kafka.lookup.doctor_checks import CheckedCluster, checks_of
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import COMMAND_OPTIONS
from pyspark_aligned_kafka.records.event_time_choice import WithoutTime
from watermark_source.arrow_columns import integers
from watermark_source.checks import Caution, Check, Finding, examine
from watermark_source.durations import format_duration
from watermark_source.errors import listed
from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import watermark_text

OPTIONS = COMMAND_OPTIONS
ASKED_FOR = None
"""Many clusters need no password."""
_PROBE = "probetopic"
_LONG_AGO_MILLIS, _SOON_MILLIS = 366 * 86_400_000, 300_000
"""Milliseconds from now: an event time further in the past, or in the future, may have another unit or lack a zone."""


def findings(given: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the finding of each check. It also accepts the option ``probeTopic``, and writes a record there.

    Raises:
        OptionError: an option is invalid; raised before anything is connected.
    """
    probe_topic = next((value for name, value in given.items() if name.lower() == _PROBE), None)
    own = {name: value for name, value in given.items() if name.lower() != _PROBE}
    parsed = kafka_options.parse(own)
    with closing(CheckedCluster(parsed, probe_topic)) as cluster:
        times = Check("eventTimeColumn", partial(_event_times, own), after=("READ", "record format"))
        yield from examine([*checks_of(cluster), times], cluster)


def _event_times(given: Mapping[str, str], cluster: CheckedCluster) -> str | Caution:
    """Read the newest record of each partition, and its event time as a query does."""
    if cluster.options.times.event_time is None:
        return "not given: event time is the record's own timestamp"
    # Reading imports numba, and without the option nothing is read.
    from pyspark_aligned_kafka import profile  # noqa: PLC0415
    from pyspark_aligned_kafka.source import range_reader  # noqa: PLC0415

    options = profile.counting(given)
    ends = cluster.admin.list_offsets(dict.fromkeys(cluster.splits, LATEST))
    begins = cluster.admin.list_offsets(dict.fromkeys(cluster.splits, EARLIEST))
    wholes = [
        SplitRange(s, begins[s].offset or 0, ends[s].offset or 0) for s in cluster.splits if s in ends and s in begins
    ]
    found: dict[Split, int] = {}
    undated: dict[Split, SplitRange] = {}
    for whole in sorted(w for w in wholes if w.end > w.start):
        for end in range(whole.end, max(whole.start, whole.end - profile.LOOKED_AT), -1):
            one = SplitRange(whole.split, end - 1, end)
            batches = [b for b in range_reader(options, ()).read([one]) if b.rows]
            if any(b.undated for b in batches):
                undated[whole.split] = one
            found |= {b.split: int(t) // 1_000 for b in batches for t in integers(b.event_time.drop_null())}
            if batches:
                break
    if undated and (not found or cluster.options.times.event_time.without is WithoutTime.FAIL):
        profile.refuse_undated(given, next(iter(undated.values())))
    if undated:
        return Caution(
            f"the newest record of {listed(undated)} has none; of {len(found)} other partitions it has one. Such "
            "records are counted, and move no watermark (eventTimeErrors=null)"
        )
    if not found:
        return "no partition has a record"
    lowest, highest = min(found.values()), max(found.values())
    shown = f"found in the newest record of {len(found)} partitions: {watermark_text(lowest)}"
    text = shown if lowest == highest else f"{shown} to {watermark_text(highest)}"
    now = time.time() * 1_000
    if highest > now + _SOON_MILLIS:
        return Caution(
            f"{text}. The last one is {format_duration(round(highest - now))} in the future. Are these times without "
            "a zone, which are read as UTC (the producer writes the zone, as in 2026-11-27T12:00:00+02:00), or is the "
            "unit another (eventTimeFormat)? maxFutureSkew keeps such rows from moving the watermark"
        )
    if lowest < now - _LONG_AGO_MILLIS:
        return Caution(f"{text}. The first one is over a year ago: the unit may be another (eventTimeFormat)")
    return text
