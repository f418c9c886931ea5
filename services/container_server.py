"""A server in a container, through testcontainers: what all of them do alike."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from services.container_engine import engine_address
from services.container_reaper import watch
from services.errors import ServiceError
from services.ports import free_ports
from services.server import Server

if TYPE_CHECKING:
    from docker.models.containers import Container
    from testcontainers.core.container import DockerContainer

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
