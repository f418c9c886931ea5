"""A server in a container, through testcontainers: what all of them do alike."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from services.deadline import wait_until
from services.errors import ServiceError

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer


class ContainerServer(ABC):
    """One server in a container with a host port chosen beforehand, so that restarts keep it."""

    _start_seconds: float
    _stop_seconds: float

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

    def restart(self) -> None:
        """``stop``, then ``start``: same port, same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Remove the container and its data."""
        self._handle.stop()

    @property
    @abstractmethod
    def _kind(self) -> str:
        """What it is called in errors."""

    @abstractmethod
    def _answers(self) -> bool:
        """Return whether it does."""

    def _container(self) -> Container:
        return self._handle.get_wrapped_container()
