"""``certify`` and ``python -m watermark_source certify --mysql``: what a copy has to be, for whoever has no server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from pyspark_mysql_cdc_wm.binlog.log_position import BINLOG
from pyspark_mysql_cdc_wm.lookup.checked_server import CheckedServer
from pyspark_mysql_cdc_wm.lookup.server_cautions import cascades
from pyspark_mysql_cdc_wm.options.mysql_option_table import OPTION_TABLE
from pyspark_mysql_cdc_wm.server_side import ServerSide
from pyspark_mysql_cdc_wm.verifying.certificate import Certificate
from pyspark_mysql_cdc_wm.verifying.logged_rows import before_changes, keys_by_piece
from watermark_source.checks import Caution
from watermark_source.connector import UnsupportedFormatError, UsageError

__all__ = ["ASKED_FOR", "OPTIONS", "certify"]

OPTIONS = OPTION_TABLE
ASKED_FOR = "password"


def certify(to: str | Path, *, checkpoint: str | Path, options: Mapping[str, str]) -> str:
    """Write a certificate of a table, as of the last committed batch of the query that copies it.

    The server makes the fingerprints of ranges of the primary key, in one consistent read. Of keys that changed since
    the batch the row before is taken from the binlog, so that the table may be written to and the query may continue.

    Args:
        to: the file to write, on this machine; it must not be there.
        checkpoint: the checkpoint of the query, a local folder.
        options: as for ``verify_copy``.

    Returns:
        One sentence: the table, its rows, and the position they are as of.

    Raises:
        UsageError: the file is there or cannot be written, or as ``verify_copy``.
        UnsupportedFormatError: the table was altered, emptied or dropped since the batch, or foreign keys change it
            without the binlog, or as ``verify_copy``.
        DataLossError, SourceError: as ``verify_copy``.
    """
    if (file := Path(to)).exists():
        raise UsageError(f"{file} is there already; name another file")
    if not file.parent.is_dir():
        raise UsageError(f"{file} cannot be written: {file.parent} is not a folder")
    with ServerSide.of(checkpoint, options) as server:
        _check_all_is_logged(server)
        with server.of_the_past.read(SparkSession.builder.getOrCreate(), server.state) as read:
            by_piece = keys_by_piece(read.changed)
            found = server.pieces.on_server(read.rows, lambda piece: by_piece.get(piece, ()))
    # As the server counts its files that the batch was read from.
    at, origin = server.state.splits[BINLOG].position, server.state.origin
    position = server.source.position_text(BINLOG, at if origin is None else at - origin.shift)
    stated = before_changes(found, read.changed, server.pieces.count)
    made = Certificate(server.table, server.batch, position, server.pieces, stated)
    made.write(file)
    return f"{file}: {server.table.name} with {made.rows} rows, as of {made.as_of}"


def _check_all_is_logged(server: ServerSide) -> None:
    """Refuse a table that foreign keys change without the binlog: what it was at the batch is not known then."""
    with closing(CheckedServer(server.source.options)) as checked:
        if isinstance(found := cascades(checked), Caution):
            raise UnsupportedFormatError(f"{checked.where}: {found.text}. Verify it as it is instead")
