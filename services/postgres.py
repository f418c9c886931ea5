"""A PostgreSQL server for tests and examples: in a container when an engine answers, otherwise as a local process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from services.containers import Where, created, where_from_environment
from services.postgres_client import USER
from services.postgres_container import ContainerPostgres
from services.postgres_local import LocalPostgres


class Postgres(Protocol):
    """A running server; user ``postgres`` has no password."""

    @property
    def host(self) -> str:
        """Loopback, or where the container engine is."""

    @property
    def port(self) -> int:
        """The same after every restart."""

    def start(self) -> None:
        """Start it unless it runs and return when it answers."""

    def stop(self) -> None:
        """Stop in an orderly way; data stays."""

    def kill(self) -> None:
        """End with kill -9; what was written stays."""

    def restart(self) -> None:
        """``stop``, then ``start``."""

    def pause(self) -> None:
        """Freeze it: its sockets stay open and nothing answers."""

    def resume(self) -> None:
        """Let it go on when it was frozen."""

    def close(self) -> None:
        """End it and remove its data."""


def url_of(server: Postgres, database: str = USER) -> str:
    """Return the URL of a database, as SQLAlchemy writes them."""
    return f"postgresql+psycopg://{USER}@{server.host}:{server.port}/{database}"


@contextlib.contextmanager
def postgres_service(*, config: Mapping[str, str] | None = None, where: Where | None = None) -> Iterator[Postgres]:
    """One server that answers; it and its data are gone when the block is left or this process dies.

    ``config`` overrides any setting. ``where`` defaults to the environment variable ``WATERMARK_SOURCE_SERVICES``
    (``auto``, ``container`` or ``local``), and that to ``auto``.

    Raises:
        ServiceError: it cannot start; the message has the reason and what to do.
    """

    def in_container() -> Postgres:
        return ContainerPostgres(config=config)

    def locally() -> Postgres:
        return LocalPostgres(config=config)

    with contextlib.closing(created(where or where_from_environment(), in_container, locally)) as server:
        server.start()
        yield server
