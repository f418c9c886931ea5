"""A server's collations, by the number that table maps have: the character set of each, and its name."""

from __future__ import annotations

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection

_MYSQL = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS"
# MariaDB has collations for several character sets, whose numbers are in this view alone.
_MARIADB = (
    "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
)


def charsets_of(connection: MySqlConnection) -> dict[int, str]:
    """Ask a server.

    Raises:
        SourceError: it cannot be reached, or refuses.
    """
    rows = connection.rows(_MARIADB if connection.is_mariadb else _MYSQL)
    return {int(number): str(charset) for number, charset in rows}


def collations_of(connection: MySqlConnection) -> dict[int, str]:
    """Ask a server for the name of each collation.

    Raises:
        SourceError: it cannot be reached, or refuses.
    """
    statement = "SELECT ID, COLLATION_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
    if connection.is_mariadb:
        statement = (
            "SELECT ID, FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY "
            "WHERE ID IS NOT NULL"
        )
    return {int(number): str(name) for number, name in connection.rows(statement)}
