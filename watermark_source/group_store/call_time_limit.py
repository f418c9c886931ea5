"""Call limit: no call of a database's driver takes longer, whether the database is gone, frozen or only slow."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy.engine import URL

from watermark_source.group_store import store_waits

_OF_POSTGRESQL = {
    "connect_timeout": store_waits.ONE_CALL,
    "options": f"-c statement_timeout={store_waits.ONE_CALL * 1_000}",
}
_OF_MYSQL = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), store_waits.ONE_CALL)
_BY_DRIVER: Mapping[str, Mapping[str, Any]] = {
    "psycopg": _OF_POSTGRESQL,
    "psycopg2": _OF_POSTGRESQL,
    "pg8000": {"timeout": store_waits.ONE_CALL},
    "pymysql": _OF_MYSQL,
    "mysqldb": _OF_MYSQL,
}


def connect_arguments(url: URL) -> dict[str, Any]:
    """Return what a driver is told about time, but for what the URL says itself."""
    known = _BY_DRIVER.get(url.get_driver_name(), {})
    return {name: value for name, value in known.items() if name not in url.query}


@contextlib.contextmanager
def cut_when_late(connection: Callable[[], object]) -> Iterator[None]:
    """Cut the driver's connection, if it is one with a socket, whenever the block has taken so long.

    PostgreSQL's drivers wait for an answer without limit: a server that is frozen, or a machine that is gone without a
    word, would be waited for for ever.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(store_waits.CUT_AFTER):
            _cut(connection())

    threading.Thread(target=watch, name="alignment store's time limit", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _cut(connection: object) -> None:
    # It may be closed meanwhile, whatever a driver raises then.
    with contextlib.suppress(Exception):
        number = connection.fileno()  # type: ignore[attr-defined]
        with contextlib.closing(socket.socket(fileno=number)) as cut:
            try:
                cut.shutdown(socket.SHUT_RDWR)
            finally:
                # The driver closes its descriptor itself.
                cut.detach()
