"""Writes announcements of watermarks to ``<topic>.watermarks``: ``WatermarkAnnouncer`` for any producer.

The record is defined in ``watermark_source.planning.announcement``. This module makes its two halves certain: a cut
names the end of every partition that existed when it was requested, and a record is acknowledged by all in-sync
replicas before the call returns.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow.compute as pc
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import AuthorizationError, KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from pyspark_aligned_kafka.client.settings import PREFIX, parse_settings, setting_names
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.cluster.broker_errors import SILENCE, grant, reason, translated
from pyspark_aligned_kafka.cluster.connections import opened
from pyspark_aligned_kafka.cluster.metadata import Topic
from pyspark_aligned_kafka.lookup.announcements import COLUMNS, statements_of, with_known_partitions
from pyspark_aligned_kafka.lookup.offsets import KafkaLogBounds
from pyspark_aligned_kafka.options import kafka_options
from pyspark_aligned_kafka.options.subscription import ANNOUNCED_IN, MOST_TOPIC_NAME, announcements_of, is_topic_name
from pyspark_aligned_kafka.source import range_reader
from watermark_source.contract.read_batch import ReadBatch
from watermark_source.errors import (
    RefusedError,
    ResponseTimeoutError,
    SourceError,
    UnknownSplitError,
    UnsupportedFormatError,
    UsageError,
    listed,
    shortened,
)
from watermark_source.option_table import unknown_option
from watermark_source.planning.announced import LoggedStatement
from watermark_source.planning.announcement import Announcement, Statement, encoded
from watermark_source.planning.split import Split
from watermark_source.planning.watermark import LAST_MOMENT, MAX, MIN, Millis, watermark_text
from watermark_source.publishing.target import need_name

_log = logging.getLogger(__name__)

_LIMIT_MS: Final = 30_000
"""Time limit of a topic's creation and of one record."""
_OF_PRODUCER: Final[Mapping[str, Any]] = {
    "acks": "all",
    "allow_auto_create_topics": False,
    "delivery_timeout_ms": _LIMIT_MS,
    "max_block_ms": _LIMIT_MS,
    "request_timeout_ms": _LIMIT_MS // 2,
}
"""A record that no broker took within the limit has failed."""
_RETENTION: Final = "retention.ms"
_COPIED: Final = (_RETENTION, "min.insync.replicas")
"""Settings that the topic of announcements has from the data topic."""
_POLICY: Final = "cleanup.policy"
_FOR_EVER: Final = "-1"
_IF_SHORTER: Final = (
    "Where announcements expire before the rows that they are about, the watermark of a reader with a backlog stands "
    "until it reaches a later one"
)
_LOOKED_AT: Final = (1_000, None)
"""How many of the newest announcements are searched for a writer's last one, in two tries: at last all of them, since
another writer may have announced a hundred thousand times between two nights of this one."""


class TopicEnds(NamedTuple):
    """The ends of a data topic."""

    topic: str
    """Its id."""
    ends: Mapping[str, int]


