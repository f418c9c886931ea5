"""The container engine of this machine, or the one that DOCKER_HOST names, and where its published ports are."""

from __future__ import annotations

import contextlib
import enum
import functools
import ipaddress
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from services.errors import ServiceError
from services.kafka_local import KAFKA_VERSION, kafka_version
from services.local_server import free_ports
from services.mysql_program import Flavour, release_from_environment
from services.server import Server

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer


_ENGINE_SECONDS = 2


def engine_address() -> str:
    """The address of the machine that an engine publishes ports on, as this process reaches it.

    An engine behind a local socket has loopback; one on another machine has that machine's address.

    Raises:
        ServiceError: no engine answers within two seconds; the message names each, and why.
    """
    try:
        # An environment that testcontainers refuses is refused while it is imported.
        from docker.errors import DockerException
        from testcontainers.core.docker_client import DockerClient
    except ImportError as missing:
        raise ServiceError(f"{missing}; run: pip install 'testcontainers>=4.10'") from missing
    except ValueError as refused:
        raise ServiceError(f"no container engine can be used: {refused}") from refused
    try:
        # The constructor asks the engine for its version: that is the answer.
        engine = DockerClient(timeout=_ENGINE_SECONDS)
        with closing(engine.client):
            return socket.gethostbyname(engine.host())
    except (DockerException, OSError, RuntimeError, ValueError) as failure:
        where = os.environ.get("DOCKER_HOST", "its usual place")
        raise ServiceError(f"no container engine can be used at {where}: {failure}") from failure


def engine_is_here() -> bool:
    """Whether an engine answers that publishes ports on this machine's loopback."""
    try:
        return ipaddress.ip_address(engine_address()).is_loopback
    except ServiceError:
        return False


# Where a service runs: in a container when this machine has an engine, otherwise as a local process.


WHERE_VARIABLE = "WATERMARK_SOURCE_SERVICES"
_Service = TypeVar("_Service")


class Where(enum.Enum):
    """Where a service runs."""

    AUTO = "auto"
    CONTAINER = "container"
    LOCAL = "local"


def where_from_environment() -> Where:
    """What ``WATERMARK_SOURCE_SERVICES`` (``auto``, ``container`` or ``local``) says; ``auto`` without it.

    Raises:
        ServiceError: it has another value.
    """
    value = os.environ.get(WHERE_VARIABLE, Where.AUTO.value)
    try:
        return Where(value)
    except ValueError:
        accepted = ", ".join(each.value for each in Where)
        raise ServiceError(f"{WHERE_VARIABLE}={value}: accepted are {accepted}") from None


def created(where: Where, in_container: Callable[[], _Service], locally: Callable[[], _Service]) -> _Service:
    """Return a service, not started; with ``AUTO`` a container that is refused is replaced by a local process.

    Raises:
        ServiceError: it cannot be made where it is to run.
    """
    if where is Where.CONTAINER:
        return in_container()
    if where is Where.AUTO and engine_is_here():
        try:
            return in_container()
        except ServiceError as refused:
            sys.stderr.write(f"{refused}\nusing a local process instead\n")
    return locally()


# The end of containers whose owner has died: a process that waits for that and removes them.


# It reads a pipe that only the owner holds open; the kernel closes it however the owner ends, kill -9 included. Twice,
# because the engine may still be making a container that the owner asked for.
_WATCH = """
import sys, time
sys.stdin.buffer.read()
import docker
engine = docker.from_env()
for _ in range(2):
    for container in engine.containers.list(all=True, filters={"label": sys.argv[1]}, ignore_removed=True):
        try:
            container.remove(force=True, v=True)
        except docker.errors.APIError:
            pass
    time.sleep(1)
"""


