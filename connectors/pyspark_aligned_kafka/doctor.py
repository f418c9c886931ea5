"""The checks of ``python -m watermark_source doctor --kafka``: of the cluster, the topics, and their event times."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from typing import NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError

from pyspark_aligned_kafka.client.settings import ClientSettings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.broker_errors import grant, reason
from pyspark_aligned_kafka.cluster.connections import opened
from pyspark_aligned_kafka.cluster.group_commits import ConsumerGroup
from pyspark_aligned_kafka.cluster.metadata import CREATE_TIME, LOG_APPEND_TIME, TIMESTAMP_TYPE, PartitionReplicas
from pyspark_aligned_kafka.lookup.discovery import select
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds, KafkaStartPositions
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.kafka_option_table import COMMAND_OPTIONS
from pyspark_aligned_kafka.options.kafka_options import KafkaOptions
from pyspark_aligned_kafka.options.positions import start_of_stream
from pyspark_aligned_kafka.options.subscription import SubscribePattern
from pyspark_aligned_kafka.records.event_time_choice import FORMATS_OF_NUMBERS, WithoutTime
from pyspark_aligned_kafka.records.payload import PayloadChoice
from watermark_source.arrow_columns import integers
from watermark_source.checks import Caution, Check, Finding, examine
from watermark_source.durations import format_duration
from watermark_source.errors import OptionError, RefusedError, SourceError, UnknownSplitError, listed
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
    looks: dict[str, Callable[[CheckedCluster], str | Caution]] = {
        f"{payload.field}Schema": partial(_payload, payload) for payload in parsed.payloads
    }
    looks["eventTimeColumn"] = _event_times
    with closing(CheckedCluster(parsed, probe_topic)) as cluster:
        contents = [Check(name, look, after=("READ", "record format")) for name, look in looks.items()]
        yield from examine([*checks_of(cluster), *contents], cluster)


# What checks of a cluster look at: asked for when a check first needs it, once.


SETTINGS = (
    TIMESTAMP_TYPE,
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "unclean.leader.election.enable",
    "min.insync.replicas",
)


class CheckedCluster:
    """Of one user's options. Errors are raised again by each check that needs the answer."""

    def __init__(self, options: KafkaOptions, probe_topic: str | None) -> None:
        self.options = options
        self.probe_topic = probe_topic
        self.admin = KafkaAdmin(options.client)

    def close(self) -> None:
        """Close the connections."""
        self.admin.close()

    @cached_property
    def splits(self) -> Set[Split]:
        """The partitions that are chosen.

        Raises:
            UnknownSplitError: what is named does not exist, or nothing is chosen.
        """
        found = select(self.options.subscription, self.admin)
        if found.missing:
            raise UnknownSplitError(
                f"{listed(found.missing)} does not exist, or may not be described; check the spelling, and the user's "
                "right DESCRIBE on it"
            )
        if not found.splits:
            raise UnknownSplitError(
                "no topic matches, of those that the user may describe; check the pattern, and the ACLs for DESCRIBE"
            )
        return found.splits

    @cached_property
    def topics(self) -> Set[str]:
        """The topics of these partitions; raises as ``splits``."""
        return {split.log for split in self.splits}

    @cached_property
    def replicas(self) -> Mapping[Split, PartitionReplicas]:
        """The chosen partitions' copies."""
        found = self.admin.replicas(self.topics)
        return {split: found[split] for split in self.splits if split in found}

    @cached_property
    def extents(self) -> Mapping[Split, SplitRange]:
        """From where to where each partition can be read; one whose broker does not tell is left out."""
        return KafkaLogBounds(self.admin).log_ranges(self.splits)

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of the topics whose settings may be read."""
        return self.admin.topic_settings(self.topics, SETTINGS)


# What time the brokers' clocks show: by records that are written to a topic whose brokers date them.


_SECONDS = 30
_VALUE = b"watermark_source doctor"


class Skew(NamedTuple):
    """How far a broker's clock is ahead of this machine's, in milliseconds; the truth is within the two."""

    least: int
    most: int

    @property
    def magnitude(self) -> int:
        """What clocks differ by for certain."""
        return max(0, self.least, -self.most)


def skew_of(dated: int, before: int, after: int) -> Skew:
    """Return what follows from a moment that a broker's clock showed between two of ours."""
    # It shows whole milliseconds, and so does ours.
    return Skew(dated - after - 1, dated - before + 1)


