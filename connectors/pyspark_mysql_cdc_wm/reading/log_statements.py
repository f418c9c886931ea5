"""Statements in a block of the binlog: which tables that are read they altered, and warnings of what they dropped."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark_mysql_cdc_wm.client.log_dump import PlacedBlock
from pyspark_mysql_cdc_wm.options.tables import Selection, TableName
from pyspark_mysql_cdc_wm.reading.log_part import Part, is_read
from pyspark_mysql_cdc_wm.records.statements import look_at_statements

_log = logging.getLogger(__name__)


def altered_in(block: PlacedBlock, tables: Selection, part: Part) -> Mapping[tuple[str, str], str]:
    """Return by which statements tables that are read were altered in a block; raises as ``look_at_statements``."""
    told = look_at_statements(
        block.memory, block.events, block.file,
        lambda database, table: is_read(tables, part, TableName(database, table)),
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
