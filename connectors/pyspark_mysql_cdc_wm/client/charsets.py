"""A server's collations, by the number that table maps have: the character set of each, and its name."""

from __future__ import annotations

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row

_MYSQL = "SELECT ID, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLLATIONS"
# MariaDB has collations for several character sets, whose numbers are in this view alone.
_MARIADB = (
    "SELECT ID, CHARACTER_SET_NAME, FULL_COLLATION_NAME "
    "FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
)
_known: dict[tuple[str, str], tuple[Row, ...]] = {}
"""By server and version, which they come with: each range and chunk needs them, and they take some milliseconds."""


def charsets_of(connection: MySqlConnection) -> dict[int, str]:
    """Ask a server for the character set of each collation.

    Raises:
        SourceError: it cannot be reached, or refuses.
    """
    return {int(number): str(charset) for number, charset, _ in _collations(connection)}


def collations_of(connection: MySqlConnection) -> dict[int, str]:
    """Ask a server for the name of each collation.

    Raises:
        SourceError: it cannot be reached, or refuses.
    """
    return {int(number): str(name) for number, _, name in _collations(connection)}


def _collations(connection: MySqlConnection) -> tuple[Row, ...]:
    server = connection.settings.where, connection.server_version
    if server not in _known:
        _known[server] = connection.rows(_MARIADB if connection.is_mariadb else _MYSQL)
    return _known[server]