def probe(client: ClientSettings, topic: str, partitions: Mapping[int, int]) -> Mapping[int, Skew]:
    """Write one record to one partition of each broker, and return how far their clocks are ahead, by broker.

    Args:
        client: how to log in.
        topic: one with ``message.timestamp.type=LogAppendTime``.
        partitions: a partition to write to, by the broker that leads it.

    Raises:
        SourceError: a broker does not take the record, for example for lack of permission.
    """
    found: dict[int, Skew] = {}
    try:
        with closing(opened(KafkaProducer, client, acks=1, max_block_ms=_SECONDS * 1_000)) as producer:
            for node, partition in partitions.items():
                # The first one connects; what is measured is the second.
                for _ in range(2):
                    before = time.time_ns() // 1_000_000
                    answer = producer.send(topic, _VALUE, partition=partition).get(_SECONDS)
                    found[node] = skew_of(answer.timestamp, before, time.time_ns() // 1_000_000)
    except KafkaError as error:
        raise SourceError(
            f"no record could be written to {topic}: {reason(error)}; the user needs WRITE on it, or name "
            "another topic with probeTopic"
        ) from error
    return found


# How far the brokers' clocks are from this machine's, and whether ``maxWatermarkLag`` covers it.


_WATCHED_SECONDS = 2.0
"""Seconds for which a topic is watched for new records."""
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
            "not known: no record was written to a topic with message.timestamp.type LogAppendTime just now. Name one "
            "to which a record may be written: --probeTopic NAME"
        )
    node, worst = max(skews.items(), key=lambda item: (item[1].magnitude, item[0]))
    text = f"{_shown(worst)} (broker {node}; {len(skews)} looked at)"
    lag = cluster.options.engine.policy.strategy.write_delay
    if lag is not None and worst.magnitude > lag:
        raise OptionError(
            "maxWatermarkLag",
            format_duration(lag),
            f"must be more than clocks differ by: {text}. Rows would be late: set the clocks right (NTP), or the lag "
            "higher",
        )
    covered = "" if lag is None else f"; maxWatermarkLag, {format_duration(lag)}, covers it"
    if worst.magnitude > _LARGEST_MILLIS:
        return Caution(f"{text}{covered}. Set the clocks right (NTP): maxFutureSkew and ingestion use ours")
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
            "not have the brokers' time. Make one: kafka-topics.sh --bootstrap-server "
            f"{','.join(cluster.options.client.bootstrap_servers)} --create --topic probe --config "
            "message.timestamp.type=LogAppendTime"
        )
    return probe(cluster.options.client, topic, leaders)


def _watched(cluster: CheckedCluster) -> Mapping[int, Skew]:
    by_brokers = {name for name, each in cluster.settings.items() if each.get(TIMESTAMP_TYPE) == LOG_APPEND_TIME}
    splits = {split for split in cluster.splits if split.log in by_brokers}
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
            if leader is not None and at.position >= ends[split]:
                found[leader] = skew_of(at.event_time, before, after)
        splits -= grown
        ends, before = now, asked
    return found


def _ends(cluster: CheckedCluster, splits: set[Split]) -> tuple[Mapping[Split, int], int]:
    """Return ends, and a moment just before they were asked for."""
    asked = time.time_ns() // 1_000_000
    return KafkaLogBounds(cluster.admin).end_positions(splits), asked


_DAY_MILLIS = 86_400_000


def checks_of(cluster: CheckedCluster) -> Iterable[Check[CheckedCluster]]:
    """Return the checks for a user's options, in order."""
    yield Check("topics", _topics)
    if isinstance(cluster.options.subscription, SubscribePattern):
        yield Check("topics left out", partial(_left_out, cluster.options.subscription.pattern.pattern))
    yield Check("leaders", _leaders, after=("topics",))
    yield Check("READ", _offsets, after=("topics", "leaders"))
    if cluster.options.commit_group is not None:
        yield Check("commitGroupId", partial(_group, cluster.options.commit_group))
    yield Check("idleTimeout", _empty, after=("READ",))
    yield Check("startingOffsets", _start, after=("READ",))
    yield Check("record format", _format, after=("READ",))
    yield Check("replicas", _replicas, after=("topics",))
    yield Check("topic settings", _settings, after=("topics",))
    yield Check(TIMESTAMP_TYPE, _if_readable(_timestamp_type), after=("topics",))
    yield Check("brokers' clocks", brokers_clocks, after=("topics", "leaders"))
    yield Check("retention", _if_readable(_retention), after=("topics",))
    yield Check("cleanup.policy", _if_readable(_cleanup), after=("topics",))
    yield Check("unclean leader election", _if_readable(_unclean), after=("topics",))


