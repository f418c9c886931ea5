"""The broker of a run of tests: all of its processes have the same one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from services.kafka import Kafka, kafka_service
from services.kafka_local import FAST_START
from services.shared_broker import SharedBroker, shared_bootstrap

_ADDRESS = "shared broker"
_shared = pytest.StashKey[SharedBroker]()


@dataclass(frozen=True, slots=True)
class _Shared:
    bootstrap: str


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a process that pytest-xdist starts the address of the broker."""
    stash: pytest.Stash = node.config.stash
    if _shared not in stash:
        stash[_shared] = SharedBroker()
    node.workerinput[_ADDRESS] = stash[_shared].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if _shared in config.stash:
        config.stash[_shared].close()


@contextlib.contextmanager
def broker_of_run(config: pytest.Config) -> Iterator[Kafka]:
    """The shared broker; where one process has all tests, a broker of its own.

    Raises:
        ServiceError: it cannot start.
    """
    address = getattr(config, "workerinput", {}).get(_ADDRESS)
    if address is not None:
        yield _Shared(shared_bootstrap(address))
        return
    with kafka_service(jvm=FAST_START) as broker:
        yield broker
