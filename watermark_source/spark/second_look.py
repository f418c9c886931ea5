"""A second look at what no task reported: the driver reads event times again, and says what may be wrong."""

from __future__ import annotations

import logging
from typing import cast

from watermark_source.errors import DataLossError, UnknownSplitError
from watermark_source.eventtime.watermark import Millis
from watermark_source.planning.report import Coverage
from watermark_source.planning.split import Piece, SplitRange
from watermark_source.spark.connector import PieceReader, SourceDefinition
from watermark_source.spark.reading import observe
from watermark_source.spark.reports import ReportBook, ReportServer

_log = logging.getLogger(__name__)


class SecondLook:
    """Of one run of a query."""

    def __init__(
        self, definition: SourceDefinition, book: ReportBook, server: ReportServer, *, enters_anywhere: bool
    ) -> None:
        """Take whether a log can be read from any position on, or only from where a range begins."""
        self._enters_anywhere = enters_anywhere
        self._definition = definition
        self._book = book
        self._server = server
        self._told = False

    def at(self, wanted: SplitRange, missing: Coverage, future_cap: Millis | None, *, reports_due: bool) -> Coverage:
        """Return what is in a range of which something is missing, as far as it can still be read.

        ``reports_due``: this process asked for them. Reports to an earlier one went with it.
        """
        parts = missing.missing
        _log.info("no report about %s; looking at %d positions again", wanted, sum(part.size for part in parts))
        if reports_due and not self._told:
            self._told = True
            _log.warning(
                "no task reported what it read to %s, port %d, so the driver reads it again by itself. If executors "
                "cannot reach that address, set reportHost and reportPorts",
                " or ".join(self._server.address.hosts),
                self._server.address.port,
            )
        reader = self._definition.observing_reader
        try:
            for part in parts:
                if self._enters_anywhere:
                    rows = reader.read([part])
                else:
                    rows = cast("PieceReader", reader).read_piece(Piece(part, wanted))
                self._book.add(observe(rows, [part], future_cap))
        except (DataLossError, UnknownSplitError) as error:
            # Delivered long ago, only no longer there to look at: the watermark goes on with the next range.
            _log.warning("%s cannot be looked at again, its watermark stays: %s", wanted, error)
        return self._book.cover(wanted)