def _if_readable(look: Callable[[CheckedCluster], str | Caution]) -> Callable[[CheckedCluster], str | Caution]:
    return lambda cluster: look(cluster) if cluster.settings else Caution("not known: no topic's settings may be read")


def _topics(cluster: CheckedCluster) -> str:
    return f"{listed(cluster.topics)}: {len(cluster.splits)} partitions"


_BEGINNING = re.compile(r"\^((?:[A-Za-z0-9_-](?![*?{]))*)")
"""What each name begins with in which a pattern is found."""
_ANY = "watermark_source_any"
"""The rest of a name of no topic: a broker looks for a topic after it has looked for the right."""


def _left_out(pattern: str, cluster: CheckedCluster) -> str | Caution:
    """Ask for a topic that may match: brokers list only topics that the user may describe."""
    found = None if "|" in pattern else _BEGINNING.match(pattern)
    begins = found[1] if found else ""
    try:
        cluster.admin.topics([f"{begins}{_ANY}"])
    except RefusedError:
        wanted = [f"--topic {begins} --resource-pattern-type prefixed" if begins else "--topic '*'"]
        line = grant(",".join(cluster.options.client.bootstrap_servers), "Read", wanted)
        return Caution(
            "the user may describe single topics, and brokers do not show it that there are others: those that match "
            f"are left out. For all of them, on the brokers: {line}"
        )
    return "none: the user may describe each topic that matches"


def _group(name: str, cluster: CheckedCluster) -> str:
    with closing(ConsumerGroup(cluster.options.client, name, note="")) as group:
        group.check_right()
    return f"positions may be committed to {name}"


def _leaders(cluster: CheckedCluster) -> str:
    without = [split for split in cluster.splits if (at := cluster.replicas.get(split)) is None or at.leader is None]
    if without:
        raise SourceError(
            f"{listed(without)} has no leader: all brokers that hold an up-to-date copy are away. A query waits for it "
            "for kafka.default.api.timeout.ms, then fails; start the brokers"
        )
    return f"brokers that lead them: {len({at.leader for at in cluster.replicas.values()})}"


def _offsets(cluster: CheckedCluster) -> str | Caution:
    if (refused := cluster.admin.refusal(cluster.topics)) is not None:
        raise refused
    records = sum(each.end - each.start for each in cluster.extents.values())
    return f"end offsets of all partitions are known; records there, at most: {records:,}"


def _empty(cluster: CheckedCluster) -> str | Caution:
    """Name the partitions for which a watermark of all of them would wait."""
    policy = cluster.options.engine.policy
    if not policy.strategy.tasks_observe.is_needed or policy.strategy.write_delay is not None:
        return "no watermark waits for partitions without records, by watermarkStrategy"
    empty = [each.split for each in cluster.extents.values() if each.end == each.start]
    if not empty:
        return f"each of {len(cluster.extents)} partitions has a record"
    timeout = policy.idleness.timeout
    if timeout is None:
        never = sum(cluster.extents[split].end == 0 for split in empty)
        return Caution(
            f"there is no record in {listed(empty)} ({never} of {len(empty)} never had one), and the watermark waits "
            "for a record of each partition: until then no window closes, and nothing joins. To leave such partitions "
            'out: .option("idleTimeout", "30 seconds")'
        )
    return f"{listed(empty)} without a record is left out after {format_duration(timeout)}"


def _start(cluster: CheckedCluster) -> str:
    policy = start_of_stream(cluster.options.start, cluster.options.end)
    found = KafkaStartPositions(cluster.admin, policy).initial_positions(cluster.splits)
    return f"a new query begins at {listed(f'{split}: {position}' for split, position in found.items())}"


