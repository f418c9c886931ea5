"""A Kafka broker in a container, through testcontainers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from services.broker import KAFKA_VERSION, START_SECONDS, STOP_SECONDS, broker_properties
from services.deadline import wait_until
from services.errors import ServiceError
from services.ports import free_ports
from services.wire import BrokerConnection

if TYPE_CHECKING:
    from docker.models.containers import Container

IMAGE = f"apache/kafka:{KAFKA_VERSION}"


class ContainerKafka:
    """One broker in a container with a host port chosen beforehand, so that restarts keep it."""

    def __init__(self, *, config: Mapping[str, str] | None = None) -> None:
        """Pull the image if need be and create the container.

        Raises:
            ServiceError: no engine, no image, or the engine refused.
        """
        try:
            from docker.errors import DockerException
            from testcontainers.core.container import DockerContainer
        except ImportError as missing:
            raise ServiceError(f"{missing}; run: pip install 'testcontainers>=4.10'") from missing
        (self._port,) = free_ports(1)
        properties = _properties(self._port) | {
            name: value.replace("{node}", "1").replace("{port}", str(self._port))
            for name, value in (config or {}).items()
        }
        sys.stderr.write(f"starting {IMAGE} in a container (the first time its image is pulled)\n")
        try:
            self._handle = DockerContainer(IMAGE).with_bind_ports(self._port, self._port)
            for name, value in properties.items():
                self._handle.with_env(_variable(name), value)
            self._handle.start()
        except (DockerException, OSError) as failure:
            raise ServiceError(f"the container engine answers, but {IMAGE} does not start: {failure}") from failure

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``; the same after every restart."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the container unless it runs, and return when the broker answers."""
        container = self._container()
        container.reload()
        if container.status != "running":
            container.start()
        try:
            wait_until(self._answers, START_SECONDS, f"Kafka in container {container.short_id} at {self.bootstrap}")
        except ServiceError as late:
            log = container.logs(tail=30).decode(errors="replace")
            raise ServiceError(f"{late}. The end of its log:\n{log}") from late

    def stop(self) -> None:
        """Stop the broker in an orderly way; its data stays in the container."""
        self._container().stop(timeout=int(STOP_SECONDS))

    def kill(self) -> None:
        """End the broker with kill -9; what was written stays in the container."""
        self._container().kill()

    def restart(self) -> None:
        """``stop``, then ``start``: same port, same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Remove the container and its data."""
        self._handle.stop()

    def _container(self) -> Container:
        return self._handle.get_wrapped_container()

    def _answers(self) -> bool:
        try:
            with BrokerConnection("127.0.0.1", self._port, timeout_seconds=2.0) as connection:
                return bool(connection.cluster().brokers)
        except ServiceError:
            return False


def _properties(port: int) -> dict[str, str]:
    # Inside and outside the container the broker has the same port: the address it announces is then right for both.
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        **broker_properties(1),
    }


def _variable(name: str) -> str:
    """The image's environment variable for a setting of ``server.properties``."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
