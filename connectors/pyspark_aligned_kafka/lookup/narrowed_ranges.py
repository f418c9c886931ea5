"""Ranges of a batch cut down to what its filters leave of them; times are looked up in the brokers' index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark_aligned_kafka.lookup.pushed_filters import Wanted
from pyspark_aligned_kafka.lookup.resolved_positions import PositionLookup
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.late_bound_ranges import OpenRange
from watermark_source.planning.split import Split


def narrowed(ranges: Sequence[OpenRange], wanted: Wanted, lookup: PositionLookup) -> list[OpenRange]:
    """Return what of the ranges is wanted. What is wanted but lost already is left in, for the reader to find.

    Only a lowest timestamp can be looked up: before the first record that is as new, all are older. Records after it
    may be of any time, so a highest timestamp says nothing about offsets.
    """
    kept = [each for each in ranges if wanted.takes(each.range.split)]
    firsts = _first_offsets(kept, wanted.since, lookup)
    found = []
    for each in kept:
        first = firsts.get(each.range.split, 0)
        for start, stop in wanted.offsets:
            if (part := each.within(start, stop, first)) is not None:
                found.append(part)
    return found


def _first_offsets(ranges: Sequence[OpenRange], since: Millis | None, lookup: PositionLookup) -> Mapping[Split, int]:
    """Return before which offset no record of a partition is as new as a time; partitions without one are left out."""
    # Records without a timestamp have a negative one, which the brokers cannot be asked for.
    if since is None or since <= 0 or not ranges:
        return {}
    # Before the time is looked up: what is written after that may be as new.
    ends = {late.range.split: late.range.end for late in ranges if late.late_end}
    fixed = frozenset(late.range.split for late in ranges) - ends.keys()
    if fixed:
        ends.update(lookup.latest(fixed))
    given = frozenset(late.range.split for late in ranges if not late.late_start)
    beginnings = lookup.earliest(given) if given else {}
    found = lookup.at_time(dict.fromkeys(ends, since))
    firsts = {split: ends[split] if offset is None else offset for split, offset in found.items()}
    # What lies before its log's beginning is lost, and nobody knows of which time it was.
    lost = {late.range.split for late in ranges if late.range.start < beginnings.get(late.range.split, 0)}
    return {split: first for split, first in firsts.items() if split not in lost}
