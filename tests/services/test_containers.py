"""Servers in containers: reached on loopback alone, whose failures tell their cause, and of which nothing is left."""

from __future__ import annotations

import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import docker
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID

import services.containers
from services.containers import ContainerServer, Where, created, watch
from services.errors import ServiceError
from services.kafka import Kafka
from services.kafka_container import ContainerKafka
from services.kafka_local import START_SECONDS
from services.kafka_topics import create_topic
from services.kafka_wire import BrokerConnection
from services.mysql import MySql
from services.mysql_client import run as run_mysql
from services.mysql_container import ContainerMySql
from services.mysql_program import Flavour
from services.postgres import Postgres
from services.postgres_client import run as run_postgres
from services.postgres_container import ContainerPostgres
from services.postgres_local import LocalPostgres
from services.wait_until import wait_until
from tests.services.what_is_left import accepts

pytestmark = [pytest.mark.service, pytest.mark.container]

MARIADB = Flavour.MARIADB
ROOT = Path(__file__).parents[2]


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    with closing(docker.from_env()) as client:
        yield client


def _containers(engine: docker.DockerClient, session: str = SESSION_ID) -> set[str]:
    found = engine.containers.list(all=True, filters={"label": f"{LABEL_SESSION_ID}={session}"}, ignore_removed=True)
    return {container.id for container in found}


def test_servers_without_a_password_are_published_on_loopback_alone(
    engine: docker.DockerClient, kafka: Kafka, mysql: MySql, postgres: Postgres
) -> None:
    servers = (kafka, mysql, postgres)
    assert all(isinstance(server, ContainerServer) for server in servers)
    published = [
        (binding["HostIp"], int(binding["HostPort"]))
        for name in _containers(engine)
        for bindings in engine.containers.get(name).ports.values()
        for binding in bindings or ()
    ]
    assert {address for address, _ in published} == {"127.0.0.1"}
    assert {server.port for server in servers if isinstance(server, ContainerServer)} <= {port for _, port in published}


def test_no_container_serves_others_who_want_containers_removed(engine: docker.DockerClient, kafka: Kafka) -> None:
    running = {container.id: container for container in engine.containers.list()}
    assert not [running[name] for name in _containers(engine) if "ryuk" in str(running[name].image)]
    assert watch.cache_info().currsize, "nobody removes them when this process is killed"


@pytest.mark.parametrize(
    ("make", "write", "read"),
    [
        pytest.param(
            ContainerMySql,
            lambda server: run_mysql(server.host, server.port, "CREATE DATABASE a", "CREATE TABLE a.t SELECT 7 AS id"),
            lambda server: run_mysql(server.host, server.port, "SELECT id FROM a.t") == ((7,),),
            id="mysql",
        ),
        pytest.param(
            ContainerPostgres,
            lambda server: run_postgres(server.host, server.port, "CREATE TABLE t AS SELECT 7 AS id"),
            lambda server: run_postgres(server.host, server.port, "SELECT id FROM t") == [(7,)],
            id="postgres",
        ),
        pytest.param(
            ContainerKafka,
            lambda server: _produce(server.bootstrap),
            lambda server: _offsets(server.bootstrap) == (0, 1),
            id="kafka",
        ),
    ],
)
def test_what_was_written_survives_kill_9_and_the_address_stays(
    make: Callable[[], ContainerServer],
    write: Callable[[ContainerServer], object],
    read: Callable[[ContainerServer], bool],
) -> None:
    with closing(make()) as server:
        server.start()
        port = server.port
        write(server)
        server.kill()
        assert not accepts(port)
        server.start()
        assert (server.host, server.port) == ("127.0.0.1", port)
        assert read(server)
        server.restart()
        assert read(server)
    assert not accepts(port)


def _produce(bootstrap: str, topic: str = "t", **settings: str) -> None:
    create_topic(bootstrap, topic, config=settings)
    with closing(KafkaProducer(bootstrap_servers=bootstrap, acks="all")) as producer:
        # As old as records of tests are.
        producer.send(topic, b"kept", timestamp_ms=1).get(timeout=30)


def _offsets(bootstrap: str, topic: str = "t") -> tuple[int, int]:
    partition = TopicPartition(topic, 0)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        return consumer.beginning_offsets([partition])[partition], consumer.end_offsets([partition])[partition]


def test_old_records_are_kept() -> None:
    often = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "0"}
    with closing(ContainerKafka(config=often)) as kafka:
        kafka.start()
        _produce(kafka.bootstrap)
        _produce(kafka.bootstrap, "given-up", **{"retention.ms": "1000"})
        wait_until(lambda: _offsets(kafka.bootstrap, "given-up") == (1, 1), 60, "retention")
        assert _offsets(kafka.bootstrap) == (0, 1)


