"""The offsets of a query: states as a checkpoint has them, those of the batch under way kept decoded."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from watermark_source.errors import OffsetError, listed
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.state import SourceState, SplitState
from watermark_source.spark.connector.replicas import Replicas
from watermark_source.spark.connector.stream import SourceDefinition
from watermark_source.spark.driver.replica_positions import ReplicaPositions, TranslatedBatch
from watermark_source.watermark_text import watermark_text

_log = logging.getLogger(__name__)

_OFFSETS_OF_A_BATCH = 2
_DEFAULT_TIME = "the default event time"


class Offsets:
    """Encodes states of the copy that is read, and decodes offsets, also those of the system's usual Spark source."""

    def __init__(self, definition: SourceDefinition, source_name: str, replicas: Replicas | None) -> None:
        self._definition = definition
        self._codec = OffsetCodec(source=definition.name, name=source_name)
        self._decoded: deque[tuple[Mapping[str, Any], SourceState]] = deque(maxlen=_OFFSETS_OF_A_BATCH)
        self.replica = ReplicaPositions(replicas)

    def encode(self, state: SourceState) -> dict[str, Any]:
        """Return the offset of a state."""
        state = replace(self.replica.named(state), event_time=self._definition.event_time)
        offset = self._codec.encode(state)
        self._decoded.append((offset, state))
        return offset

    def decode(self, offset: Mapping[str, Any]) -> SourceState:
        """Return the state to plan from; raises as ``ReplicaPositions.here``."""
        return self.replica.here(self._decode(offset))

    def check_logs(self, state: SourceState, *, fails: bool) -> None:
        """Refuse a checkpoint of other logs than the query reads, which would be reported as a loss of all their rows.

        Raises:
            OffsetError: the options select none of them, and ``fails`` (``failOnDataLoss``).
        """
        snapshots = state.snapshots
        logs = {split.log for split in state.splits} | set(snapshots.frontiers) | (snapshots.complete or frozenset())
        selected = {log: chosen for log in logs if (chosen := self._definition.selects(log)) is not None}
        if fails and selected and not any(selected.values()):
            raise OffsetError(
                f"this checkpoint was written for {listed(selected)}, and {self._definition.selection}: did you mean "
                "another checkpointLocation? With failOnDataLoss=false the query continues, and rows of what it reads "
                "now are late up to the checkpoint's watermark"
            )

    def warn_of_another_time(self, state: SourceState) -> None:
        """Warn if what another process planned last has another event time."""
        before, now = state.event_time, self._definition.event_time
        # An offset in which nothing was planned is where this query begins.
        if state.ended or not state.run or before == now:
            return
        if state.watermark is None:
            _log.warning(
                "the checkpoint is of a query that went by %s, and now it goes by %s: what it has read, and holds in "
                "windows and joins, is of the first. If rows are of another time than before, start with a new "
                "checkpoint location",
                before or _DEFAULT_TIME, now or _DEFAULT_TIME,
            )  # fmt: skip
            return
        _log.warning(
            "the checkpoint's watermark, %s, is of %s, and now the query goes by %s: rows whose event time is not "
            "later are late, and dropped by windows and joins, until event time has come there. If rows are of another "
            "time than before, start with a new checkpoint location",
            watermark_text(state.watermark), before or _DEFAULT_TIME, now or _DEFAULT_TIME,
        )  # fmt: skip

    def batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> TranslatedBatch:
        """Return the batch between two offsets; raises as ``ReplicaPositions.batch``."""
        before, after = self._decode(start), self._decode(end)
        foreign = self._definition.foreign_positions
        if foreign(start) is None and foreign(end) is not None:
            raise OffsetError(
                "the checkpoint goes from this source's offsets back to another source's: its log of offsets was put "
                "together from two. Restore the checkpoint, or start with a new checkpoint location."
            )
        return self.replica.batch(before, after)

    def _decode(self, offset: Mapping[str, Any]) -> SourceState:
        for known, state in self._decoded:
            if known == offset:
                return state
        foreign = self._definition.foreign_positions(offset)
        if foreign is not None:
            _log.warning(
                "The checkpoint is of Spark's own source. If its query had a watermark, that goes on to hold, and rows "
                "behind it are late, until this source's has passed it"
            )
            return SourceState(splits={s: SplitState(position=p, observed=p) for s, p in foreign.items()})
        return self._codec.decode(offset)
