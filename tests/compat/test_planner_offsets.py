"""Offsets that released versions wrote resume for ever: each is read as what it meant, and written the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from watermark_source.planning.disorder import Learned
from watermark_source.planning.offset import OffsetCodec
from watermark_source.planning.split import Split
from watermark_source.planning.state import Epoch, GroupState, Returning, SourceState, SplitState, SplitStatus
from watermark_source.planning.watermark import Millis

RECORDED = sorted(Path(__file__).parent.glob("*/offsets/*.json"))
"""Each holds an offset as its own text, as Spark keeps it, and the state it stood for, field by field."""


def test_there_are_recorded_offsets() -> None:
    assert {path.stem for path in RECORDED if path.parts[-3] == "0.1"} == {
        "alignment-limit",
        "first",
        "future-cap",
        "idle",
        "paused",
        "plain",
        "processing-time",
        "several-logs",
    }
    assert {path.stem for path in RECORDED if path.parts[-3] == "0.1-groups"} == {"held", "met"}
    assert {path.stem for path in RECORDED if path.parts[-3] == "0.1-learned"} == {
        "ended",
        "learned",
        "returning",
        "step",
    }
    assert {path.stem for path in RECORDED if path.parts[-3] == "0.1-lineage"} == {"epochs"}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_recorded_offset_is_read_as_the_state_it_stood_for(path: Path) -> None:
    offset, state = _recorded(path)
    assert _codec(offset).decode(json.loads(offset)) == state


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parts[-3]}/{path.stem}")
def test_a_recorded_offset_is_written_as_it_was(path: Path) -> None:
    """Or Spark, which compares texts, would take a restarted query for one that has news."""
    offset, state = _recorded(path)
    assert json.dumps(_codec(offset).encode(state)) == offset


def _recorded(path: Path) -> tuple[str, SourceState]:
    recorded = json.loads(path.read_text(encoding="utf-8"))
    return recorded["offset"], _state(recorded["state"])


def _codec(offset: str) -> OffsetCodec:
    header = json.loads(offset)
    return OffsetCodec(source=header["source"], name=header["name"])


def _state(recorded: dict[str, Any]) -> SourceState:
    return SourceState(
        splits={
            Split(split["log"], split["number"]): SplitState(
                position=split["position"],
                observed=split["observed"],
                watermark=_millis(split["watermark"]),
                status=SplitStatus[split["status"]],
                since=_millis(split["since"]),
                highest=_millis(split.get("highest")),
                step=split.get("step"),
                returning=Returning.READ if split.get("returning") else None,
                epoch=Epoch(*split["epoch"]) if "epoch" in split else None,
            )
            for split in recorded["splits"]
        },
        watermark=_millis(recorded["watermark"]),
        use_processing_time=recorded["use_processing_time"],
        group=GroupState(limit=_millis(recorded["limit"]), member=recorded.get("member"), held=recorded.get("held", 0)),
        future_cap=_millis(recorded["future_cap"]),
        ended=recorded.get("ended", False),
        learned=_learned(recorded.get("learned")),
        ids=recorded.get("ids", {}),
        run=recorded["run"],
    )


def _learned(recorded: dict[str, Any] | None) -> Learned | None:
    if recorded is None:
        return None
    recent, earlier = (tuple((bucket, rows) for bucket, rows in recorded[name]) for name in ("recent", "earlier"))
    return Learned(recorded["bound"], recent, earlier)


def _millis(value: int | None) -> Millis | None:
    return None if value is None else Millis(value)
