"""The stream that is read, and how its server is read: what ranges of the binlog and snapshots have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark_mysql_cdc_wm.binlog.log_position import GtidSet
from pyspark_mysql_cdc_wm.binlog.statement_effects import LoggedStatements, Unlogged
from pyspark_mysql_cdc_wm.client.connection import MySqlConnection
from pyspark_mysql_cdc_wm.client.dump_range import PlacedBlock, dumped, dumped_without
from pyspark_mysql_cdc_wm.client.login_settings import LoginSettings
from pyspark_mysql_cdc_wm.lookup.collations import collations_of
from pyspark_mysql_cdc_wm.lookup.xa_transactions import with_prepared
from pyspark_mysql_cdc_wm.options.tables import Selection
from pyspark_mysql_cdc_wm.reading.schema_changes import Known, PresentNames, TableDrops
from pyspark_mysql_cdc_wm.records.changes import ChangeDecoder, Changes
from pyspark_mysql_cdc_wm.records.layout import ColumnChoice, Layout
from pyspark_mysql_cdc_wm.records.table_definition import TableMap
from watermark_source.contract.stream import Relocation

_IN_PLACE: Final = Relocation("")
"""Of a batch whose positions are those of the server that they are read from."""


def decoded(decoder: ChangeDecoder, block: PlacedBlock, shift: int = 0) -> Iterator[Changes]:
    """Yield the changes of a block, whose versions are ``shift`` behind its places; raises as ``decode``."""
    return decoder.decode(block.memory, block.events, block.file, block.places + shift, prepared=block.prepared)


@dataclass(frozen=True, slots=True)
class StreamToRead:
    """The stream that is read, and from which server."""

    client: LoginSettings
    tables: Selection
    layout: Layout
    choice: ColumnChoice
    known: Known | None
    """``None`` if columns are not compared: when event times are read again, the rows' columns have been compared."""
    run: str
    """Identifies the start of the query; see ``changes_between``."""
    fail_on_data_loss: bool
    """Whether a part of the binlog that was purged ends the query."""
    unlogged: Unlogged
    """What to do at statements that changed rows without logging them."""
    relocation: Relocation = _IN_PLACE

    @property
    def drops(self) -> TableDrops:
        """The rule by which tables count as dropped."""
        return TableDrops(self.tables, self.unlogged.ignores_whole)

    def present_names(self, end: Callable[[], int]) -> PresentNames:
        """Return what finds rows that got other columns' names; ``end`` returns the end of the binlog now."""
        ignored = self.unlogged.statements is LoggedStatements.IGNORED
        return PresentNames(self.tables, end, ignores_unfollowed=ignored)

    def blocks(self, base: str, start: int, end: int, left_out: str | None = None) -> Iterator[PlacedBlock]:
        """Yield the events between two positions, or up to the end those of all transactions but ``left_out``.

        Rows of XA transactions are behind the statement that commits them. Raises as ``dumped`` and ``with_prepared``.
        """
        first: int | None = start
        if left_out is None:
            received = dumped(self.client, base, start, end)
        else:
            received, first = dumped_without(self.client, base, GtidSet.parse(left_out), end), None
        return with_prepared(received, self.client, base, start=first, fail_on_data_loss=self.fail_on_data_loss)

    def decoder(
        self,
        connection: MySqlConnection,
        wanted: Callable[[TableMap], Collection[str] | None],
        **how: Callable[..., object] | None,
    ) -> ChangeDecoder:
        """Return the decoder of changes; ``how`` is as for ``ChangeDecoder``."""
        decoder: Callable[..., ChangeDecoder] = partial(ChangeDecoder, collations_of(connection).charsets, wanted)
        return decoder(**how)
