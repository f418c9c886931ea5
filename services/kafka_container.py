"""A Kafka broker in a container, through testcontainers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from services import containers
from services.containers import ContainerServer
from services.errors import ServiceError
from services.kafka_local import START_SECONDS, STOP_SECONDS, broker_properties
from services.kafka_wire import BrokerConnection

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer


class ContainerKafka(ContainerServer):
    """``ContainerServer`` that is a broker."""

    _start_seconds, _stop_seconds = START_SECONDS, STOP_SECONDS
    _kind = "Kafka"

    def __init__(self, *, config: Mapping[str, str] | None = None) -> None:
        """Pull the image if need be and create the container; raises as ``ContainerServer``."""

        def arranged(container: DockerContainer) -> DockerContainer:
            given = {
                name: value.replace("{node}", "1").replace("{port}", str(self.port))
                for name, value in (config or {}).items()
            }
            for name, value in {**broker_settings(self.host, self.port), **given}.items():
                container.with_env(variable(name), value)
            return container

        super().__init__(containers.kafka_image(), arranged)

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``; the same after every restart."""
        return f"{self.host}:{self.port}"

    def _answers(self) -> bool:
        try:
            with BrokerConnection(self.host, self.port, timeout_seconds=2.0) as connection:
                return bool(connection.cluster().brokers)
        except ServiceError:
            return False


def broker_settings(host: str, port: int) -> dict[str, str]:
    """``server.properties`` of a broker that is alone and announces itself at this address."""
    # Inside and outside the container the broker has the same port: the address it announces is then right for both.
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        **broker_properties(1),
    }


def variable(name: str) -> str:
    """The image's environment variable for a setting of ``server.properties``."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
