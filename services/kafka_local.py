"""Kafka brokers as local processes: one node, or a cluster, in KRaft mode; releases before 3.5 with ZooKeeper."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import re
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.cache import cached
from services.errors import ServiceError
from services.ivy import Module, jars
from services.java import QUICK_START, java_command
from services.kafka_wire import BrokerConnection
from services.local_server import ChildProcess, free_ports, run_to_end
from services.spark_start import class_archive
from services.zookeeper import SESSION_SECONDS, ZooKeeper

KAFKA_VERSION = "4.3.1"
VERSION_VARIABLE = "WATERMARK_SOURCE_KAFKA"
# Before it KRaft keeps no SCRAM users, and before 3.3 it was not for production.
_FIRST_IN_KRAFT = (3, 5)
START_SECONDS = 150.0
STOP_SECONDS = 20.0
_FORMAT_SECONDS = 120.0
# Without a binder of the logging interface a broker is mute, also about why it does not start.
_LOGGING = Module("org.slf4j", "slf4j-simple", "1.7.36")
_LARGEST_RECORD_BATCH = 32 * 1024 * 1024


def kafka_version() -> str:
    """Release of the brokers: the environment variable ``WATERMARK_SOURCE_KAFKA``, by default ``KAFKA_VERSION``.

    Raises:
        ServiceError: it is not the number of a release.
    """
    value = os.environ.get(VERSION_VARIABLE, KAFKA_VERSION)
    if not re.fullmatch(r"\d+\.\d+\.\d+", value):
        raise ServiceError(f"{VERSION_VARIABLE}={value}: a release is expected, for example {KAFKA_VERSION}")
    return value


@dataclass(frozen=True, slots=True)
class Jvm:
    """How the broker's Java runs: largest heap, further flags, and what it is made for."""

    heap: str = "1g"
    flags: tuple[str, ...] = ()
    short_lived: bool = False
    """Start sooner, and run at a fraction of the full speed."""


# For tests that start many brokers, never for measurements.
FAST_START = Jvm(heap="512m", short_lived=True)


def broker_properties(brokers: int) -> dict[str, str]:
    """Settings of every broker, wherever it runs: records of 16 MB pass, and a small cluster is at work at once."""
    replicas = str(min(3, brokers))
    return {
        "message.max.bytes": str(_LARGEST_RECORD_BATCH),
        "replica.fetch.max.bytes": str(_LARGEST_RECORD_BATCH),
        # Retention is based on record timestamps, and ours are often years old.
        "log.retention.ms": "-1",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # A broker that was killed may register again, and others lead its partitions, only when its session is over.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # Two writes a second that say nothing are half of what an idle broker does.
        "metadata.max.idle.interval.ms": "0",
        "auto.create.topics.enable": "false",
        "log.segment.delete.delay.ms": "1000",
    }


