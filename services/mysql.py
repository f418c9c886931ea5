"""A MySQL server for tests and examples: in a container when an engine answers, otherwise as a local process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from services.containers import Where, created, where_from_environment
from services.errors import ServiceError
from services.mysql_client import run
from services.mysql_container import ContainerMySql
from services.mysql_local import LocalMySql, normalised
from services.mysql_program import Flavour, flavour_from_environment
from services.wait_until import wait_until

_CATCH_UP_SECONDS = 150
_SEMI_SYNCHRONOUS = {
    "plugin_load_add": "semisync_source.so;semisync_replica.so",
    "loose_rpl_semi_sync_replica_enabled": "ON",
    "loose_rpl_semi_sync_source_timeout": "600000",
}


class MySql(Protocol):
    """A running server; user ``root`` has no password."""

    @property
    def host(self) -> str:
        """Loopback, or where the container engine is."""

    @property
    def port(self) -> int:
        """The same after every restart."""

    @property
    def flavour(self) -> Flavour:
        """MySQL or MariaDB."""

    def start(self) -> None:
        """Start it unless it runs and return when it answers."""

    def stop(self) -> None:
        """Stop in an orderly way; data stays."""

    def kill(self) -> None:
        """End with kill -9; what was written stays."""

    def restart(self) -> None:
        """``stop``, then ``start``."""

    def close(self) -> None:
        """End it and remove its data."""


@dataclass(frozen=True, slots=True)
class MySqlPair:
    """A source and a replica that follows it by GTIDs; both are local processes."""

    source: LocalMySql
    replica: LocalMySql

    def wait_until_replica_has_all(self) -> None:
        """Return when the replica has applied what the source has committed by now.

        Raises:
            ServiceError: not within a minute; the message has the status of the replica.
        """
        ((committed,),) = run(self.source.host, self.source.port, "SELECT @@global.gtid_executed")
        wait = f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{committed}', {_CATCH_UP_SECONDS})"
        ((late,),) = run(self.replica.host, self.replica.port, wait)
        if late:
            status = run(
                self.replica.host,
                self.replica.port,
                "SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_connection_status"
                " UNION ALL SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker",
            )
            raise ServiceError(f"the replica lacks transactions after {_CATCH_UP_SECONDS} s: {status}")

    def promote(self) -> None:
        """Make the replica a server of its own when it has applied all that it has received."""
        received = "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status"
        run(
            self.replica.host, self.replica.port, "STOP REPLICA IO_THREAD",
            f"SELECT WAIT_FOR_EXECUTED_GTID_SET(({received}), {_CATCH_UP_SECONDS})", "STOP REPLICA",
            "RESET REPLICA ALL",
        )  # fmt: skip


@contextlib.contextmanager
def mysql_service(
    *, config: Mapping[str, str] | None = None, flavour: Flavour | None = None, where: Where | None = None
) -> Iterator[MySql]:
    """One server that answers; it and its data are gone when the block is left or this process dies.

    It writes a binlog of row events with full metadata and GTIDs; ``config`` overrides any setting. ``flavour``
    defaults to the environment variable ``WATERMARK_SOURCE_MYSQL`` (``mysql`` or ``mariadb``), and that to MySQL, or
    MariaDB where MySQL cannot be had. ``where`` defaults to the environment variable ``WATERMARK_SOURCE_SERVICES``
    (``auto``, ``container`` or ``local``), and that to ``auto``.

    Raises:
        ServiceError: it cannot start; the message has the reason and what to do.
    """
    flavour, where = flavour or flavour_from_environment(), where or where_from_environment()
    with contextlib.closing(_create(config, flavour, where)) as server:
        server.start()
        yield server


@contextlib.contextmanager
def mysql_pair(*, config: Mapping[str, str] | None = None, semi_synchronous: bool = False) -> Iterator[MySqlPair]:
    """A MySQL source and a replica of it, to fail over from one to the other.

    Always local: a container does not reach another one's loopback port. ``config`` is for both.
    """
    settings = {**(_SEMI_SYNCHRONOUS if semi_synchronous else {}), **normalised(config)}
    with contextlib.closing(LocalMySql(config=settings, flavour=Flavour.MYSQL)) as source:
        source.start()
        with mysql_replica(source, config=config, semi_synchronous=semi_synchronous) as pair:
            yield pair


@contextlib.contextmanager
def mysql_replica(
    source: LocalMySql, *, config: Mapping[str, str] | None = None, semi_synchronous: bool = False
) -> Iterator[MySqlPair]:
    """A new replica of a server of such a pair.

    With ``semi_synchronous`` the source commits nothing from now on that a replica has not received.
    """
    settings = {**(_SEMI_SYNCHRONOUS if semi_synchronous else {}), **normalised(config)}
    with contextlib.closing(LocalMySql(config=settings, flavour=Flavour.MYSQL)) as replica:
        replica.start()
        run(
            replica.host, replica.port, f"SET PERSIST server_id = {replica.port}",
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{source.host}', SOURCE_PORT = {source.port},"
            " SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1, SOURCE_CONNECT_RETRY = 1",
            "START REPLICA",
        )  # fmt: skip
        if semi_synchronous:
            clients = "SHOW STATUS LIKE 'Rpl_semi_sync_source_clients'"
            wait_until(
                lambda: run(source.host, source.port, clients)[0][1] != "0", _CATCH_UP_SECONDS, "a replica that answers"
            )
            run(source.host, source.port, "SET GLOBAL rpl_semi_sync_source_enabled = ON")
        yield MySqlPair(source, replica)


def _create(config: Mapping[str, str] | None, flavour: Flavour | None, where: Where) -> MySql:
    def in_container() -> MySql:
        return ContainerMySql(config=config, flavour=flavour)

    def locally() -> MySql:
        return LocalMySql(config=config, flavour=flavour)

    return created(where, in_container, locally)