class AnnouncementTopic:
    """The announcements of one data topic, as a writer needs them. One thread; connects on first use."""

    def __init__(self, kafka: Mapping[str, str], topic: str) -> None:
        """Check the options ``kafka.*``; raises ``OptionError``, ``UnknownOptionError``, ``UsageError``."""
        self.topic = topic
        self.name = announcements_of(topic)
        if not is_topic_name(topic) or not is_topic_name(self.name):
            raise UsageError(
                f"topic = {shortened(ascii(topic))}: expected the name of a topic, of at most "
                f"{MOST_TOPIC_NAME - len(ANNOUNCED_IN)} characters, because its watermarks are announced in "
                f'{announcements_of("<topic>")}, for example topic="sessions"'
            )
        self._kafka = {name: value for name, value in kafka.items() if name.lower().startswith(PREFIX)}
        self._settings = parse_settings(kafka)
        self._servers = f"--bootstrap-server {','.join(self._settings.bootstrap_servers)}"
        # The end of the log, not that of its committed transactions: a cut must not be before a row that was written.
        self._admin = KafkaAdmin(self._settings, read_committed=False)
        self._producer: KafkaProducer | None = None
        self._is_prepared = False
        self._warned = False
        """Whether the settings of the topics were warned of: once is enough."""

    def close(self) -> None:
        """Close the connections; the next call opens new ones, and prepares the topic again."""
        self._is_prepared = False
        self._admin.close()
        producer, self._producer = self._producer, None
        if producer is not None:
            _close(producer)

    def prepare(self) -> None:
        """Create the topic of announcements, unless it exists. ``send`` does so after trouble: it may be deleted.

        Raises:
            UnknownSplitError: the data topic does not exist.
            RefusedError: the right to create it is missing; the message has the command.
            UsageError: it exists, and cannot hold announcements.
        """
        if self._is_prepared:
            return
        self._data_topic()
        there = self._admin.topics([self.name]).get(self.name)
        found = self._admin.topic_settings([self.topic, self.name], [_POLICY, *_COPIED])
        data = found.get(self.topic, {})
        if there is None:
            self._create(data)
        else:
            self._check(there, data, found.get(self.name, {}))
        self._is_prepared = True

    def _create(self, data: Mapping[str, str]) -> None:
        settings = _new_settings(data)
        replicas = max((r.all for s, r in self._admin.replicas([self.topic]).items()), default=1)
        try:
            with contextlib.closing(opened(KafkaAdminClient, self._settings)) as client:
                wanted = {"num_partitions": 1, "replication_factor": replicas, "configs": settings}
                client.create_topics({self.name: wanted}, timeout_ms=_LIMIT_MS, wait_for_metadata=True)
        except TopicAlreadyExistsError:
            pass
        except AuthorizationError as error:
            configs = " ".join(f"--config {name}={value}" for name, value in settings.items())
            raise RefusedError(
                f"topic {self.name} does not exist, and the user may not create it: {reason(error)}. Create it: "
                f"kafka-topics.sh {self._servers} --create --topic {self.name} --partitions 1 --replication-factor "
                f"{replicas} {configs}, or give the user the right CREATE on it"
            ) from error
        except KafkaError as error:
            raise translated(error, self._settings) from error
        else:
            _log.info("created topic %s for the watermarks of %s", self.name, self.topic)
            if _RETENTION not in settings:
                self._warn(
                    f"it was created with the brokers' own retention.ms and min.insync.replicas, not with those of "
                    f"{self.topic}. {_IF_SHORTER}", describe=[self.topic],
                    wanted="retention.ms=MILLISECONDS,min.insync.replicas=NUMBER",
                )  # fmt: skip

    def _check(self, there: Topic, data: Mapping[str, str], own: Mapping[str, str]) -> None:
        if len(there.leaders) != 1:
            raise UsageError(
                f"topic {self.name} has {len(there.leaders)} partitions; announcements need their order, so it must "
                f"have 1: delete it, and the next start creates it"
            )
        if "compact" in (policy := own.get(_POLICY, "")):
            raise UsageError(
                f"topic {self.name} has cleanup.policy={policy}; compaction removes announcements that a reader with a "
                f"backlog needs: {self._configs('cleanup.policy=delete')}"
            )
        if hidden := [name for name, found in ((self.topic, data), (self.name, own)) if _RETENTION not in found]:
            self._warn(
                f"whether it keeps announcements as long as {self.topic} keeps rows, and without compaction, is not "
                f"known. {_IF_SHORTER}", describe=hidden, wanted="cleanup.policy=delete,retention.ms=MILLISECONDS",
            )  # fmt: skip
        elif _kept(own) < _kept(data):
            wanted = _new_settings(data)[_RETENTION]
            self._warn(
                f"its retention.ms={own[_RETENTION]} is shorter than that of {self.topic}, {wanted}. {_IF_SHORTER}",
                wanted=f"{_RETENTION}={wanted}",
            )

    def _warn(self, seen: str, *, describe: Sequence[str] = (), wanted: str) -> None:
        """Log once what the settings are and what follows, and the lines to write."""
        if self._warned:
            return
        self._warned = True
        topics = [f"--topic {name}" for name in describe]
        _log.warning(
            "topic %s: %s. %s%s", self.name, seen,
            f"The brokers do not show the settings of {listed(describe)}. Give the user the right: "
            f"{grant(','.join(self._settings.bootstrap_servers), 'DescribeConfigs', topics)}; and set them: "
            if describe else "Set it: ", self._configs(wanted),
        )  # fmt: skip

    def _configs(self, settings: str) -> str:
        return f"kafka-configs.sh {self._servers} --alter --topic {self.name} --add-config {settings}"

    def _data_topic(self) -> Topic:
        found = self._admin.topics([self.topic]).get(self.topic)
        if found is None:
            raise UnknownSplitError(
                f"topic {self.topic} does not exist, or may not be described; check the spelling and the user's right "
                "DESCRIBE on it"
            )
        return found

    def cut(self) -> TopicEnds:
        """Return the ends of all partitions that any broker knows now.

        Of one broker alone would not do: it may lag behind, and rows of a partition that was just added would be in no
        cut.

        Raises:
            SourceError: a broker gave no answer, or a partition has no known end, so there is no cut.
        """
        try:
            data = self._admin.topic_by_all_brokers(self.topic)
        except ResponseTimeoutError as error:
            raise ResponseTimeoutError(
                f"{error}. A cut names the end of every partition, and that broker may lead one that no other broker "
                f"knows yet. The cut is tried again; once the brokers count it as dead, they no longer name it, and "
                "the cut is made without it"
            ) from error
        if data is None:
            self._data_topic()
            raise SourceError(f"topic {self.topic} was created just now, and not all brokers know it yet")
        splits = {Split(self.topic, number) for number in data.leaders}
        ends = KafkaLogBounds(self._admin).end_positions(splits)
        if missing := splits - ends.keys():
            raise SourceError(f"no end of {listed(missing)} is known, and a cut needs the end of every partition")
        return TopicEnds(self._id_of(data), {str(split.number): end for split, end in ends.items()})

    def _id_of(self, data: Topic) -> str:
        if data.id is None:
            raise UnsupportedFormatError(
                f"the brokers give topic {self.topic} no id (KIP-516), and a topic of the same name that is created "
                "later would look the same to readers; Kafka 2.8 or later is needed"
            )
        return data.id

    def send(self, statement: Statement) -> None:
        """Write a record; returns once all in-sync replicas have it.

        Raises:
            SourceError: it was not acknowledged; it may have been written nevertheless.
        """
        self.prepare()
        if self._producer is None:
            self._producer = opened(KafkaProducer, self._settings, **_OF_PRODUCER)
        try:
            sent = self._producer.send(self.name, key=statement.writer.encode(), value=encoded(statement), partition=0)
            sent.get(_LIMIT_MS / 1_000)
        except KafkaError as error:
            self.close()
            if isinstance(error, AuthorizationError):
                raise RefusedError(
                    f"the user may not write to {self.name}: {reason(error)}; give it the right WRITE on the topic"
                ) from error
            if isinstance(error, SILENCE) and not self._admin.topics([self.name]):
                raise SourceError(
                    f"topic {self.name} was deleted, so nothing could be announced in it; the next announcement "
                    "creates it again, and readers wait until each of its writers has announced there"
                ) from error
            raise translated(error, self._settings) from error

    def last_of(self, writer: str) -> Announcement | None:
        """Return a writer's last announcement; ``None`` without one, or once the writer was removed."""
        for count in _LOOKED_AT:
            last = None
            for record in self.records(count, writer):
                last = record.statement or last
            if last is not None:
                return last if isinstance(last, Announcement) else None
        return None

    def checked_records(self) -> tuple[str, Sequence[LoggedStatement]]:
        """Return the id of the data topic, and all records as a reader takes them in.

        Raises:
            SourceError: the topic does not exist, or a broker gave no answer.
        """
        records = list(self.records())
        data = self._admin.topic_by_all_brokers(self.topic) or self._data_topic()
        return self._id_of(data), with_known_partitions(records, data)

    def compacts_rows(self) -> bool:
        """Return whether the data topic is compacted, as far as the brokers show it."""
        return "compact" in self._admin.topic_settings([self.topic], [_POLICY]).get(self.topic, {}).get(_POLICY, "")

    def records(self, newest: int | None = None, writer: str | None = None) -> Iterator[LoggedStatement]:
        """Yield the records that are there now, or only those among the newest, or with a writer as their key."""
        if not self._admin.topics([self.name]):
            return
        split = Split(self.name, 0)
        whole = KafkaLogBounds(self._admin).log_ranges({split}).get(split)
        if whole is not None and whole.start < whole.end:
            first = whole.start if newest is None else max(whole.start, whole.end - newest)
            reader = range_reader(kafka_options.parse({**self._kafka, "subscribe": self.name}), COLUMNS)
            read = reader.read([whole._replace(start=first)])
            yield from statements_of(read if writer is None else (_of_key(each, writer.encode()) for each in read))


