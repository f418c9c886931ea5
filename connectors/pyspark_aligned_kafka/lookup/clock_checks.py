"""How far the brokers' clocks are from this machine's, and whether ``maxWatermarkLag`` covers it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from pyspark_aligned_kafka.cluster.clock_probe import Skew, probe, skew_of
from pyspark_aligned_kafka.cluster.list_offsets import LATEST
from pyspark_aligned_kafka.cluster.topic_settings import LOG_APPEND_TIME, TIMESTAMP_TYPE
from pyspark_aligned_kafka.lookup.checked_cluster import CheckedCluster
from watermark_source.checks import Caution
from watermark_source.durations import format_duration
from watermark_source.errors import OptionError, SourceError, UnknownSplitError
from watermark_source.planning.split import Split

_WATCHED_SECONDS = 2.0
"""For how long a topic is watched, whether anybody writes to it."""
_LARGEST_MILLIS = 1_000
"""Clocks of machines that are kept right differ by less."""


def brokers_clocks(cluster: CheckedCluster) -> str | Caution:
    """Compare the brokers' clocks with ours.

    By a record in the topic that the user names for it; without one by what others write meanwhile to the topics that
    are dated by brokers.

    Raises:
        OptionError: they differ by more than ``maxWatermarkLag``.
        SourceError: the record cannot be written.
    """
    named = cluster.probe_topic
    skews = _watched(cluster) if named is None else _probed(cluster, named)
    if not skews:
        return Caution(
            "not known: nobody wrote to a topic with message.timestamp.type LogAppendTime just now. Name one to which "
            "a record may be written: --probeTopic NAME"
        )
    node, worst = max(skews.items(), key=lambda item: (item[1].magnitude, item[0]))
    text = f"{_shown(worst)} (broker {node}; {len(skews)} looked at)"
    lag = cluster.options.engine.strategy.watermark_lag
    if lag is not None and worst.magnitude > lag:
        raise OptionError(
            "maxWatermarkLag",
            format_duration(lag),
            f"must be more than clocks differ by: {text}. Rows would be late: set the clocks right (NTP), or the lag "
            "higher",
        )
    covered = "" if lag is None else f"; maxWatermarkLag, {format_duration(lag)}, covers it"
    if worst.magnitude > _LARGEST_MILLIS:
        return Caution(f"{text}{covered}. Set the clocks right (NTP): maxFutureSkew and ingestion go by ours")
    return f"{text}{covered}"


def _shown(skew: Skew) -> str:
    if skew.magnitude == 0:
        return f"less than {format_duration(max(1, skew.most, -skew.least))} from ours"
    word = "ahead of" if skew.least > 0 else "behind"
    return f"at least {format_duration(skew.magnitude)} {word} ours"


def _probed(cluster: CheckedCluster, topic: str) -> Mapping[int, Skew]:
    kind = cluster.admin.topic_settings([topic], [TIMESTAMP_TYPE]).get(topic, {}).get(TIMESTAMP_TYPE)
    leaders = {at.leader: s.number for s, at in cluster.admin.replicas([topic]).items() if at.leader is not None}
    if not leaders:
        raise UnknownSplitError(f"probeTopic {topic} does not exist, or has no leader")
    if kind != LOG_APPEND_TIME:
        raise SourceError(
            f"probeTopic {topic} has message.timestamp.type {kind}, and must have LogAppendTime: else its records do "
            "not have the brokers' time. Make one: kafka-topics.sh --create --topic probe --config "
            "message.timestamp.type=LogAppendTime"
        )
    return probe(cluster.options.client, topic, leaders)


def _watched(cluster: CheckedCluster) -> Mapping[int, Skew]:
    splits = {split for split in cluster.splits if split.log in cluster.dated_by_brokers}
    if not splits:
        return {}
    ends, before = _ends(cluster, splits)
    until = time.monotonic() + _WATCHED_SECONDS
    found: dict[int, Skew] = {}
    while splits and time.monotonic() < until:
        time.sleep(0.05)
        now, asked = _ends(cluster, splits)
        grown = {split for split in splits if now.get(split, 0) > ends.get(split, 0)}
        newest = cluster.admin.newest(grown) if grown else {}
        after = time.time_ns() // 1_000_000
        for split, at in newest.items():
            leader = cluster.replicas[split].leader
            # It was written since the end before was asked for.
            if leader is not None and at.offset >= ends[split]:
                found[leader] = skew_of(at.timestamp, before, after)
        splits -= grown
        ends, before = now, asked
    return found


def _ends(cluster: CheckedCluster, splits: set[Split]) -> tuple[Mapping[Split, int], int]:
    """Return ends, and a moment just before they were asked for."""
    asked = time.time_ns() // 1_000_000
    found = cluster.admin.list_offsets(dict.fromkeys(splits, LATEST))
    return {split: at.offset for split, at in found.items() if at.offset is not None}, asked
