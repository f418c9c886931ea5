"""How errors and logs name a place in Kafka."""

from __future__ import annotations

from watermark_source.planning.split import Split


def place(split: Split, offset: int | None = None) -> str:
    """Return for example ``topic orders partition 3 offset 17``; without an offset the whole partition."""
    where = f"topic {split.log} partition {split.number}"
    return where if offset is None else f"{where} offset {offset}"