@functools.cache
def watch(label: str, engine: str | None) -> subprocess.Popen[bytes]:
    """Let all containers of an engine with this label go, and their data, when this process ends.

    ``engine`` is the value of ``DOCKER_HOST``; a second call for the same starts no second watcher.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _WATCH, label],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=os.environ | ({"DOCKER_HOST": engine} if engine else {}),
        start_new_session=True,
    )


# A server in a container, through testcontainers: what all of them do alike.


_POLL_SECONDS = 0.1
_TAIL_LINES = 2_000
_ENDED = ("exited", "dead", "removing")


class ContainerServer(Server):
    """One server in a container with a host port chosen beforehand, so that restarts keep it.

    The port is published at one address: loopback, or that of the machine whose engine was asked for. If this process
    dies, however it dies, the container goes.
    """

    def __init__(
        self, image: str, arranged: Callable[[DockerContainer], DockerContainer], *, inside: int | None = None
    ) -> None:
        """Pull the image if need be and create the container, ``arranged`` with its settings.

        ``inside`` is the port that the server has in the container, by default the same as outside.

        Raises:
            ServiceError: no engine, no image, or the engine refused; no container stays behind.
        """
        self._host = engine_address()
        (self._port,) = free_ports(1)
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.container import DockerContainer
        from testcontainers.core.labels import LABEL_SESSION_ID, SESSION_ID

        # Its own way to remove what is left is a container that anyone who reaches this machine may ask to do so.
        testcontainers_config.ryuk_disabled = True
        watch(f"{LABEL_SESSION_ID}={SESSION_ID}", os.environ.get("DOCKER_HOST"))
        sys.stderr.write(f"starting {image} in a container (the first time its image is pulled)\n")
        with _refusals(f"{image} does not start in a container"):
            self._handle = arranged(DockerContainer(image))
            # Its own method knows no address, and publishes on all of them.
            published = cast("dict[str, Any]", self._handle.ports)
            published[f"{inside or self._port}/tcp"] = (self._host, self._port)
            try:
                self._handle.start()
            except BaseException:  # also an interrupt: no container stays behind
                self.close()
                raise

    @property
    def host(self) -> str:
        """Loopback, or the address of the engine's machine."""
        return self._host

    def start(self) -> None:
        """Start the container unless it runs, and return when the server answers.

        Raises:
            ServiceError: it ended or did not answer in time; the message holds the end of its log.
        """
        container = self._container()
        with _refusals(f"{self._kind} in container {container.short_id} does not start"):
            container.reload()
            if container.status != "running":
                container.start()
            end = time.monotonic() + self._start_seconds
            while not self._answers():
                container.reload()
                if container.status in _ENDED:
                    raise _with_its_log(container, f"it ended with exit code {container.attrs['State']['ExitCode']}")
                if time.monotonic() >= end:
                    late = f"{self.host}:{self.port} did not answer within {self._start_seconds:g} s"
                    raise _with_its_log(container, late)
                time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop the server in an orderly way; its data stays in the container."""
        self._container().stop(timeout=int(self._stop_seconds))

    def kill(self) -> None:
        """End the server with kill -9; what was written stays in the container."""
        self._container().kill()

    def pause(self) -> None:
        """Freeze it: its sockets stay open and nothing answers."""
        self._container().pause()

    def resume(self) -> None:
        """Let it go on when it was frozen."""
        self._container().unpause()

    def close(self) -> None:
        """Remove the container and its data. Idempotent."""
        from docker.errors import NotFound

        with contextlib.suppress(NotFound):
            self._handle.stop()

    def _container(self) -> Container:
        return self._handle.get_wrapped_container()


def last_lines(log: str, count: int = 30) -> str:
    """The end of a log. Of lines that differ in numbers alone the last: asking whether it answers fills some logs."""
    shown: dict[str, str] = {}
    for line in reversed(log.splitlines()):
        shown.setdefault(re.sub(r"\d+", "0", line), line)
        if len(shown) == count:
            break
    return "\n".join(reversed(shown.values())) or "(the log is empty)"


def _with_its_log(container: Container, seen: str) -> ServiceError:
    log = container.logs(tail=_TAIL_LINES).decode(errors="replace")
    return ServiceError(f"{seen}. The end of its log:\n{last_lines(log)}")


@contextlib.contextmanager
def _refusals(what: str) -> Iterator[None]:
    """Let what is raised be a ServiceError that begins with ``what``: by us, the engine or testcontainers."""
    from docker.errors import DockerException

    try:
        yield
    except (DockerException, OSError, RuntimeError, ValueError) as failure:
        raise ServiceError(f"{what}: {failure}") from failure


# Images of the servers that run in containers; ``docker-compose.yml`` has the same.


KAFKA: Final = f"apache/kafka:{KAFKA_VERSION}"
MYSQL: Final = {Flavour.MYSQL: "mysql:9.7", Flavour.MARIADB: "mariadb:11.8"}
POSTGRES: Final = "postgres:18"


def kafka_image() -> str:
    """The image of the release that ``WATERMARK_SOURCE_KAFKA`` names, by default ``KAFKA``."""
    return f"{KAFKA.partition(':')[0]}:{kafka_version()}"


def mysql_image(flavour: Flavour) -> str:
    """The image of the release that ``WATERMARK_SOURCE_MYSQL`` names, by default that of ``MYSQL``."""
    usual = MYSQL[flavour]
    release = release_from_environment(flavour)
    return f"{usual.partition(':')[0]}:{release}" if release else usual
