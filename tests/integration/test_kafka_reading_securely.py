"""Reading and announcing over TLS with a login, and without the right to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pyspark_aligned_kafka import WatermarkAnnouncer, doctor
from pyspark_aligned_kafka.client.settings import parse_settings
from pyspark_aligned_kafka.cluster.admin import KafkaAdmin
from pyspark_aligned_kafka.driver import look_up_batch
from pyspark_aligned_kafka.lookup.batch_ranges import BatchBounds
from pyspark_aligned_kafka.lookup.pushed_filters import Wanted
from pyspark_aligned_kafka.options.kafka_options import parse
from pyspark_aligned_kafka.reading import kept_sessions as sessions
from pyspark_aligned_kafka.reading.range_reader import KafkaRangeReader
from services.kafka import kafka_cluster
from services.kafka_bulk import bulk_produce
from services.kafka_local import FAST_START
from services.kafka_topics import admin_client, create_topic
from services.local_server import free_ports
from services.wait_until import wait_until
from tests.integration.direct_kafka import DirectKafka
from watermark_source.checks import CheckVerdict, Finding
from watermark_source.errors import RefusedError
from watermark_source.planning.split import Split, SplitRange

pytestmark = pytest.mark.service
PEM = Path(__file__).parents[1] / "certificates"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECRET = "correct-horse"
COUNT = 300_000
names = itertools.count()


class Secure(NamedTuple):
    """A broker that asks for a login over TLS."""

    bootstrap: str
    """Without a login, for the superuser."""
    port: int


@pytest.fixture(scope="module")
def secure() -> Iterator[Secure]:
    """User u may read topic open, and only look at topic closed."""
    controller, port = free_ports(2)
    listeners = f"PLAINTEXT://127.0.0.1:{{port}},BOTH://127.0.0.1:{port}"
    config = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,BOTH:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(PEM / "broker.pem"),
        "listener.name.both.plain.sasl.jaas.config": f'{PLAIN} required user_u="{SECRET}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.retention.ms": "86400000",
    }
    with kafka_cluster(1, config=config, jvm=FAST_START) as cluster:
        create_topic(cluster.bootstrap, "secret")
        for topic in ("open", "closed"):
            create_topic(cluster.bootstrap, topic, config={"retention.ms": "-1"})
            bulk_produce(cluster.bootstrap, topic, 0, np.arange(COUNT, dtype=np.int64))
        allow(cluster.bootstrap, "open", "READ")
        allow(cluster.bootstrap, "closed", "DESCRIBE")
        yield Secure(cluster.bootstrap, port)
        sessions._kept.clear()


def allow(bootstrap: str, topic: str, operation: str, *, granted: bool = True) -> None:
    """Give user u a right on a topic, or take it away."""
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    with admin_client(bootstrap) as admin:
        right = ACL(
            "User:u", "*", ACLOperation[operation], ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, topic)
        )
        if granted:
            admin.create_acls([right])
        else:
            admin.delete_acls([right])
        # The broker accepts a right before it grants it (KRaft).
        wait_until(lambda: bool(admin.describe_acls(right)[0]) is granted, 60, f"the right to {operation} {topic}")


def login(port: int) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} required username="u" password="{SECRET}";',
        "kafka.ssl.truststore.location": str(PEM / "ca.pem"),
    }


def reader(port: int) -> KafkaRangeReader:
    settings = parse_settings(login(port))
    return KafkaRangeReader(settings, ("offset",), fail_on_data_loss=True, poll_timeout_ms=120_000)


def test_a_logged_in_reader_over_tls_reads_every_row_again_and_again(secure: Secure) -> None:
    wanted = [SplitRange(Split("open", 0), 0, COUNT)]
    for _ in range(2):
        seen = [offset for batch in reader(secure.port).read(wanted) for offset in batch.columns[0].to_pylist()]
        assert seen == list(range(COUNT))


def test_no_right_to_read_is_refused_naming_the_topic(secure: Secure) -> None:
    with pytest.raises(RefusedError, match=r"topic closed partition 0 offset 0: .*--operation Read --topic closed"):
        list(reader(secure.port).read([SplitRange(Split("closed", 0), 0, COUNT)]))


def test_settings_that_an_announcer_may_not_read_are_warned_of_once_with_the_lines_to_write(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic of announcements had the brokers' retention in silence, and not that of the data."""
    topic, side, servers = "unset", "unset.watermarks", f"--bootstrap-server 127.0.0.1:{secure.port}"
    create_topic(secure.bootstrap, topic, config={"retention.ms": "-1"})
    allow(secure.bootstrap, topic, "DESCRIBE")
    for operation in ("CREATE", "WRITE", "READ"):
        allow(secure.bootstrap, side, operation)

    def warned() -> list[str]:
        caplog.clear()
        with WatermarkAnnouncer(topic, login(secure.port), "a") as writer:
            writer.announce(1)
            # After trouble both topics are looked at again.
            writer._topic.close()
            writer.announce(2)
        return [text for text in caplog.messages if text.startswith(f"topic {side}: ")]

    (created,) = warned()
    assert f"created with the brokers' own retention.ms and min.insync.replicas, not with those of {topic}" in created
    assert "the watermark of a reader with a backlog stands" in created
    right = f"kafka-acls.sh {servers} --add --allow-principal User:NAME --operation DescribeConfigs --topic"
    assert f"{right} {topic}; and set them: kafka-configs.sh {servers} --alter --topic {side} --add-config" in created
    (unknown,) = warned()
    assert f"as long as {topic} keeps rows, and without compaction, is not known" in unknown
    assert f"{right} {topic} --topic {side}; and" in unknown
    for each in (topic, side):
        allow(secure.bootstrap, each, "DESCRIBE_CONFIGS")
    (shorter,) = warned()
    assert f"retention.ms=86400000 is shorter than that of {topic}, -1" in shorter
    line = f"Set it: kafka-configs.sh {servers} --alter --topic {side} --add-config retention.ms=-1"
    assert shorter.endswith(line)


