"""A MySQL server in a container, through testcontainers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from services import containers
from services.containers import ContainerServer
from services.mysql_client import answers
from services.mysql_local import START_SECONDS, STOP_SECONDS, normalised, server_settings
from services.mysql_program import Flavour

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_PORT = 3306


class ContainerMySql(ContainerServer):
    """``ContainerServer`` that is MySQL or MariaDB; root has no password."""

    _start_seconds, _stop_seconds = START_SECONDS, STOP_SECONDS

    def __init__(self, *, config: Mapping[str, str] | None = None, flavour: Flavour | None = None) -> None:
        """Pull the image if need be and create the container; raises as ``ContainerServer``."""
        self._flavour = flavour or Flavour.MYSQL
        settings = server_settings(self._flavour) | normalised(config)

        def arranged(container: DockerContainer) -> DockerContainer:
            return (
                container.with_env("MYSQL_ALLOW_EMPTY_PASSWORD", "yes")
                .with_env("MARIADB_ALLOW_EMPTY_ROOT_PASSWORD", "yes")
                .with_command([f"--{name}={value}" for name, value in settings.items()])
            )

        super().__init__(containers.mysql_image(self._flavour), arranged, inside=_PORT)

    @property
    def flavour(self) -> Flavour:
        """Which server it is."""
        return self._flavour

    @property
    def _kind(self) -> str:
        return self._flavour.value

    def _answers(self) -> bool:
        # Over TCP: the server that only makes the data folder listens on its socket alone.
        return answers(self.host, self.port)