class LocalKafka:
    """Brokers of one cluster on loopback ports; node ids are 1 .. ``brokers``.

    Data outlives ``stop`` and ``kill``; ``close`` removes it. If this process dies first, however it dies, the brokers
    die with it and their folders go.
    """

    def __init__(self, *, brokers: int = 1, config: Mapping[str, str] | None = None, jvm: Jvm | None = None) -> None:
        """Fetch the broker's jars if need be, write the settings of every node and format its storage.

        ``config`` is added to each node's ``server.properties`` and overrides its settings; ``{node}``,
        ``{port}`` and ``{controller}`` in a value stand for the node's id, its client port and its controller's.
        """
        if brokers < 1:
            raise ServiceError(f"brokers = {brokers}: a cluster has at least one")
        self._jvm = jvm or Jvm()
        self._classpath = kafka_classpath()
        self._quick = quick_broker() if self._jvm.short_lived else ()
        ports = free_ports(2 * brokers)
        self._ports = dict(zip(range(1, brokers + 1), ports[:brokers], strict=True))
        controllers = dict(zip(self._ports, ports[brokers:], strict=True))
        self._root = Path(tempfile.mkdtemp(prefix="kafka-"))
        self._processes: dict[int, ChildProcess] = {}
        self._zookeeper: ZooKeeper | None = None
        try:
            if tuple(map(int, kafka_version().split(".")))[:2] < _FIRST_IN_KRAFT:
                self._zookeeper = ZooKeeper(self._root / "zookeeper", self._java)
            cluster_id = _new_id()
            for node in self._ports:
                self._prepare(node, cluster_id, controllers, config or {})
        except BaseException:  # also an interrupt: no folder stays behind
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        """Client addresses of all nodes, as ``bootstrap.servers`` takes them."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node ids."""
        return tuple(self._ports)

    def start(self, node: int | None = None) -> None:
        """Start one node, or all that do not run, and return when the cluster answers with every started node.

        Raises:
            ServiceError: a broker ended or did not answer in time; the message holds the end of its log.
        """
        if self._zookeeper is not None:
            self._zookeeper.start()
        for each in self._chosen(node):
            if not self._runs(each):
                if self._zookeeper is not None:
                    self._zookeeper.wait_until_gone(each)
                self._processes[each] = self._launch(each)
        self._wait_until_complete()

    def stop(self, node: int | None = None) -> None:
        """Stop one node, or all, in an orderly way. Its data stays."""
        chosen = [self._processes[each] for each in self._chosen(node) if each in self._processes]
        for process in chosen:
            process.signal(signal.SIGTERM)  # to all before waiting for one: a node needs its quorum to leave quickly
        for process in chosen:
            process.stop(seconds=STOP_SECONDS)

    def kill(self, node: int | None = None) -> None:
        """End one node, or all, with kill -9. What was written stays; ``start`` begins again from it."""
        for each in self._chosen(node):
            if each in self._processes:
                self._processes[each].kill()

    def restart(self, node: int | None = None) -> None:
        """``stop``, then ``start``: same ports, same data."""
        self.stop(node)
        self.start(node)

    def pause(self, node: int | None = None) -> None:
        """Freeze one node, or all (SIGSTOP): its sockets stay open and nothing answers."""
        for each in self._chosen(node):
            self._processes[each].freeze()

    def resume(self, node: int | None = None) -> None:
        """Let frozen nodes go on."""
        for each in self._chosen(node):
            self._processes[each].signal(signal.SIGCONT)

    def pid(self, node: int = 1) -> int:
        """Process id of a running node."""
        return self._processes[node].pid

    def close(self) -> None:
        """Stop all nodes at once and remove their data. Idempotent."""
        with contextlib.suppress(OSError):
            self.kill()
            if self._zookeeper is not None:
                self._zookeeper.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _chosen(self, node: int | None) -> Sequence[int]:
        if node is None:
            return self.nodes
        if node not in self._ports:
            raise ServiceError(f"node {node} does not exist; this cluster has nodes 1 to {len(self._ports)}")
        return (node,)

    def _runs(self, node: int) -> bool:
        return node in self._processes and self._processes[node].exit_code is None

    def _folder(self, node: int) -> Path:
        return self._root / f"node-{node}"

    def _prepare(self, node: int, cluster_id: str, controllers: Mapping[int, int], config: Mapping[str, str]) -> None:
        folder = self._folder(node)
        folder.mkdir()
        port = self._ports[node]
        clients = f"PLAINTEXT://127.0.0.1:{port}"
        # With ZooKeeper the listener of the controller is there too, for tests name it, and nobody uses it.
        usual = {
            **(_in_kraft(node, controllers) if self._zookeeper is None else _with_zookeeper(node, self._zookeeper)),
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controllers[node]}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(folder / "data"),
            **broker_properties(len(self._ports)),
        }
        properties = dict(usual)
        for name, value in config.items():
            for variable, number in (("{node}", node), ("{port}", port), ("{controller}", controllers[node])):
                value = value.replace(variable, str(number))  # noqa: PLW2901 - one variable after another
            properties[name] = value
        _write(folder / "server.properties", properties)
        if self._zookeeper is None:
            ids = {"node.id": str(node), "cluster.id": cluster_id, "directory.id": _new_id()}
            self._format(Path(properties["log.dirs"]), usual, ids)

    def _format(self, data: Path, usual: Mapping[str, str], ids: Mapping[str, str]) -> None:
        """Leave in a node's folder what Kafka's tool would, which takes a second: it runs once for a release."""

        def run_tool(folder: Path) -> None:
            settings = folder / "server.properties"
            _write(settings, {**usual, "log.dirs": str(folder / "data")})
            formatting = ("kafka.tools.StorageTool", "format", "-t", ids["cluster.id"], "-c", str(settings))
            run_to_end(
                self._java("-Xmx256m", *(self._quick or QUICK_START), *formatting),
                folder=folder,
                seconds=_FORMAT_SECONDS,
                what="formatting the broker's storage",
            )

        shutil.copytree(cached(f"kafka-storage-{kafka_version()}", run_tool) / "data", data, dirs_exist_ok=True)
        lines = (data / "meta.properties").read_text(encoding="utf-8").splitlines()
        known = dict(line.split("=", 1) for line in lines if "=" in line)
        _write(data / "meta.properties", {name: ids.get(name, value) for name, value in known.items()})

    def _launch(self, node: int) -> ChildProcess:
        folder = self._folder(node)
        flags = (f"-Xmx{self._jvm.heap}", "-Xms256m", *self._quick, *self._jvm.flags)
        return ChildProcess(
            self._java(*flags, "kafka.Kafka", str(folder / "server.properties")),
            folder=folder,
            log=folder / "server.log",
            files=self._root,
        )

    def _java(self, *arguments: str) -> list[str]:
        logging = (
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
        )
        return [java_command(), "-cp", self._classpath, *logging, *arguments]

    def _wait_until_complete(self) -> None:
        """Until every running node lists every running node (a node accepts clients only when it has caught up)."""
        running = {node for node in self.nodes if self._runs(node)}
        waiting = set(running)
        end = time.monotonic() + START_SECONDS
        while waiting:
            for node in sorted(waiting):
                process = self._processes[node]
                if process.exit_code is not None:
                    raise ServiceError(
                        f"Kafka node {node} ended with exit code {process.exit_code} while it started. "
                        f"The end of its log:\n{process.last_lines()}"
                    )
                if self._lists(node, running):
                    waiting.discard(node)
            if waiting and time.monotonic() >= end:
                node = min(waiting)
                raise ServiceError(
                    f"Kafka node {node} at 127.0.0.1:{self._ports[node]} did not answer with all of nodes "
                    f"{sorted(running)} within {START_SECONDS:g} s. The end of its log:\n"
                    f"{self._processes[node].last_lines()}"
                )
            time.sleep(0.05)

    def _lists(self, node: int, expected: set[int]) -> bool:
        try:
            with BrokerConnection("127.0.0.1", self._ports[node], timeout_seconds=2.0) as connection:
                return expected <= connection.cluster().brokers.keys()
        except ServiceError:
            return False


