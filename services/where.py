"""Where a service runs: in a container or as a local process."""

from __future__ import annotations

import enum
import os

from services.errors import ServiceError

WHERE_VARIABLE = "WATERMARK_SOURCE_SERVICES"


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
