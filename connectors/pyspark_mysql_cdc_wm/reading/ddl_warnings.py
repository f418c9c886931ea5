"""Statements in a block of the binlog: which tables that are read they altered, and warnings of what no row tells."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark_mysql_cdc_wm.binlog.ddl_statements import Concerns, Definitions, look_at_statements
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.delivered_changes import Part, is_read

_log = logging.getLogger(__name__)


def altered_in(
    block: PlacedBlock, tables: Selection, part: Part, *, ignores_unlogged: bool
) -> Mapping[tuple[str, str], str]:
    """Return by which statements tables that are read were altered in a block; raises as ``look_at_statements``."""
    told = looked_at(
        block, lambda database, table: is_read(tables, part, TableName(database, table)),
        ignores_unlogged=ignores_unlogged,
    )  # fmt: skip
    for database, table in sorted(told.dropped):
        _log.warning(
            "binlog %s: the table %s.%s was dropped; of the rows that were delivered of it no deletion comes",
            block.file, database, table,
        )  # fmt: skip
    for database in sorted(told.databases):
        if tables.may_be_in(database) and part.has_any(database):
            _log.warning(
                "binlog %s: the database %s was dropped; of the rows that were delivered of its tables no deletion "
                "comes", block.file, database,
            )  # fmt: skip
    return told.altered


def looked_at(block: PlacedBlock, concerns: Concerns, *, ignores_unlogged: bool) -> Definitions:
    """Return what statements in a block did to tables, and warn of what is ignored.

    Raises as ``look_at_statements`` does.
    """
    told = look_at_statements(block.memory, block.events, block.file, concerns, ignores_unlogged=ignores_unlogged)
    for (database, table), where in sorted(told.whole.items()):
        _log.warning(
            "%s: it changed %s.%s as a whole, and no row of that was logged; unloggedChangeBehavior is ignore, so what "
            "was delivered of the table stays as it is", where, database, table,
        )  # fmt: skip
    return told
