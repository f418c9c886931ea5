"""A server in a container, through testcontainers: what all of them do alike."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from services.deadline import wait_until
from services.errors import ServiceError
from services.server import Server

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer


class ContainerServer(Server):
    """One server in a container with a host port chosen beforehand, so that restarts keep it."""

    def __init__(self, image: str, port: int, arranged: Callable[[DockerContainer], DockerContainer]) -> None:
        """Pull the image if need be and create the container, ``arranged`` with its ports and settings.

        Raises:
            ServiceError: no engine, no image, or the engine refused.
        """
        try:
            from docker.errors import DockerException
            from testcontainers.core.container import DockerContainer
        except ImportError as missing:
            raise ServiceError(f"{missing}; run: pip install 'testcontainers>=4.10'") from missing
        self._port = port
        sys.stderr.write(f"starting {image} in a container (the first time its image is pulled)\n")
        try:
            self._handle = arranged(DockerContainer(image))
            self._handle.start()
        except (DockerException, OSError) as failure:
            raise ServiceError(f"the container engine answers, but {image} does not start: {failure}") from failure

    def start(self) -> None:
        """Start the container unless it runs, and return when the server answers."""
        container = self._container()
        container.reload()
        if container.status != "running":
            container.start()
        what = f"{self._kind} in container {container.short_id} at {self.host}:{self._port}"
        try:
            wait_until(self._answers, self._start_seconds, what)
        except ServiceError as late:
            log = container.logs(tail=30).decode(errors="replace")
            raise ServiceError(f"{late}. The end of its log:\n{log}") from late

    def stop(self) -> None:
        """Stop the server in an orderly way; its data stays in the container."""
        self._container().stop(timeout=int(self._stop_seconds))

    def kill(self) -> None:
        """End the server with kill -9; what was written stays in the container."""
        self._container().kill()

    def close(self) -> None:
        """Remove the container and its data."""
        self._handle.stop()

    def _container(self) -> Container:
        return self._handle.get_wrapped_container()
