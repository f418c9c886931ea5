"""The offsets of a query: states as a checkpoint has them, those of the batch under way kept decoded."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from watermark_source.contract.stream import Connector, Relocation, Replicas, SourceDefinition
from watermark_source.errors import InternalError, OffsetError, listed
from watermark_source.planning.offset import OF_LINEAGE, OF_REPLICAS, OF_SNAPSHOTS, OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import Origin, SourceState, SplitState
from watermark_source.planning.strategy import WatermarkStrategy
from watermark_source.planning.watermark import Millis, watermark_text

_log = logging.getLogger(__name__)

# Continuing with another copy of a system: positions of the copy that is read, in a checkpoint made on several.
#
# Within a process all positions are the copy's own. On their way into an offset they are shifted, so that they grow
# from copy to copy, and the offset names all that lies before them: that alone is found again in another copy.


class TranslatedBatch(NamedTuple):
    """A batch in the positions of the copy that is read."""

    before: SourceState
    after: SourceState
    relocation: Relocation | None
    """How its ranges are read; ``None`` without replicas."""


class ReplicaPositions:
    """Turns states as offsets have them into those of the copy that is read, and back; the same without replicas."""

    def __init__(self, replicas: Replicas | None) -> None:
        self._replicas = replicas
        self._shift = 0
        self._confirmed = False
        self.has_moved = False
        """Whether the last state was another copy's, and nothing has been planned on this one since: what is not read
        yet may lie anywhere in it."""

    def beginning(self) -> Origin | None:
        """Return what a new query begins with if it is no position."""
        left_out = None if self._replicas is None else self._replicas.left_out_at_first
        return None if left_out is None else Origin(None, 0, left_out)

    def here(self, state: SourceState) -> SourceState:
        """Return the state to plan from.

        Raises:
            OffsetError: the query cannot continue from there on this copy.
            DataLossError: the copy no longer has the next rows.
        """
        if self._replicas is None:
            return state
        origin = _origin(state, self._replicas)
        self.has_moved = origin.copy != self._replicas.system
        if not self.has_moved:
            self._shift = origin.shift
            own = _moved(state, -origin.shift)
            self._confirm(own, origin, self._replicas)
            return _resumed(own, origin, self._replicas)
        self._shift = self._replicas.shift_after(_log_of(state)[1].position)
        if origin.copy is not None:
            _log.warning("%s is read now, and not %s: all that was not read there", self._replicas.system, origin.copy)
        return _at(state, self._replicas.begin(origin.done))

    @property
    def reading(self) -> Relocation | None:
        """How the copy that is read is read on; ``None`` without replicas."""
        return None if self._replicas is None else Relocation(self._replicas.system, self._shift)

    def named(self, state: SourceState) -> SourceState:
        """Return the state as it goes into an offset."""
        if self._replicas is None or state.origin is not None:
            return state
        self.has_moved = False
        done = self._replicas.done_before(_log_of(state)[1].position)
        return replace(_moved(state, self._shift), origin=Origin(self._replicas.system, self._shift, done))

    def batch(self, before: SourceState, after: SourceState) -> TranslatedBatch:
        """Return a batch between two states as offsets have them; raises as ``here``."""
        replicas = self._replicas
        if replicas is None:
            return TranslatedBatch(before, after, None)
        start, end = _origin(before, replicas), _origin(after, replicas)
        # Spark takes what is at its watermark for late.
        floor = None if before.watermark is None else Millis(before.watermark + 1)
        if end.copy != replicas.system:
            if not before.run and not before.snapshots.frontiers and start.copy == replicas.system:
                raise OffsetError(
                    f"the first batch of the query was planned on {end.copy} and not done, and where it began is known "
                    f"there only, not on {replicas.system}. Connect to the server it was, or start with a new "
                    "checkpoint location"
                )
            return self._batch_of_others(before, after, replicas, floor)
        self._shift = end.shift
        own = _moved(after, -end.shift)
        if start.copy == replicas.system and start.shift == end.shift:
            # The end: a beginning may have been requested again.
            self._confirm(own, end, replicas)
            last = _log_of(own)[1]
            first = _resumed(_moved(before, -start.shift), start, replicas, last.position)
            # The batch was planned while the log had its beginning, and reports are due from there on.
            left_out = start.done if last.observed < _log_of(first)[1].position else None
            return TranslatedBatch(first, own, Relocation(end.copy, end.shift, floor, left_out))
        return TranslatedBatch(
            _at(before, replicas.begin(start.done)), own, Relocation(end.copy, end.shift, floor, left_out=start.done)
        )

    def _batch_of_others(
        self, before: SourceState, after: SourceState, replicas: Replicas, floor: Millis | None
    ) -> TranslatedBatch:
        """Return a batch that was planned on another copy: exactly what that one had in it."""
        start, end = _origin(before, replicas), _origin(after, replicas)
        self._shift = replicas.shift_after(_log_of(after)[1].position)
        first, last = replicas.begin(start.done), replicas.begin(end.done)
        _log.warning("a batch that was planned on %s is done on %s: just what it had in it", end.copy, replicas.system)
        assert end.done is not None, "a copy begins at nothing that has no words"
        as_of = last, end.done
        same = start.done == end.done
        position, left_out = (first, None) if same else replicas.between(start.done, end.done)
        return TranslatedBatch(
            _at(before, first),
            _at(after, max(position, first), observed=first),
            Relocation(replicas.system, self._shift, floor, left_out, as_of),
        )

    def _confirm(self, own: SourceState, origin: Origin, replicas: Replicas) -> None:
        position = _log_of(own)[1].position
        if not self._confirmed:
            replicas.confirm(position, origin.done)
            self._confirmed = True
        replicas.remember(position, origin.done)


def _origin(state: SourceState, replicas: Replicas) -> Origin:
    # Some offsets do not have it: their systems could not be distinguished then.
    return state.origin or Origin(replicas.system)


def _log_of(state: SourceState) -> tuple[Split, SplitState]:
    """Return the one split that is no snapshot."""
    found = [(split, each) for split, each in state.splits.items() if split.log not in state.snapshots.frontiers]
    if len(found) != 1:
        raise InternalError(f"a system with replicas has one log, not {len(found)}")
    return found[0]


def _moved(state: SourceState, by: int) -> SourceState:
    if not by:
        return replace(state, origin=None)
    _, each = _log_of(state)
    return _at(state, each.position + by, observed=each.observed + by)


def _resumed(state: SourceState, origin: Origin, replicas: Replicas, end: int | None = None) -> SourceState:
    """Return a state in which all before where the log begins by now is passed, if all of that was read."""
    position = _log_of(state)[1].position
    begin = replicas.resumed(position, origin.done, end)
    if begin == position:
        return state
    _log.info("the log begins at %d now, behind %d, up to where all is read", begin, position)
    return _at(state, begin)


def _at(state: SourceState, position: int, *, observed: int | None = None) -> SourceState:
    split, each = _log_of(state)
    moved = replace(each, position=position, observed=position if observed is None else observed)
    return replace(state, splits={**state.splits, split: moved}, origin=None)


_OFFSETS_OF_A_BATCH = 2
_DEFAULT_TIME = "the default event time"


class Offsets:
    """Encodes states of the copy that is read, and decodes offsets, also those of the system's usual Spark source."""

    def __init__(self, definition: SourceDefinition, source_name: str, connector: Connector) -> None:
        self._definition = definition
        parts = (
            (connector.snapshots, OF_SNAPSHOTS),
            (connector.replicas, OF_REPLICAS),
            (connector.lineage, OF_LINEAGE),
        )
        never = frozenset[str]().union(*(keys for part, keys in parts if part is None))
        self._codec = OffsetCodec(definition.name, source_name, never)
        self._decoded: deque[tuple[Mapping[str, Any], SourceState]] = deque(maxlen=_OFFSETS_OF_A_BATCH)
        self.replica = ReplicaPositions(connector.replicas)

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
                "the event time of the checkpoint's query was %s, and is now %s: what it has read, and what its "
                "windows and joins hold, has the first. If rows are of another time than before, start with a new "
                "checkpoint location",
                before or _DEFAULT_TIME, now or _DEFAULT_TIME,
            )  # fmt: skip
            return
        _log.warning(
            "the checkpoint's watermark, %s, is of %s, and the query's event time is now %s: rows whose event time is "
            "not later are late, and dropped by windows and joins, until event time has passed it. If rows are of "
            "another time than before, start with a new checkpoint location",
            watermark_text(state.watermark), before or _DEFAULT_TIME, now or _DEFAULT_TIME,
        )  # fmt: skip

    def warn_of_other_writers(self, state: SourceState, *, announced: bool) -> None:
        """Warn if the watermark was announced by the writers and no longer is, or the other way round."""
        if state.ended or not state.run or state.watermark is None or announced == (state.announced is not None):
            return
        if announced:
            _log.warning(
                "the checkpoint's watermark, %s, followed the rows, and now the writers announce it: it stands until "
                "they have announced a later one. Rows up to it are late, as they were before",
                watermark_text(state.watermark),
            )
        else:
            _log.warning(
                "the checkpoint's watermark, %s, was announced by the writers, and now it follows the rows: it stands "
                'until each partition has a later one or, with .option("idleTimeout", "30 seconds"), is idle. Rows '
                "that the writers would have announced later may be late from now on",
                watermark_text(state.watermark),
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
                "The checkpoint is of Spark's own source. If its query had a watermark, rows behind that watermark are "
                "late until this source's has passed it"
            )
            return SourceState(splits={s: SplitState(position=p, observed=p) for s, p in foreign.items()})
        return self._codec.decode(offset)


def check_kept(state: SourceState, strategy: WatermarkStrategy) -> None:
    """Check that the strategy can begin with what a checkpoint has of an earlier one; warn where that is dropped.

    Raises:
        OffsetError: it cannot.
        GeneratorError: it failed.
    """
    strategy.check_kept(state.kept_by, {split: at.kept for split, at in state.splits.items()})
    if not strategy.continues(state.kept_by):
        _log.warning(
            "the checkpoint has the watermark state of %s, and watermarkStrategy is another: that state is "
            "dropped. The watermark stands until the new strategy has passed it", state.kept_by,
        )  # fmt: skip
