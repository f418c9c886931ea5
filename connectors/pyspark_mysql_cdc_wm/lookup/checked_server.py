"""What the checks read of a server, its user and the tables of a query; each is requested once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from pyspark.sql.types import StructType

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.lookup.binlog_status import LogStatus, replica_statement
from pyspark_mysql_cdc_wm.lookup.rights import Rights
from pyspark_mysql_cdc_wm.lookup.stream_layout import stream_layout
from pyspark_mysql_cdc_wm.lookup.table_columns import ShownTables, TableColumns, described, versioned_error
from pyspark_mysql_cdc_wm.lookup.table_list import VERSIONED, Tables, check_found, tables_of
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.layout import Layout
from watermark_source.errors import RefusedError, SourceError
from watermark_source.spark.stream_schema import stream_schema

_ON = {"1": "ON", "0": "OFF"}
_INACTIVE_ROLES = """
SELECT DISTINCT ROLE_NAME FROM information_schema.APPLICABLE_ROLES
WHERE ROLE_NAME NOT IN (SELECT ROLE_NAME FROM information_schema.ENABLED_ROLES WHERE ROLE_NAME IS NOT NULL) ORDER BY 1
"""


class Login(NamedTuple):
    """Who the user is to the server."""

    account: str
    roles: str
    """Those that are active, as ``CURRENT_ROLE()`` returns them."""


class Sources(NamedTuple):
    """Evidence, as a clause for an error, that a server applies changes of other servers; ``None`` without any."""

    current: str | None
    """The server is a replica or a cluster node now."""
    former: str | None = None
    """The server was a replica, and the user lacks the privilege to see whether it still is."""


class CheckedServer:
    """A server's responses. Every property raises ``SourceError`` if the server cannot be reached, or refuses."""

    def __init__(self, options: MySqlOptions) -> None:
        """Keep the options; the first request connects."""
        self.options = options
        self.connection = MySqlConnection(options.client)
        self._shown: ShownTables | None = None
        """Set by ``found``."""

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    @property
    def where(self) -> str:
        """The server's name in errors."""
        return self.connection.settings.where

    @cached_property
    def login(self) -> Login | RefusedError:
        """The login, or why it is refused. It is tried once, since servers lock users after failures."""
        try:
            row = self.connection.one("SELECT CURRENT_USER(), CURRENT_ROLE()")
        except RefusedError as refused:
            return refused
        return Login(*map(str, row or ("unknown", "NONE")))

    @property
    def product(self) -> str:
        """The server's product and version."""
        version = self.connection.server_version
        return version if self.connection.is_mariadb else f"MySQL {version}"

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """All global variables, which one statement returns."""
        return {str(name): str(value) for name, value in self.connection.rows("SHOW GLOBAL VARIABLES")}

    def switch(self, name: str) -> str | None:
        """Return a variable, with ``ON`` for 1 and ``OFF`` for 0; ``None`` if the server does not have it."""
        value = self.settings.get(name)
        return None if value is None else _ON.get(value, value)

    def lasting(self, values: Mapping[str, object], then: str = "") -> str:
        """Return the statements that set variables for good, and what follows them: MariaDB cannot store a setting."""
        mariadb = self.connection.is_mariadb
        word = "GLOBAL" if mariadb else "PERSIST"
        stated = "; ".join(f"SET {word} {name} = {value}" for name, value in values.items()) + then
        return f"{stated}. Write the same in its configuration file" if mariadb else stated

    @cached_property
    def sources(self) -> Sources:
        """Evidence that this server replicates another, or is a cluster node."""
        if self.switch("wsrep_on") == "ON":
            return Sources("the server is a node of a Galera cluster (wsrep_on)")
        mariadb = self.connection.is_mariadb
        try:
            replicated = self.connection.rows(
                "SHOW ALL SLAVES STATUS" if mariadb else replica_statement(self.connection)
            )
        except RefusedError:
            # MariaDB shows the state of replicas only to users with SLAVE MONITOR.
            running = self.connection.one("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
            if running is not None and str(running[1]) != "0":
                return Sources(f"the server is a replica (Slaves_running is {running[1]})")
            applied = self.settings.get("gtid_slave_pos", "")
            return Sources(None, f"the server has been a replica (gtid_slave_pos is {applied})" if applied else None)
        # The host is column 1 on MySQL and column 3 on MariaDB, the port two columns further.
        host = 3 if mariadb else 1
        named = ", ".join(f"{row[host]}:{row[host + 2]}" for row in replicated)
        return Sources(f"the server is a replica of {named}" if named else None)

    @cached_property
    def log_status(self) -> Row:
        """The end of the binlog; raises as ``LogStatus.end``."""
        return LogStatus(self.connection).shown()

    @cached_property
    def selection(self) -> Selection:
        """The option tables, matched with the server's rule for case."""
        return replace(self.options.tables, ignores_case=self.settings.get("lower_case_table_names", "0") != "0")

    @cached_property
    def found(self) -> Tables:
        """What the option tables matches now; raises as ``check_found``."""
        found = tables_of(self.connection, self.selection, look=self._shown_readable)
        check_found(self.connection, self.selection, found)
        return found

    def _shown_readable(self, names: frozenset[TableName]) -> frozenset[TableName]:
        """Ask for the tables' columns, and return those of which the user may SELECT any."""
        self._shown = ShownTables(self.connection, names)
        return self._shown.readable()

    @property
    def table_names(self) -> tuple[TableName, ...]:
        """The selected tables that the user may read, in order; raises as ``check_found``."""
        return tuple(sorted(self.found.read))

    @cached_property
    def tables(self) -> Mapping[TableName, TableColumns]:
        """The tables' columns; raises as ``described``."""
        names, kinds = self.table_names, self.found.kinds
        if versioned := [name for name in names if kinds[name].type == VERSIONED]:
            raise versioned_error(versioned[0])
        return described(self.connection, names, self.options.choice, self._shown)

    @cached_property
    def inactive_roles(self) -> tuple[str, ...]:
        """The roles that were granted to the user and are not active; none where the server cannot show them."""
        try:
            return tuple(str(role) for (role,) in self.connection.rows(_INACTIVE_ROLES))
        except SourceError:
            return ()

    @cached_property
    def granted_in_part(self) -> tuple[TableName, ...]:
        """The tables of which the user may read only some columns."""
        login = self.login
        roles = login.roles if isinstance(login, Login) and not self.connection.is_mariadb else None
        rights = Rights(self.connection, roles)
        # A table that was dropped since it was found has no columns, whatever grants name it.
        return tuple(name for name in self.table_names if rights.are_in_part(name) and rights.columns(name))

    @cached_property
    def layout(self) -> Layout:
        """The stream's columns; raises as ``stream_layout``."""
        added = stream_schema(StructType(), self.options.engine).names
        return stream_layout(
            self.tables, self.options.choice, as_json=self.options.as_json, engines=tuple(added),
            sees_all=not self.granted_in_part,
        )  # fmt: skip