def _new_settings(data: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a topic of announcements, from those of its data topic as far as these are known."""
    settings = {name: data[name] for name in _COPIED if name in data}
    if "compact" in data.get(_POLICY, ""):
        # Its rows stay for ever, and a reader may begin with the first.
        settings[_RETENTION] = _FOR_EVER
    return {_POLICY: "delete", **settings}


def _kept(settings: Mapping[str, str]) -> float:
    """Return for how many milliseconds a topic keeps its rows."""
    retention = _new_settings(settings)[_RETENTION]
    return math.inf if retention == _FOR_EVER else int(retention)


def _of_key(batch: ReadBatch, key: bytes) -> ReadBatch:
    wanted = pc.equal(batch.columns[0], key)
    return replace(batch, columns=tuple(column.filter(wanted) for column in batch.columns))


def _close(producer: KafkaProducer) -> None:
    """Close a producer. One with a record that no broker takes cannot be closed before that has expired."""
    try:
        producer.close(timeout=1)
    except KafkaTimeoutError:
        threading.Thread(target=_close_once_expired, args=(producer,), daemon=True).start()


def _close_once_expired(producer: KafkaProducer) -> None:
    with contextlib.suppress(KafkaError):
        producer.close(timeout=2 * _LIMIT_MS / 1_000)


# What a producer announces that is no Spark query.


class WatermarkAnnouncer:
    """Announces the watermark of a producer other than a Spark query. Threads may share it.

        announcer = WatermarkAnnouncer(topic="clicks", kafka={"kafka.bootstrap.servers": "…"}, writer="web-1")
        producer.flush()
        announcer.announce(watermark)
        announcer.close()

    Each call returns once the announcement is acknowledged, and raises an error of the brokers (``SourceError``); then
    it may have been announced nevertheless, so repeat the call: a lower watermark is refused. From the first moment
    readers wait for the writer. A producer that is started again announces as a new run: readers wait until its first
    announcement.
    """

    def __init__(self, topic: str, kafka: Mapping[str, str], writer: str) -> None:
        """Connect, and announce that readers wait for this writer.

        Args:
            topic: to which the producer writes.
            kafka: options ``kafka.*`` of the source, for the logins of the announcements.
            writer: name of the producer, unique among the writers of the topic.

        Raises:
            UsageError, OptionError: an argument is not accepted, or ``<topic>.watermarks`` cannot hold announcements.
            SourceError: see ``AnnouncementTopic.prepare``.
        """
        need_name(writer)
        need_settings(kafka)
        self._topic = AnnouncementTopic(kafka, topic)
        self._lock = threading.Lock()
        self._is_closed = False
        self._announced = Announcement(
            writer=writer, query=str(uuid.uuid4()), batch=0, watermark=None, topic="", ends={}
        )
        self._topic.prepare()
        self._send(self._announced)

    def announce(self, watermark: int) -> None:
        """Announce that no row with an event time at or before this one is written from now on.

        Call it after the producer's ``flush``. It ends the idleness of ``mark_idle``.

        Args:
            watermark: milliseconds since 1970-01-01 UTC.

        Raises:
            UsageError: it is no such number or lower than the last, or the announcer is closed.
        """
        need_millis(watermark)
        with self._lock:
            last = self._next("announce")
            if last.watermark is not None and watermark < last.watermark:
                raise UsageError(
                    f"WatermarkAnnouncer.announce({watermark}): {watermark_text(watermark)} is before the last one, "
                    f"{watermark_text(last.watermark)}, and readers may have applied it: a watermark never goes back"
                )
            self._send(replace(last, watermark=Millis(watermark), idle=False))

    def mark_idle(self) -> None:
        """Announce that readers need not wait for this writer until it calls ``announce`` again.

        Call ``announce`` before the next row is written: rows at or before the readers' watermark are late then.

        Raises:
            UsageError: the announcer is closed.
        """
        with self._lock:
            self._send(replace(self._next("mark_idle"), idle=True))

    def close(self, *, end: bool = False) -> None:
        """Close the connections. Readers wait for this writer, unless it was marked idle, or ``end`` was announced.

        Args:
            end: announce that this writer writes no more, after the producer's last ``flush``.
        """
        with self._lock:
            if self._is_closed:
                return
            if end:
                self._send(replace(self._next("close"), watermark=MAX, idle=False))
            self._is_closed = True
            self._topic.close()

    def __enter__(self) -> WatermarkAnnouncer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, call: str) -> Announcement:
        """Return the last announcement as the next one."""
        last = self._announced
        if self._is_closed:
            raise UsageError(
                f"WatermarkAnnouncer.{call}: the announcer of {last.writer} is closed; make a new one to announce again"
            )
        return replace(last, batch=last.batch + 1)

    def _send(self, announced: Announcement) -> None:
        cut = self._topic.cut()
        # Before it is sent: a record that is not acknowledged may be in the log, and its number must not come again.
        self._announced = replace(announced, topic=cut.topic, ends=cut.ends)
        self._topic.send(self._announced)


def need_millis(watermark: int) -> None:
    """Refuse what is no number of milliseconds since 1970; raises ``UsageError``."""
    if type(watermark) is not int or not MIN < watermark <= LAST_MOMENT:
        raise UsageError(
            f"WatermarkAnnouncer.announce({watermark!r}): expected milliseconds since 1970-01-01 UTC as an int, up to "
            "the year 9999, for example round(moment.timestamp() * 1000). If nothing more is written, close(end=True)"
        )


def need_settings(kafka: Mapping[str, str]) -> None:
    """Refuse options other than ``kafka.*``, which would have no effect; raises ``UnknownOptionError``."""
    if others := [name for name in kafka if not name.lower().startswith(PREFIX)]:
        raise unknown_option(others[0], setting_names())
