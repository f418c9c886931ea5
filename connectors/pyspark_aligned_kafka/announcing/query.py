"""Announces the output watermark of a running query to its topics: ``announce_watermark``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.streaming import StreamingQuery

from pyspark_aligned_kafka.announcing.announcer import AnnouncementTopic, need_settings
from pyspark_aligned_kafka.announcing.written_topic import WrittenTopic
from watermark_source.errors import UsageError
from watermark_source.publishing.announced_query import AnnouncedQuery, announced_query


def announce_watermark(
    query: StreamingQuery,
    topic: str | Sequence[str],
    kafka: Mapping[str, str],
    writer: str,
    hold: str | int | None = None,
) -> AnnouncedQuery:
    """Announce, after each batch of a query, how far the event time of what it writes to Kafka has advanced.

        query = df.writeStream.format("kafka").option("topic", "sessions").start()
        announced = announce_watermark(query, topic="sessions", kafka={"kafka.bootstrap.servers": "…"}, writer="jobs")

    For any sink that writes to Kafka with ``acks=all``, Spark's own and ``foreachBatch`` too. The watermark is the one
    that Spark's stateful operators state for their output; without stateful operators it is the lowest of the query's
    sources, which must all be of this project. A reader follows it with ``watermarkStrategy=announced``.

    Args:
        query: a running query of a Spark Classic session.
        topic: to which the query writes, or several.
        kafka: options ``kafka.*`` of the source, for the logins of the announcements.
        writer: name of the query, unique among the writers of the topic. It keeps it for life.
        hold: by how much the announced watermark is lower, as a duration or in milliseconds: where the event time of
            the result is not the end of its window, but its start or a time of its rows, and for operators that
            promise nothing about their rows.

    Raises:
        UsageError: an argument is not accepted, the query can have no output watermark, or ``<topic>.watermarks``
            cannot hold announcements.
        OptionError: an option is not accepted.
        SourceError: the brokers refuse, or do not answer. Later trouble is logged, and disturbs nothing.
    """
    topics = [topic] if isinstance(topic, str) else list(topic)
    if not topics:
        raise UsageError('announce_watermark: topic names none; write the topic of the query, for example "sessions"')
    need_settings(kafka)
    return announced_query(query, [WrittenTopic(AnnouncementTopic(kafka, name)) for name in topics], writer, hold)