def _format(cluster: CheckedCluster) -> str | Caution:
    begin = {split: each.start for split, each in cluster.extents.items() if each.end > each.start}
    headers = cluster.admin.batch_headers(begin)
    if unknown := begin.keys() - headers.keys():
        return Caution(
            f"the first records of {listed(unknown)} are in no format of today, or were not sent within half a second. "
            "Records from before Kafka 0.11 end a query: copy such topics with a current producer"
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
    policy = cluster.options.engine.policy
    lag = policy.strategy.write_delay
    by_producers = [name for name, each in cluster.settings.items() if each.get(TIMESTAMP_TYPE) == CREATE_TIME]
    if cluster.options.event_time is not None or not by_producers:
        return shown
    if lag is not None:
        return Caution(
            f"{shown}. With watermarkStrategy ingestion a record of {listed(by_producers)} that is written more than "
            f"{format_duration(lag)} after its own timestamp may be late: set maxWatermarkLag to what the slowest "
            "producer needs, or message.timestamp.type to LogAppendTime"
        )
    if policy.max_future_skew is None and policy.strategy.tasks_observe.is_event_times:
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
            f"{listed(compacted)} is compacted: of several records of a key that were not read in time only the "
            "last one is delivered, and the others count as no loss"
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
        found[each.get(name, "not reported")].append(topic)
    return "; ".join(f"{value}: {listed(topics)}" for value, topics in sorted(found.items()))


_DECODED = 100
"""Newest offsets of each partition whose values are decoded."""
_SHOWN_LINES = 3


def _payload(payload: PayloadChoice, cluster: CheckedCluster) -> str | Caution:
    """Decode the newest values as a query does, and return what it would log about them."""
    # Decoding imports numba, and without a schema nothing is decoded.
    from pyspark_aligned_kafka.profile import newest  # noqa: PLC0415
    from pyspark_aligned_kafka.source import range_reader  # noqa: PLC0415

    reported: dict[str, None] = {}
    heard = replace(payload, warn=lambda text, _: reported.setdefault(text))
    # Event times are a check of their own.
    options = replace(cluster.options, event_time=None)
    ranges = [newest(each, _DECODED) for each in sorted(cluster.extents.values()) if each.end > each.start]
    rows = sum(batch.rows for batch in range_reader(options, (), (heard,)).read(ranges))
    if reported:
        more = f"; and {len(reported) - _SHOWN_LINES} such lines more" if len(reported) > _SHOWN_LINES else ""
        return Caution("; ".join([*reported][:_SHOWN_LINES]) + more)
    return f"the newest {rows:,} {payload.field}s fit" if rows else "no partition has a record"


def _event_times(cluster: CheckedCluster) -> str | Caution:
    """Read the newest record of each partition, and its event time as a query does."""
    if cluster.options.event_time is None:
        return "not given: event time is the record's own timestamp"
    # Reading imports numba, and without the option nothing is read.
    from pyspark_aligned_kafka import profile  # noqa: PLC0415
    from pyspark_aligned_kafka.source import range_reader  # noqa: PLC0415

    reader = range_reader(cluster.options.with_undated(WithoutTime.NULL), ())
    found: dict[Split, int] = {}
    undated: dict[Split, SplitRange] = {}
    for whole in sorted(w for w in cluster.extents.values() if w.end > w.start):
        for end in range(whole.end, max(whole.start, whole.end - profile.LOOKED_AT), -1):
            one = SplitRange(whole.split, end - 1, end)
            batches = [b for b in reader.read([one]) if b.rows]
            if any(b.undated for b in batches):
                undated[whole.split] = one
            found |= {b.split: int(t) // 1_000 for b in batches for t in integers(b.event_time.drop_null())}
            if batches:
                break
    if undated and (not found or cluster.options.event_time.without is WithoutTime.FAIL):
        profile.refuse_undated(cluster.options, next(iter(undated.values())))
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
    now = time.time_ns() // 1_000_000
    if highest > now + _SOON_MILLIS:
        return Caution(
            f"{text}. The last one is {format_duration(highest - now)} in the future. Are these times without "
            "a zone, which are read as UTC (the producer writes the zone, as in 2026-11-27T12:00:00+02:00), or is the "
            "unit another (eventTimeFormat)? maxFutureSkew keeps such rows from moving the watermark"
        )
    if lowest < now - _LONG_AGO_MILLIS:
        return Caution(
            f"{text}. The first one is over a year ago: the format may be another (--eventTimeFormat, for numbers "
            f"{FORMATS_OF_NUMBERS})"
        )
    return text
