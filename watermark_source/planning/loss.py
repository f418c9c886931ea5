"""Loss checks while planning: rows that were due and are gone, judged as Spark's Kafka source judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watermark_source.errors import DataLossError, labelled
from watermark_source.planning.observation import ObservedLogs
from watermark_source.planning.policy import LossKind, OnLoss
from watermark_source.planning.split import PositionText, Split, plain_position
from watermark_source.planning.state import SplitState


@dataclass(frozen=True, slots=True)
class Loss:
    """One finding, as a sentence."""

    split: Split
    kind: LossKind
    text: str


def check_loss(
    splits: Mapping[Split, SplitState], logs: ObservedLogs, shown: PositionText = plain_position
) -> tuple[dict[Split, SplitState], tuple[Loss, ...]]:
    """Return the splits to continue with, the added ones included, and what was lost.

    A split that no longer exists is left out. A split whose log is shorter than our position continues at its end; one
    whose log no longer holds our position, at the first retained row. No loss is found twice.
    """
    continuing: dict[Split, SplitState] = {}
    losses: list[Loss] = []
    for split, state in splits.items():
        end, earliest = logs.ends.get(split), logs.earliest.get(split, 0)
        if split in logs.unknown or (end is not None and earliest <= state.position <= end):
            continuing[split] = state
            continue
        if end is None:
            losses.append(
                Loss(
                    split,
                    LossKind.SPLIT_GONE,
                    f"{split} is gone, or no longer asked for; it was read up to {shown(split, state.position)}",
                )
            )
            continue
        if end < state.position:
            continues_at = end
            losses.append(
                Loss(
                    split,
                    LossKind.LOG_SHORTER,
                    f"{split} ends at {shown(split, end)}, but was already read up to {shown(split, state.position)}: "
                    "the topic or table was re-created or truncated",
                )
            )
        else:
            continues_at = min(earliest, end)
            losses.append(
                Loss(
                    split,
                    LossKind.ROWS_EXPIRED,
                    f"{split} was read only up to {shown(split, state.position)}, and begins at "
                    f"{shown(split, earliest)} now: "
                    "what was between, if anything, was deleted before it was read",
                )
            )
        continuing[split] = replace(state, position=continues_at, observed=continues_at)
    for split, start in sorted(logs.added.items()):
        if split not in logs.ends:
            continue
        if start > 0:
            losses.append(
                Loss(
                    split,
                    LossKind.NEW_SPLIT_EXPIRED,
                    f"{split} is new, and its first rows are gone: it starts at {shown(split, start)}, not at 0",
                )
            )
        continuing[split] = SplitState(position=start, observed=start)
    return continuing, tuple(losses)


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
