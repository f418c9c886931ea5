"""Kinds of loss, for which the system's usual Spark source has conditions of its own."""

from __future__ import annotations

from enum import Enum, auto


class LossKind(Enum):
    """What happened to rows that were due."""

    SPLIT_GONE = auto()
    LOG_SHORTER = auto()
    """The log ends before our position."""
    ROWS_EXPIRED = auto()
    """The log begins after our position."""
    NEW_SPLIT_EXPIRED = auto()
    """A split that is new has lost its first rows already."""
