"""Where a service runs: in a container when an engine answers, otherwise as a local process."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from services.errors import ServiceError

WHERE_VARIABLE = "WATERMARK_SOURCE_SERVICES"
_ENGINE_SECONDS = 2
_Service = TypeVar("_Service")


class Where(enum.Enum):
    """Where a service runs."""

    AUTO = "auto"
    CONTAINER = "container"
    LOCAL = "local"


def where_from_environment() -> Where:
    """What ``WATERMARK_SOURCE_SERVICES`` (``auto``, ``container`` or ``local``) says; ``auto`` without it.

    Raises:
        ServiceError: it says something else.
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
    if where is Where.AUTO and engine_answers():
        try:
            return in_container()
        except ServiceError as refused:
            sys.stderr.write(f"{refused}\nusing a local process instead\n")
    return locally()


def engine_answers() -> bool:
    """Whether a container engine answers within two seconds."""
    try:
        import docker
        from docker.errors import DockerException
        from requests.exceptions import RequestException
    except ImportError:
        return False
    try:
        # The constructor asks the engine for its version: that is the answer.
        docker.from_env(timeout=_ENGINE_SECONDS).close()
    except (DockerException, RequestException, OSError, ValueError):
        return False
    return True
