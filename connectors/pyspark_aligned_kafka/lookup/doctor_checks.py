"""What the doctor looks at in a cluster: whether a query would start, and what its user should know before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from pyspark_aligned_kafka.cluster.list_offsets import EARLIEST, LATEST
from pyspark_aligned_kafka.cluster.topic_settings import CREATE_TIME, TIMESTAMP_TYPE
from pyspark_aligned_kafka.lookup import clock_checks
from pyspark_aligned_kafka.lookup.checked_cluster import CheckedCluster
from pyspark_aligned_kafka.lookup.stream_start import KafkaStartPositions
from pyspark_aligned_kafka.options.positions import start_of_stream
from watermark_source.checks import Caution, Check
from watermark_source.durations import format_duration
from watermark_source.errors import SourceError, listed

_DAY_MILLIS = 86_400_000


def checks_of(cluster: CheckedCluster) -> Iterable[Check[CheckedCluster]]:
    """Return the checks for a user's options, in order."""
    yield Check("topics", _topics)
    yield Check("leaders", _leaders, after=("topics",))
    yield Check("READ", _offsets, after=("topics", "leaders"))
    yield Check("startingOffsets", _start, after=("READ",))
    yield Check("record format", _format, after=("READ",))
    yield Check("replicas", _replicas, after=("topics",))
    yield Check("topic settings", _settings, after=("topics",))
    yield Check(TIMESTAMP_TYPE, _if_told(_timestamp_type), after=("topics",))
    yield Check("brokers' clocks", clock_checks.brokers_clocks, after=("topics", "leaders"))
    yield Check("retention", _if_told(_retention), after=("topics",))
    yield Check("cleanup.policy", _if_told(_cleanup), after=("topics",))
    yield Check("unclean leader election", _if_told(_unclean), after=("topics",))


def _if_told(look: Callable[[CheckedCluster], str | Caution]) -> Callable[[CheckedCluster], str | Caution]:
    return lambda cluster: look(cluster) if cluster.settings else Caution("not known: no topic's settings may be read")


def _topics(cluster: CheckedCluster) -> str:
    return f"{listed(cluster.topics)}: {len(cluster.splits)} partitions"


def _leaders(cluster: CheckedCluster) -> str:
    without = [split for split in cluster.splits if (at := cluster.replicas.get(split)) is None or at.leader is None]
    if without:
        raise SourceError(
            f"{listed(without)} has no leader: all brokers that hold an up-to-date copy are away. A query waits for it "
            "for kafka.default.api.timeout.ms, then fails; start the brokers"
        )
    return f"brokers that lead them: {len({at.leader for at in cluster.replicas.values()})}"


def _offsets(cluster: CheckedCluster) -> str | Caution:
    first, last = (cluster.admin.list_offsets(dict.fromkeys(cluster.splits, spec)) for spec in (EARLIEST, LATEST))
    sizes = [(last[s].offset or 0) - (first[s].offset or 0) for s in cluster.splits if s in first and s in last]
    return f"the ends of all partitions are told; records there, at most: {sum(sizes):,}"


def _start(cluster: CheckedCluster) -> str:
    policy = start_of_stream(cluster.options.start, cluster.options.end)
    found = KafkaStartPositions(cluster.admin, policy).initial_positions(cluster.splits)
    return f"a new query begins at {listed(f'{split}: {position}' for split, position in found.items())}"


def _format(cluster: CheckedCluster) -> str | Caution:
    first, last = (cluster.admin.list_offsets(dict.fromkeys(cluster.splits, spec)) for spec in (EARLIEST, LATEST))
    begin = {s: at.offset for s, at in first.items() if at.offset is not None and (last[s].offset or 0) > at.offset}
    headers = cluster.admin.batch_headers(begin)
    if unknown := begin.keys() - headers.keys():
        return Caution(
            f"the first records of {listed(unknown)} are in no format of today, or were not sent within half a second. "
            "Records of before Kafka 0.11 end a query: copy such topics with a current producer"
        )
    return f"message format v2, in all of {len(headers)} partitions that have records"


