"""The container engine of this machine, or the one that DOCKER_HOST names, and where its published ports are."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import closing

from services.errors import ServiceError

_ENGINE_SECONDS = 2


def engine_address() -> str:
    """The address of the machine that an engine publishes ports on, as this process reaches it.

    An engine behind a local socket has loopback; one on another machine has that machine's address.

    Raises:
        ServiceError: no engine answers within two seconds; the message says which, and why.
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
