"""Where a service runs: in a container when this machine has an engine, otherwise as a local process."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable
from typing import TypeVar

from services.container_engine import engine_is_here
from services.errors import ServiceError

WHERE_VARIABLE = "WATERMARK_SOURCE_SERVICES"
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
    if where is Where.AUTO and engine_is_here():
        try:
            return in_container()
        except ServiceError as refused:
            sys.stderr.write(f"{refused}\nusing a local process instead\n")
    return locally()