# What may not be read: named wherever it is asked for, and never treated as deleted.


LINE = "kafka-acls.sh --bootstrap-server {} --add --allow-principal User:NAME --operation {} {}"


@pytest.fixture
def user(secure: Secure) -> Iterator[DirectKafka]:
    """Queries of user u."""
    made = DirectKafka(f"127.0.0.1:{secure.port}")
    yield made
    made.close()


def options(user: DirectKafka, port: int, **given: object) -> Mapping[str, str]:
    return user.source(**{**login(port), "kafka.metadata.max.age.ms": "200", **given})


def named(bootstrap: str, *rights: tuple[str, str], count: int = 5) -> str:
    """Create a topic of records, with rights for user u, and return its name."""
    topic = f"mine{next(names)}"
    create_topic(bootstrap, topic, config={"retention.ms": "-1"})
    if count:
        bulk_produce(bootstrap, topic, 0, np.arange(count, dtype=np.int64))
    for operation, name in rights:
        allow(bootstrap, name or topic, operation)
    return topic


@pytest.mark.parametrize(
    ("chosen", "operation"),
    [
        ({"subscribe": "open,closed"}, "Read"), ({"subscribePattern": "^(open|closed)$"}, "Read"),
        ({"assign": '{"closed": [0]}'}, "Read"), ({"subscribe": "open,secret"}, "Describe"),
    ],
)  # fmt: skip
def test_a_topic_that_may_not_be_read_is_refused_with_the_line_by_query_batch_and_doctor(
    secure: Secure, user: DirectKafka, chosen: Mapping[str, str], operation: str
) -> None:
    given = options(user, secure.port, **chosen)
    topic = "closed" if operation == "Read" else "secret"
    line = re.escape(LINE.format(f"127.0.0.1:{secure.port}", operation, f"--topic {topic}"))
    with pytest.raises(RefusedError, match=line):
        user.start(given, f"refused {chosen}").plan()
    parsed = parse(given)
    with pytest.raises(RefusedError, match=line):
        look_up_batch(parsed, BatchBounds.of(parsed.start, parsed.end), Wanted())
    failed = {each.name: each.text for each in doctor.findings(given) if each.verdict is CheckVerdict.FAILED}
    assert re.search(line, failed["READ" if operation == "Read" else "topics"])


