"""A server's collations by name and by the number in table maps, and the character set of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.lookup.binlog_status import version_numbers

_MYSQL = "SELECT ID, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS"
# Since 10.10 MariaDB has collations for several character sets; only this view has their numbers.
_MARIADB = (
    "SELECT ID, CHARACTER_SET_NAME, FULL_COLLATION_NAME "
    "FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Collations:
    """All collations of a server."""

    charsets: Mapping[int, str]
    """Character sets by the collation's number."""
    names: Mapping[int, str]
    """Names by the collation's number."""
    numbers: Mapping[str, int]
    """Numbers by the collation's name."""


_cache: dict[tuple[str, str], Collations] = {}
"""Collations by server and version. Each range and chunk needs them, and the statement takes some milliseconds."""


def collations_of(connection: MySqlConnection) -> Collations:
    """Return the server's collations, from the cache or from the server.

    Raises:
        SourceError: the server cannot be reached, or refuses.
    """
    server = connection.settings.where, connection.server_version
    if server not in _cache:
        has_shared = connection.is_mariadb and version_numbers(connection) >= (10, 10)
        rows = [
            (int(number), str(charset), str(name))
            for number, charset, name in connection.rows(_MARIADB if has_shared else _MYSQL)
        ]
        _cache[server] = Collations(
            charsets={number: charset for number, charset, _ in rows},
            names={number: name for number, _, name in rows},
            numbers={name: number for number, _, name in rows},
        )
    return _cache[server]
