"""A PostgreSQL server in a container, through testcontainers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from services import containers
from services.containers import ContainerServer
from services.postgres_client import answers
from services.postgres_local import START_SECONDS, STOP_SECONDS, server_settings

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_PORT = 5432


class ContainerPostgres(ContainerServer):
    """``ContainerServer`` that is PostgreSQL; no password."""

    _start_seconds, _stop_seconds = START_SECONDS, STOP_SECONDS
    _kind = "PostgreSQL"

    def __init__(self, *, config: Mapping[str, str] | None = None) -> None:
        """Pull the image if need be and create the container; raises as ``ContainerServer``."""
        settings = server_settings(config)

        def arranged(container: DockerContainer) -> DockerContainer:
            return container.with_env("POSTGRES_HOST_AUTH_METHOD", "trust").with_command(
                [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            )

        super().__init__(containers.POSTGRES, arranged, inside=_PORT)

    def _answers(self) -> bool:
        # Over TCP: the server that only makes the data folder listens on its socket alone.
        return answers(self.host, self.port)