def test_what_a_pattern_does_not_show_is_a_caution_of_the_doctor(secure: Secure, user: DirectKafka) -> None:
    def found(pattern: str) -> Finding:
        given = options(user, secure.port, subscribePattern=pattern)
        return next(each for each in doctor.findings(given) if each.name == "topics left out")

    for pattern, wanted in (("^ope?n", "--topic op --resource-pattern-type prefixed"), ("op|zz", "--topic '*'")):
        caution = found(pattern)
        assert caution.verdict is CheckVerdict.WARNING
        assert caution.text.endswith(LINE.format(f"127.0.0.1:{secure.port}", "Read", wanted))
    everybody = next(
        each for each in doctor.findings({"kafka.bootstrap.servers": secure.bootstrap, "subscribePattern": "^op"})
        if each.name == "topics left out"
    )  # fmt: skip
    assert everybody.verdict is CheckVerdict.OK


@pytest.mark.parametrize("while_down", [False, True])
def test_a_topic_of_a_pattern_whose_right_is_taken_away_is_refused_and_not_taken_for_deleted(
    secure: Secure, user: DirectKafka, *, while_down: bool
) -> None:
    first, second = (named(secure.bootstrap, ("READ", "")) for _ in range(2))
    given = options(user, secure.port, subscribePattern=f"^({first}|{second})$", failOnDataLoss="false")
    query = user.start(given, first)
    query.process_all()
    if while_down:
        query.stop()
    allow(secure.bootstrap, second, "READ", granted=False)
    bulk_produce(secure.bootstrap, first, 0, np.arange(5, dtype=np.int64))
    with pytest.raises(RefusedError, match=f"--topic {second}"):
        (user.start(given, first) if while_down else query).run_until(lambda: False, seconds=60)
    allow(secure.bootstrap, second, "READ")
    bulk_produce(secure.bootstrap, second, 0, np.arange(5, dtype=np.int64))
    user.start(given, first).process_all()
    assert [(topic, offset) for topic, _, offset in user.data(first)] == [
        (topic, offset) for topic in sorted((first, second)) for offset in range(10)
    ]


def test_a_topic_that_a_pattern_finds_later_and_that_may_not_be_read_is_refused_and_read_once_it_may(
    secure: Secure, user: DirectKafka
) -> None:
    first = named(secure.bootstrap, ("READ", ""))
    given = options(user, secure.port, subscribePattern=f"^{first}(-later)?$")
    query = user.start(given, first)
    query.process_all()
    later = f"{first}-later"
    create_topic(secure.bootstrap, later, config={"retention.ms": "-1"})
    bulk_produce(secure.bootstrap, later, 0, np.arange(5, dtype=np.int64))
    # It is not shown yet.
    query.process_all()
    allow(secure.bootstrap, later, "DESCRIBE")
    with pytest.raises(RefusedError, match=f"lacks the right Read on topic {later}.*--operation Read --topic {later}"):
        query.run_until(lambda: False, seconds=60)
    allow(secure.bootstrap, later, "READ")
    user.start(given, first).process_all()
    assert len(user.data(first)) == 10


def test_the_right_to_commit_positions_is_named_by_query_and_doctor(
    secure: Secure, user: DirectKafka, caplog: pytest.LogCaptureFixture
) -> None:
    given = options(user, secure.port, subscribe="open", startingOffsets="latest", commitGroupId="mine")
    query = user.start(given, "commits")
    query.step()
    line = LINE.format(f"127.0.0.1:{secure.port}", "Read", "--group mine")
    wait_until(lambda: query.step_or_wait() or line in caplog.text, 60, "the warning")
    failed = {each.name: each.text for each in doctor.findings(given) if each.verdict is CheckVerdict.FAILED}
    assert failed["commitGroupId"].endswith(line)


def test_who_may_read_a_topic_may_ask_for_its_epochs(secure: Secure) -> None:
    with closing(KafkaAdmin(parse_settings(login(secure.port)))) as admin:
        found = admin.epoch_ends({Split("open", 0): 0})
    assert found[Split("open", 0)].offset == COUNT
