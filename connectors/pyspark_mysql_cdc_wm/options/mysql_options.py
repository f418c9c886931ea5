"""The options of ``mysql-cdc-wm``, parsed and checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements, Unlogged
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings, Tls, TlsMode
from pyspark_mysql_cdc_wm.options.mysql_option_table import (
    BY_COLUMN,
    DATED,
    FORMAT,
    NOT_BY_COLUMN,
    OPTION_TABLE,
)
from pyspark_mysql_cdc_wm.options.start import Start, StartMode
from pyspark_mysql_cdc_wm.options.tables import Selection, TableReading
from pyspark_mysql_cdc_wm.records.layout import CHANGE_COLUMNS, ColumnChoice, EventTimeColumn
from watermark_source.errors import OptionError
from watermark_source.planning.strategy import Abilities
from watermark_source.spark.options import EngineOptions, SourceOptions
from watermark_source.spark.strategy_rows import BOUNDED, NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """How a snapshot reads tables."""

    chunk_rows: int
    """Rows of a chunk."""
    parallelism: int
    """Chunks of a batch, which are read in parallel."""
    as_of_one_moment: bool
    """Whether a table is delivered as it was at one moment."""
    reread: tuple[TableReading, ...]
    """Which tables are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlOptions:
    """The options after parsing."""

    client: LoginSettings
    tables: Selection
    start: Start
    max_rows: int | None
    """Limit for the rows of a batch."""
    choice: ColumnChoice
    as_json: bool
    ignores_new_columns: bool
    unlogged: Unlogged
    """What to do at statements that changed rows without logging them."""
    snapshot: SnapshotOptions
    fail_on_data_loss: bool
    engine: EngineOptions

    @property
    def reads_tables(self) -> bool:
        """Whether a new query begins with a snapshot."""
        return isinstance(self.start, StartMode) and self.start.reads_tables


def parse(given: Mapping[str, str]) -> MySqlOptions:
    """Check the user's options, without connecting.

    Raises:
        OptionError: a value, a combination or a name is not accepted.
    """
    return meaning_of(SourceOptions.of(OPTION_TABLE, given, format_name=FORMAT, abilities=abilities))


def meaning_of(options: SourceOptions) -> MySqlOptions:
    """Return what parsed options mean, after the checks of those that concern several; raises ``OptionError``."""
    _check_columns(options)
    _check_clock(options)
    _check_again(options)
    return MySqlOptions(
        client=LoginSettings(
            hostname=options["hostname"],
            port=options["port"],
            username=options["username"],
            password=options["password"],
            tls=_tls(options),
        ),
        tables=options["tables"],
        start=options["startingTimestamp"] or options["startingOffsets"],
        max_rows=options["maxRowsPerTrigger"],
        choice=ColumnChoice(
            options["columns"], options["excludeColumns"], _event_time(options), options["snapshotChunkColumn"]
        ),
        as_json=options["rowFormat"] == "json",
        ignores_new_columns="columns" in options["ignoredChanges"],
        unlogged=Unlogged("tables" in options["ignoredChanges"], LoggedStatements.of(options["ignoredChanges"])),
        snapshot=SnapshotOptions(
            chunk_rows=options["snapshotChunkRows"],
            parallelism=options["snapshotParallelism"],
            as_of_one_moment=options["snapshotConsistency"] == "table",
            reread=options["rereadTables"],
        ),
        fail_on_data_loss=options["failOnDataLoss"],
        engine=options.engine,
    )


def abilities(values: Mapping[str, Any]) -> Abilities:
    """Return that the server dates rows, unless a column does.

    Raises:
        OptionError: the strategy cannot be with a column, whatever its own options are.
    """
    if values["eventTimeColumn"] is None:
        return DATED
    if (why := NOT_BY_COLUMN.get(strategy := values["watermarkStrategy"])) is not None:
        raise OptionError("watermarkStrategy", strategy, f"with eventTimeColumn it {why}", example=BOUNDED)
    return BY_COLUMN


def _check_columns(options: SourceOptions) -> None:
    excluded = options["excludeColumns"]
    if options["columns"] is not None and any(name.lower() not in CHANGE_COLUMNS for name in excluded):
        why = "the option columns already lists the columns to deliver"
        raise options.refusal("excludeColumns", why, example="leave one of the two out")


def _check_again(options: SourceOptions) -> None:
    """Check that tables are read again only in a stream that has them whole, and are in it."""
    shown, start = options.text("rereadTables"), options["startingTimestamp"] or options["startingOffsets"]
    if options["rereadTables"] and start is not StartMode.INITIAL:
        raise OptionError(
            "rereadTables", shown, "needs a query that begins with a snapshot and continues with the binlog",
            example="leave out startingOffsets and startingTimestamp",
        )  # fmt: skip
    for reading in options["rereadTables"]:
        if not options["tables"].matches(reading.table):
            raise OptionError("rereadTables", shown, f"the table {reading.table} is not one of {options['tables']}")


def _tls(values: Mapping[str, Any]) -> Tls:
    """Check the options for TLS against each other, and that the files can be read."""
    mode, ca, certificate = values["sslMode"], values["sslCa"], values["sslCert"]
    if ca is not None and not mode.verifies:
        why = f"is not used with sslMode {mode.value}; set sslMode to verify_ca or verify_identity"
        raise OptionError("sslCa", ca, why, example="leave it out")
    if certificate is not None and mode in (TlsMode.DISABLED, TlsMode.PREFERRED):
        raise OptionError(
            "sslCert", certificate, f"needs sslMode required, verify_ca or verify_identity, which is {mode.value}",
            example="leave it out",
        )  # fmt: skip
    if certificate is None and values["sslKey"] is not None:
        raise OptionError("sslKey", values["sslKey"], "needs sslCert", example="leave it out")
    tls = Tls(mode, ca, certificate, values["sslKey"], values["sslKeyPassword"])
    tls.for_pymysql()
    return tls


def _event_time(options: SourceOptions) -> EventTimeColumn | None:
    name, zone = options["eventTimeColumn"], options["timeZone"]
    if name is None:
        if zone is not None:
            why = (
                "is the time zone of a DATETIME in eventTimeColumn, which is not set; TIMESTAMP columns and commit "
                "times need no time zone"
            )
            raise options.refusal("timeZone", why, example="leave it out")
        return None
    return EventTimeColumn(name) if zone is None else EventTimeColumn(name, zone)


def _check_clock(options: SourceOptions) -> None:
    if options["eventTimeColumn"] is not None and options["watermarkStrategy"] == NONE:
        why = "has no meaning with watermarkStrategy none: event time is the clock"
        raise options.refusal("eventTimeColumn", why, example="leave it out")
