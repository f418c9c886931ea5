"""``WatermarkCharacteristic``: which watermarks a source can send, as it declares itself (FLIP-326)."""

from __future__ import annotations

from enum import Enum


class WatermarkCharacteristic(Enum):
    """What an operator may count on before a source has sent anything."""

    UNDEFINED = "undefined"
    """Watermarks of event times at most; none when time is the clock's."""
    ANY_WATERMARK = "any_watermark"
    """Watermarks of event times, or, when time is the clock's, one that says so (``use_processing_time``)."""
