"""A Kafka broker for tests and examples: in a container when an engine answers, otherwise as a local process.

``python -m services.kafka`` starts one to play with.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Protocol

from services.containers import WHERE_VARIABLE, Where, created, where_from_environment
from services.kafka_container import ContainerKafka
from services.kafka_local import Jvm, LocalKafka

__all__ = ["WHERE_VARIABLE", "Kafka", "OwnKafka", "Where", "kafka_cluster", "kafka_service"]


class Kafka(Protocol):
    """A running broker or cluster."""

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers``; the same after every restart."""


class OwnKafka(Kafka, Protocol):
    """One that no other test uses, and that may be stopped."""

    def start(self) -> None:
        """Start what does not run and return when it answers."""

    def stop(self) -> None:
        """Stop in an orderly way; data stays."""

    def kill(self) -> None:
        """End with kill -9; what was written stays."""

    def restart(self) -> None:
        """``stop``, then ``start``."""

    def close(self) -> None:
        """End it and remove its data."""


@contextlib.contextmanager
def kafka_service(
    *, config: Mapping[str, str] | None = None, jvm: Jvm | None = None, where: Where | None = None
) -> Iterator[OwnKafka]:
    """One broker that answers; it and its data are gone when the block is left or this process dies.

    ``config`` overrides ``server.properties``. ``where`` defaults to the environment variable
    ``WATERMARK_SOURCE_SERVICES`` (``auto``, ``container`` or ``local``) and that to ``auto``. ``jvm`` is for local
    processes only.

    Raises:
        ServiceError: it cannot start; the message has the reason and what to do.
    """
    with contextlib.closing(_create(config, jvm, where or where_from_environment())) as kafka:
        kafka.start()
        yield kafka


@contextlib.contextmanager
def kafka_cluster(
    brokers: int, *, config: Mapping[str, str] | None = None, jvm: Jvm | None = None
) -> Iterator[LocalKafka]:
    """A cluster of local processes whose nodes can be stopped, killed and frozen one by one.

    Always local: the point of a cluster here is to break one node at a time. ``{node}`` and ``{port}`` in a value of
    ``config`` stand for the node's id and client port.
    """
    with contextlib.closing(LocalKafka(brokers=brokers, config=config, jvm=jvm)) as cluster:
        cluster.start()
        yield cluster


def _create(config: Mapping[str, str] | None, jvm: Jvm | None, where: Where) -> OwnKafka:
    def in_container() -> OwnKafka:
        return ContainerKafka(config=config)

    def locally() -> OwnKafka:
        return LocalKafka(config=config, jvm=jvm)

    return created(where, in_container, locally)


def main() -> None:
    """Start a broker, print its address, and keep it until Ctrl-C."""
    with kafka_service() as kafka:
        sys.stdout.write(f"a broker answers at {kafka.bootstrap}; Ctrl-C ends it and removes its data\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            sys.stdout.write("\nCtrl-C: ending\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
