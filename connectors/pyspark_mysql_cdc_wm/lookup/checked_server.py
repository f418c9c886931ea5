"""A server, its user and the tables of a query, as checks look at them: each thing is asked for once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from pyspark.sql.types import StructType

from pyspark_mysql_cdc_wm.client.connection import MySqlConnection, Row
from pyspark_mysql_cdc_wm.lookup.binlog_status import end_statement, replica_statement
from pyspark_mysql_cdc_wm.lookup.stream_layout import stream_layout
from pyspark_mysql_cdc_wm.lookup.table_columns import TableColumns, described, partly_readable
from pyspark_mysql_cdc_wm.lookup.table_list import on_server, tables_of
from pyspark_mysql_cdc_wm.options.mysql_options import MySqlOptions
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.records.layout import Layout
from watermark_source.errors import RefusedError, UnsupportedFormatError
from watermark_source.spark.stream_reader import stream_schema

_ON = {"1": "ON", "0": "OFF"}


class Sources(NamedTuple):
    """What shows that a server applies changes of others, as ends of a sentence; ``None`` if nothing does."""

    seen: str | None
    """Proof: it is set up to do so now."""
    traces: str | None = None
    """It did so once, and the user may not see whether it still does."""


class CheckedServer:
    """What a server says. Every property raises ``SourceError`` where it cannot be reached, or refuses."""

    def __init__(self, options: MySqlOptions) -> None:
        """Take the options; the first question connects."""
        self.options = options
        self.connection = MySqlConnection(options.client)

    def close(self) -> None:
        """End the connection."""
        self.connection.close()

    @property
    def where(self) -> str:
        """How errors name the server."""
        return self.connection.settings.where

    @cached_property
    def refusal(self) -> RefusedError | None:
        """Why it does not let the user in. Asked once: servers lock users who fail to log in too often."""
        try:
            self.connection.rows("SELECT 1")
        except RefusedError as refused:
            return refused
        return None

    @property
    def product(self) -> str:
        """What it is, with its version."""
        version = self.connection.server_version
        return version if self.connection.is_mariadb else f"MySQL {version}"

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """All global settings: one question, whichever are looked at."""
        return {str(name): str(value) for name, value in self.connection.rows("SHOW GLOBAL VARIABLES")}

    def switch(self, name: str) -> str | None:
        """Return a setting, ``ON`` or ``OFF`` where the server says 1 or 0."""
        value = self.settings.get(name)
        return None if value is None else _ON.get(value, value)

    @cached_property
    def sources(self) -> Sources:
        """The servers that this one replicates, or a cluster that it is a node of."""
        if self.switch("wsrep_on") == "ON":
            return Sources("the server is a node of a Galera cluster (wsrep_on)")
        mariadb = self.connection.is_mariadb
        try:
            replicated = self.connection.rows(
                "SHOW ALL SLAVES STATUS" if mariadb else replica_statement(self.connection)
            )
        except RefusedError:
            # MariaDB shows it to users with a privilege of its own.
            running = self.connection.one("SHOW GLOBAL STATUS LIKE 'Slaves_running'")
            if running is not None and str(running[1]) != "0":
                return Sources(f"the server is a replica (Slaves_running is {running[1]})")
            applied = self.settings.get("gtid_slave_pos", "")
            return Sources(None, f"the server has been a replica (gtid_slave_pos is {applied})" if applied else None)
        # Both have the address after one or three columns of names and states.
        host = 3 if mariadb else 1
        named = ", ".join(f"{row[host]}:{row[host + 2]}" for row in replicated)
        return Sources(f"the server is a replica of {named}" if named else None)

    @cached_property
    def log_status(self) -> Row:
        """File and position of the binlog's end, and of which databases it tells, if not of all.

        Raises:
            UnsupportedFormatError: the server writes no binlog.
        """
        status = self.connection.one(end_statement(self.connection))
        if status is None:
            raise UnsupportedFormatError(f"{self.where} does not tell where its binlog ends")
        return status

    @cached_property
    def selection(self) -> Selection:
        """Which tables are read, by names as the server takes them."""
        return on_server(self.connection, self.options.tables)

    @cached_property
    def table_names(self) -> tuple[TableName, ...]:
        """Those there are now; raises as ``tables_of``."""
        return tables_of(self.connection, self.selection)

    @cached_property
    def tables(self) -> Mapping[TableName, TableColumns]:
        """What they are made of; raises as ``described``."""
        return described(self.connection, self.table_names, self.options.choice)

    @cached_property
    def granted_in_part(self) -> tuple[TableName, ...]:
        """The tables of which the user may read some columns and not others."""
        return partly_readable(self.connection, self.table_names)

    @cached_property
    def layout(self) -> Layout:
        """What the stream is made of; raises as ``stream_layout``."""
        added = stream_schema(StructType(), self.options.engine).names
        return stream_layout(
            self.tables, self.options.choice, as_json=self.options.as_json, engines=tuple(added),
            sees_all=not self.granted_in_part,
        )  # fmt: skip
