"""A server's collations, by the number that table maps have, and by name: the character set of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection

_MYSQL = "SELECT ID, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS"
# From 10.10 on MariaDB has collations for several character sets, whose numbers are in this view alone.
_MARIADB = (
    "SELECT ID, CHARACTER_SET_NAME, FULL_COLLATION_NAME "
    "FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class Collations:
    """All that a server has."""

    charsets: Mapping[int, str]
    """The character set of each, by its number."""
    names: Mapping[int, str]
    numbers: Mapping[str, int]


_known: dict[tuple[str, str], Collations] = {}
"""By server and version, which they come with: each range and chunk needs them, and they take some milliseconds."""


def collations_of(connection: MySqlConnection) -> Collations:
    """Ask a server for its collations.

    Raises:
        SourceError: it cannot be reached, or refuses.
    """
    server = connection.settings.where, connection.server_version
    if server not in _known:
        found = [
            (int(number), str(charset), str(name))
            for number, charset, name in connection.rows(_MARIADB if _has_shared(connection) else _MYSQL)
        ]
        _known[server] = Collations(
            charsets={number: charset for number, charset, _ in found},
            names={number: name for number, _, name in found},
            numbers={name: number for number, _, name in found},
        )
    return _known[server]


def _has_shared(connection: MySqlConnection) -> bool:
    """Return whether a server has collations that are of several character sets."""
    version = re.match(r"(\d+)\.(\d+)", connection.server_version)
    return connection.is_mariadb and version is not None and (int(version[1]), int(version[2])) >= (10, 10)