def _replicas(cluster: CheckedCluster) -> str | Caution:
    single = [split for split, at in cluster.replicas.items() if at.all == 1]
    behind = [split for split, at in cluster.replicas.items() if at.in_sync < at.all]
    if behind:
        return Caution(
            f"copies of {listed(behind)} are not in sync: with the loss of another broker partitions may be gone"
        )
    if single:
        return Caution(f"one copy alone of {listed(single)}: while its broker is away the watermark stands still")
    return f"{min(at.all for at in cluster.replicas.values())} copies of each partition at least, all in sync"


def _settings(cluster: CheckedCluster) -> str | Caution:
    if missing := cluster.topics - cluster.settings.keys():
        return Caution(
            f"the settings of {listed(missing)} may not be read. A query can do without; to have them looked at, the "
            "user needs DESCRIBE_CONFIGS on the topics"
        )
    return f"can be read, of {len(cluster.settings)} topics"


def _timestamp_type(cluster: CheckedCluster) -> str | Caution:
    shown = _by_value(cluster, TIMESTAMP_TYPE)
    lag = cluster.options.engine.strategy.watermark_lag
    by_producers = [name for name, each in cluster.settings.items() if each.get(TIMESTAMP_TYPE) == CREATE_TIME]
    if lag is not None and by_producers:
        return Caution(
            f"{shown}. With watermarkStrategy ingestion a record of {listed(by_producers)} that is written more than "
            f"{format_duration(lag)} after its own timestamp may be late: set maxEventTimeLag to what the slowest "
            "producer needs, or message.timestamp.type to LogAppendTime"
        )
    if (
        cluster.options.times.event_time is None
        and by_producers
        and cluster.options.engine.strategy.max_future_skew is None
    ):
        return Caution(
            f"{shown}. Producers date the records: one whose clock is ahead makes all other rows late. Set "
            "maxFutureSkew, for example 10 minutes"
        )
    return shown


def _retention(cluster: CheckedCluster) -> str | Caution:
    shortest = {
        name: int(each["retention.ms"])
        for name, each in cluster.settings.items()
        if "delete" in each.get("cleanup.policy", "") and int(each.get("retention.ms", -1)) >= 0
    }
    limited = [n for n, each in cluster.settings.items() if int(each.get("retention.bytes", -1)) >= 0]
    by_size = f"; {listed(limited)} is limited by size too (retention.bytes)" if limited else ""
    if not shortest:
        return Caution(f"not limited by time{by_size}") if limited else "not limited"
    name, millis = min(shortest.items(), key=lambda item: (item[1], item[0]))
    text = f"{format_duration(millis)} at least ({name}){by_size}"
    if millis < _DAY_MILLIS or limited:
        return Caution(
            f"{text}. A query that stands still for longer loses rows, and fails with failOnDataLoss. Set retention.ms "
            "to more than the longest outage that you expect"
        )
    return text


def _cleanup(cluster: CheckedCluster) -> str | Caution:
    compacted = [name for name, each in cluster.settings.items() if "compact" in each.get("cleanup.policy", "")]
    if compacted:
        return Caution(
            f"{listed(compacted)} is compacted: of a key whose rows were not read in time only the last one is there, "
            "and what is gone counts as no loss"
        )
    return _by_value(cluster, "cleanup.policy")


def _unclean(cluster: CheckedCluster) -> str | Caution:
    unclean = [n for n, each in cluster.settings.items() if each.get("unclean.leader.election.enable") == "true"]
    if unclean:
        return Caution(
            f"{listed(unclean)} has unclean.leader.election.enable = true: a broker that lacks records may lead it, "
            "and records that were read may be gone, and others have their offsets. Set it to false"
        )
    return "off"


def _by_value(cluster: CheckedCluster, name: str) -> str:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for topic, each in cluster.settings.items():
        found[each.get(name, "not told")].append(topic)
    return "; ".join(f"{value}: {listed(topics)}" for value, topics in sorted(found.items()))