def _new_id() -> str:
    """Return a UUID as KRaft wants it: 22 characters of base64, of which the first is no dash."""
    return base64.urlsafe_b64encode(b"\x01" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def _write(file: Path, properties: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")


def _in_kraft(node: int, controllers: Mapping[int, int]) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{p}" for n, p in controllers.items()),
        "controller.listener.names": "CONTROLLER",
    }


def _with_zookeeper(node: int, zookeeper: ZooKeeper) -> dict[str, str]:
    return {
        "broker.id": str(node),
        "zookeeper.connect": zookeeper.address,
        "zookeeper.session.timeout.ms": f"{SESSION_SECONDS * 1000:.0f}",
    }


def kafka_classpath(version: str | None = None) -> str:
    """Java class path of a broker and its tools, by default of ``kafka_version()``; downloads the jars once."""
    return str(_jars(version or kafka_version())[0].parent / "*")


@functools.cache
def quick_broker() -> tuple[str, ...]:
    """Java options for a broker that lives shortly.

    The first time, one makes an archive of its classes: ten seconds, 60 MB.
    """
    return class_archive("kafka", _jars(kafka_version()), "services.kafka_first_run", QUICK_START)


def _jars(version: str) -> Sequence[Path]:
    locked = version == KAFKA_VERSION
    return jars(
        f"kafka-{version}", _locked() if locked else _unlocked(version), size="about 45 MB", transitive=not locked
    )


def _unlocked(version: str) -> Sequence[Module]:
    return Module("org.apache.kafka", "kafka_2.13", version), _LOGGING


def _locked() -> Sequence[Module]:
    """Return all jars of a broker of ``KAFKA_VERSION``: to look up what they depend on takes most of the download."""
    lines = Path(__file__).with_name("kafka_jars.txt").read_text(encoding="utf-8").splitlines()
    return tuple(Module(*line.split(":")) for line in lines)
