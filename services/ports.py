"""Free loopback ports."""

from __future__ import annotations

import random
import socket

from services.errors import ServiceError

# Below the range from which systems draw the ports of outgoing connections (Linux: 32768 and up): a port chosen here
# is still free when a stopped server comes back to it.
_LOWEST = 20_000
_HIGHEST = 32_767
_ATTEMPTS = 500


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different ports of 127.0.0.1 on which nobody listens at this moment."""
    # Not seeded: two processes that start at the same time must not try the same ports in the same order.
    candidates = random.SystemRandom().sample(range(_LOWEST, _HIGHEST + 1), _ATTEMPTS)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            break
        if _is_free(port):
            found.append(port)
    if len(found) < count:
        raise ServiceError(f"{len(found)} of {count} needed ports are free after {_ATTEMPTS} tries on 127.0.0.1")
    return tuple(found)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # A port whose last connections are in TIME_WAIT is free for a server, as it is for Kafka.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
