"""Loss checks while planning: rows that were due and are gone, judged as Spark's Kafka source judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from watermark_source.durations import count_text
from watermark_source.errors import DataLossError, labelled
from watermark_source.planning.lineage import Cut, Parting, parting
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import EVERY_LOSS_FAILS, LossKind, OnLoss
from watermark_source.planning.split import PositionText, Split
from watermark_source.planning.state import SplitState


@dataclass(frozen=True, slots=True)
class Loss:
    """One finding, as a sentence."""

    split: Split
    kind: LossKind
    text: str


def check_loss(
    splits: Mapping[Split, SplitState],
    logs: ObservedLogs,
    on_loss: OnLoss = EVERY_LOSS_FAILS,
    ids: Mapping[str, str] | None = None,
) -> tuple[dict[Split, SplitState], tuple[Loss, ...]]:
    """Return the splits to continue with, the added ones included, and what was lost.

    A split that no longer exists is left out. A split of a log that was created again continues at its beginning; one
    whose log has other rows before our position, at the first of these; one whose log is shorter, at its end; one whose
    log no longer holds our position, at the first retained row. Rows behind our position that an earlier plan has seen,
    and that were replaced, are lost too. No loss is found twice.

    ``ids`` are those of the logs that were read; ``on_loss`` states how positions are shown.
    """
    shown = on_loss.position_text
    continuing: dict[Split, SplitState] = {}
    losses: list[Loss] = []
    anew, replaced = created_again(ids or {}, logs), partings(splits, logs)
    only_ends_count = not (anew or replaced or logs.earliest or logs.cuts)
    for split, state in splits.items():
        end = logs.ends.get(split)
        if only_ends_count and end is not None and state.position <= end:
            continuing[split] = state
            continue
        earliest, lost = logs.earliest.get(split, 0), None
        if split.log in anew and (end is not None or split in logs.unknown):
            ids_text = f"it had the id {anew[split.log]}, and has the id {logs.ids[split.log]}"
            lost = _created_again(split, state, earliest, ids_text, shown)
        elif split in replaced:
            lost = _replaced(split, state, earliest, replaced[split], shown)
        elif split in logs.unknown or (end is not None and earliest <= state.position <= end):
            continuing[split] = state
            if split in logs.cuts:
                losses.append(_unread(split, state, logs.cuts[split], shown))
        elif end is None:
            text = f"{split} is gone, or no longer asked for; it was read up to {shown(split, state.position)}"
            losses.append(Loss(split, LossKind.SPLIT_GONE, text))
        elif end < state.position:
            lost = _shorter(split, state, end, shown)
        else:
            lost = _expired(split, state, earliest, end, on_loss)
        if lost is not None:
            continuing[split] = lost.continuing
            # Of a log that was created again nothing may have been read.
            losses += [lost.loss] if lost.loss.kind is not LossKind.LOG_REPLACED or state.position else []
    added = {split: start for split, start in sorted(logs.added.items()) if split in logs.ends}
    losses += [
        Loss(
            split,
            LossKind.NEW_SPLIT_EXPIRED,
            f"{split} is new, and its first rows are gone: it starts at {shown(split, start)}, not at 0",
        )
        for split, start in added.items()
        if start > 0
    ]
    continuing |= {split: SplitState(position=start, observed=start) for split, start in added.items()}
    return continuing, tuple(losses)


class _Lost(NamedTuple):
    loss: Loss
    continuing: SplitState


def _created_again(split: Split, state: SplitState, earliest: int, ids_text: str, shown: PositionText) -> _Lost:
    text = (
        f"{split} was read up to {shown(split, state.position)}, and {split.log} was deleted and created again since: "
        f"{ids_text}. It is another log, or that of another cluster, to be read from its beginning, "
        f"{shown(split, earliest)}; what the earlier one had from there on, if anything, is gone"
    )
    continuing = replace(state, position=earliest, observed=earliest, epoch=None)
    return _Lost(Loss(split, LossKind.LOG_REPLACED, text), continuing)


def _replaced(split: Split, state: SplitState, earliest: int, at: Parting, shown: PositionText) -> _Lost:
    text = (
        f"{split} was read up to {shown(split, state.position)}, and its rows from {shown(split, at.position)} to "
        f"{shown(split, state.position - 1)} are gone: the leader of epoch {at.by} did not have them, and what it "
        "wrote since is at their positions"
    )
    position = max(at.position, earliest)
    return _Lost(Loss(split, LossKind.LOG_REPLACED, text), replace(state, position=position, observed=position))


def _unread(split: Split, state: SplitState, found: Cut, shown: PositionText) -> Loss:
    first, last = max(found.at.position, state.position), found.end - 1
    text = (
        f"{split} ended at {shown(split, found.end)}, and its rows from {shown(split, first)} to {shown(split, last)}, "
        f"which were still to be read, are gone: the leader of epoch {found.at.by} did not have them"
    )
    return Loss(split, LossKind.LOG_SHORTER, text)


def _shorter(split: Split, state: SplitState, end: int, shown: PositionText) -> _Lost:
    text = (
        f"{split} ends at {shown(split, end)}, but was already read up to {shown(split, state.position)}: the topic or "
        "table was re-created or truncated, or its newest rows are of transactions that are still open, which an "
        "earlier run of the query did not wait for: then these come again once they have ended"
    )
    return _Lost(Loss(split, LossKind.LOG_SHORTER, text), replace(state, position=end, observed=end, epoch=None))


def _expired(split: Split, state: SplitState, earliest: int, end: int, on_loss: OnLoss) -> _Lost:
    shown = on_loss.position_text
    most = f"up to {count_text(earliest - state.position, 'row')}" if on_loss.positions_are_rows else "if anything"
    text = (
        f"{split} was read only up to {shown(split, state.position)}, and begins at {shown(split, earliest)} now: "
        f"what was between, {most}, was deleted before it was read"
    )
    position = min(earliest, end)
    return _Lost(Loss(split, LossKind.ROWS_EXPIRED, text), replace(state, position=position, observed=position))


def created_again(ids: Mapping[str, str], logs: ObservedLogs) -> Mapping[str, str]:
    """Return the logs that have another id than those that were read, with the id of those."""
    return {log: before for log, before in ids.items() if logs.ids.get(log, before) != before}


def partings(splits: Mapping[Split, SplitState], logs: ObservedLogs) -> Mapping[Split, Parting]:
    """Return the splits whose logs have other rows before our position than those that were read."""
    return {
        split: found
        for split, history in logs.histories.items()
        if (state := splits.get(split)) is not None and state.epoch is not None
        if (found := parting(state.position, state.epoch, history)) is not None
    }


def refuse(losses: Sequence[Loss], on_loss: OnLoss) -> None:
    """Raise ``DataLossError`` if anything was lost and that fails; its condition is that of the first finding."""
    if losses and on_loss.fails:
        found = "; ".join(loss.text for loss in losses)
        raise DataLossError(
            labelled(
                on_loss.conditions.get(losses[0].kind),
                f"data was lost: {found}. Set failOnDataLoss to false to continue with the rest "
                "(what is skipped is then logged).",
            )
        )
