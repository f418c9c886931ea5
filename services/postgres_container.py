"""A PostgreSQL server in a container, through testcontainers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from services.deadline import wait_until
from services.errors import ServiceError
from services.ports import free_ports
from services.postgres_client import answers
from services.postgres_local import START_SECONDS, STOP_SECONDS, server_settings

if TYPE_CHECKING:
    from docker.models.containers import Container

_IMAGE = "postgres:18"
_PORT = 5432


class ContainerPostgres:
    """One server in a container with a host port chosen beforehand, so that restarts keep it; no password."""

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
        sys.stderr.write(f"starting {_IMAGE} in a container (the first time its image is pulled)\n")
        settings = server_settings(config)
        try:
            self._handle = (
                DockerContainer(_IMAGE)
                .with_bind_ports(_PORT, self._port)
                .with_env("POSTGRES_HOST_AUTH_METHOD", "trust")
                .with_command([part for name, value in settings.items() for part in ("-c", f"{name}={value}")])
            )
            self._handle.start()
        except (DockerException, OSError) as failure:
            raise ServiceError(f"the container engine answers, but {_IMAGE} does not start: {failure}") from failure

    @property
    def host(self) -> str:
        """Always loopback."""
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The same after every restart."""
        return self._port

    def start(self) -> None:
        """Start the container unless it runs, and return when the server answers."""
        container = self._container()
        container.reload()
        if container.status != "running":
            container.start()
        what = f"PostgreSQL in container {container.short_id} at {self.host}:{self._port}"
        try:
            # Over TCP: the server that only makes the data folder listens on its socket alone.
            wait_until(lambda: answers(self.host, self._port), START_SECONDS, what)
        except ServiceError as late:
            log = container.logs(tail=30).decode(errors="replace")
            raise ServiceError(f"{late}. The end of its log:\n{log}") from late

    def stop(self) -> None:
        """Stop the server in an orderly way; its data stays in the container."""
        self._container().stop(timeout=int(STOP_SECONDS))

    def kill(self) -> None:
        """End the server with kill -9; what was written stays in the container."""
        self._container().kill()

    def restart(self) -> None:
        """``stop``, then ``start``: same port, same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze it: its sockets stay open and nothing answers."""
        self._container().pause()

    def resume(self) -> None:
        """Let it go on when it was frozen."""
        self._container().unpause()

    def close(self) -> None:
        """Remove the container and its data."""
        self._handle.stop()

    def _container(self) -> Container:
        return self._handle.get_wrapped_container()
