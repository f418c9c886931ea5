"""Statements in a block of the binlog: which tables that are read they altered, and warnings of what no row tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache

from pyspark_mysql_cdc_wm.binlog.ddl_statements import Concerns, Definitions, look_at_statements
from pyspark_mysql_cdc_wm.binlog.statement_effects import Unlogged
from pyspark_mysql_cdc_wm.binlog.wire import Bytes, Longs
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.delivered_changes import Part, is_read
from pyspark_mysql_cdc_wm.reading.known_columns import Known

_log = logging.getLogger(__name__)


def altered_in(
    block: PlacedBlock, tables: Selection, part: Part, unlogged: Unlogged, known: Known
) -> Mapping[tuple[str, str], str]:
    """Return by which statements tables that are read were altered in a block.

    Raises as ``look_at_statements`` and ``Known.compare_altered`` do.
    """
    found = looked_at(block, lambda database, table: is_read(tables, part, TableName(database, table)), unlogged)
    compare_altered(known, found)
    for database, table in sorted(found.dropped):
        _log.warning(
            "binlog %s: the table %s.%s was dropped; of the rows that were delivered of it no deletion comes",
            block.file, database, table,
        )  # fmt: skip
    for database in sorted(found.databases):
        if tables.may_be_in(database) and part.has_any(database):
            _log.warning(
                "binlog %s: the database %s was dropped; of the rows that were delivered of its tables no deletion "
                "comes", block.file, database,
            )  # fmt: skip
    return found.altered


def compare_altered(known: Known, found: Definitions) -> None:
    """Compare what was done to columns with the stream's; raises as ``Known.compare_altered``."""
    for (database, table), change in found.columns:
        known.compare_altered(TableName(database, table), change)


def looked_at(block: PlacedBlock, concerns: Concerns, unlogged: Unlogged) -> Definitions:
    """Return what statements in a block did to tables, and warn of what is ignored.

    Raises as ``look_at_statements`` does.
    """
    found = look_at_statements(block.memory, block.events, block.file, concerns, unlogged)
    for (database, table), where in sorted(found.whole.items()):
        _log.warning(
            "%s: it changed %s.%s as a whole, and no row of that was logged; unloggedChangeBehavior is ignore, so what "
            "was delivered of the table stays as it is", where, database, table,
        )  # fmt: skip
    _warn_of_passed_over(found, unlogged)
    return found


def look_at_packed(concerns: Concerns, unlogged: Unlogged, memory: Bytes, events: Longs, file: str) -> None:
    """Refuse statements in place of rows among events that were unpacked; raises as ``look_at_statements``."""
    _warn_of_passed_over(look_at_statements(memory, events, file, concerns, unlogged), unlogged)


def _warn_of_passed_over(found: Definitions, unlogged: Unlogged) -> None:
    if found.passed_over:
        more = f", and {len(found.passed_over) - 1} more" if len(found.passed_over) > 1 else ""
        _warn_once(f"{found.passed_over[0]}{more}", unlogged.statements.value)


@lru_cache(maxsize=1_000)
def _warn_once(statements: str, behavior: str) -> None:
    _log.warning(
        "%s: logged in place of rows, or not followed; loggedStatementBehavior is %s, so what was changed there does "
        "not come", statements, behavior,
    )  # fmt: skip