@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (lambda: ContainerKafka(config={"log.retention.ms": "soon"}), "Invalid value soon .*log.retention.ms"),
        (lambda: ContainerMySql(config={"no_such_setting": "1"}), "unknown variable 'no_such_setting=1'"),
        (lambda: ContainerMySql(config={"no_such_setting": "1"}, flavour=MARIADB), "unknown variable 'no_such_setting"),
        (lambda: ContainerPostgres(config={"no_such_setting": "1"}), 'unrecognized .* "no_such_setting"'),
    ],
    ids=["kafka", "mysql", "mariadb", "postgres"],
)
def test_a_container_that_ends_while_it_starts_is_noticed_and_tells_the_cause(
    make: Callable[[], ContainerServer], cause: str
) -> None:
    with closing(make()) as server:
        began = time.monotonic()
        with pytest.raises(ServiceError, match=rf"(?s)it ended with exit code 1\. The end of its log:.*{cause}"):
            server.start()
        assert time.monotonic() - began < START_SECONDS / 2


def test_a_server_that_refuses_us_shows_more_than_our_own_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(ContainerPostgres()) as server:
        server.start()
        run_postgres(server.host, server.port, "CREATE ROLE other SUPERUSER", "ALTER ROLE postgres NOLOGIN")
        server.stop()
        monkeypatch.setattr(ContainerPostgres, "_start_seconds", 8.0)
        with pytest.raises(ServiceError, match=r"did not answer within 8 s") as late:
            server.start()
        log = server._container().logs().decode()
        assert log.count("is not permitted to log in") > 30
        assert str(late.value).count("is not permitted to log in") == 1
        assert "database system is ready to accept connections" in str(late.value)


def test_nothing_is_left_of_a_container_that_the_engine_cannot_start(
    engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = _containers(engine)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(services.containers, "free_ports", lambda _: (port,))
        with pytest.raises(ServiceError, match=rf"^postgres:\d+ does not start in a container: .*{port}"):
            ContainerPostgres()
        assert _containers(engine) <= before
        # Who did not ask for a container has a local process.
        with closing(created(Where.AUTO, ContainerPostgres, LocalPostgres)) as server:  # type: ignore[type-var]
            assert isinstance(server, LocalPostgres)
        assert "using a local process instead" in capsys.readouterr().err
        assert _containers(engine) <= before


def test_an_image_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.containers.POSTGRES", "localhost:1/no-such-image:1")
    with pytest.raises(ServiceError, match=r"^localhost:1/no-such-image:1 does not start in a container: "):
        ContainerPostgres()


_OWNER = """
import signal
from testcontainers.core.labels import SESSION_ID
from services.postgres import postgres_service
from services.containers import Where
with postgres_service(where=Where.CONTAINER) as server:
    print(SESSION_ID, server.port, flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_owner_dies(how: signal.Signals, engine: docker.DockerClient) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        session, port = owner.stdout.readline().split()
        (container,) = _containers(engine, session)
        volumes = {mount["Name"] for mount in engine.containers.get(container).attrs["Mounts"]}
        assert accepts(int(port))
        owner.send_signal(how)
    wait_until(lambda: not _containers(engine, session), 60, "removal of the container")
    assert not accepts(int(port))
    assert volumes
    assert not volumes & {volume.id for volume in engine.volumes.list()}


_TESTS = """
import sys
import pytest
from testcontainers.core.labels import SESSION_ID
print(SESSION_ID, flush=True)
sys.exit(pytest.main(["tests/services/test_kafka_topics.py", "-q", "-p", "no:cacheprovider"]))
"""


def test_a_run_of_tests_leaves_no_container(engine: docker.DockerClient) -> None:
    with subprocess.Popen([sys.executable, "-c", _TESTS], cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        session = tests.stdout.readline().strip()
        wait_until(lambda: bool(_containers(engine, session)), 120, "the tests' broker")
        told = tests.stdout.read()
    assert tests.returncode == 0, told
    assert not _containers(engine, session)


def test_an_engine_elsewhere_is_asked_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    path = docker.from_env().api.get_adapter("http+docker://localhost").socket_path
    with ExitStack() as held:
        port = held.enter_context(_forwarded("127.0.0.2", path))
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.2:{port}")
        server = held.enter_context(closing(ContainerKafka()))
        server.start()
        assert server.host == "127.0.0.2"
        create_topic(server.bootstrap, "t")
        assert not accepts(server.port), "published on other addresses too"
        with BrokerConnection(server.host, server.port) as connection:
            assert connection.cluster().brokers[1][0] == "127.0.0.2"


@contextmanager
def _forwarded(address: str, path: str) -> Iterator[int]:
    """A TCP port that leads to a local socket."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as engine:
                engine.connect(path)
                back = threading.Thread(target=_copy, args=(engine, self.request), daemon=True)
                back.start()
                _copy(self.request, engine)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server((address, 0), Forward) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # either end has closed
