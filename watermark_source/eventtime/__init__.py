"""PURE: watermark value, strategies, idleness, output rule, combining, valve. No I/O, no clock."""

from watermark_source.eventtime.combine import (
    Combined,
    CombinedWatermark,
    Member,
    recompute,
    recompute_watermark,
)
from watermark_source.eventtime.output import Feeder, Output, SourceOutput
from watermark_source.eventtime.strategy import (
    AlignmentParams,
    WatermarkStrategy,
    bounded,
    candidate,
    monotonous,
    no_watermarks,
    punctuated,
)
from watermark_source.eventtime.watermark import (
    END,
    MAX,
    MIN,
    START,
    Emission,
    Millis,
    Status,
    Watermark,
    saturating_add,
)

__all__ = [
    "END",
    "MAX",
    "MIN",
    "START",
    "AlignmentParams",
    "Combined",
    "CombinedWatermark",
    "Emission",
    "Feeder",
    "Member",
    "Millis",
    "Output",
    "SourceOutput",
    "Status",
    "Watermark",
    "WatermarkStrategy",
    "bounded",
    "candidate",
    "monotonous",
    "no_watermarks",
    "punctuated",
    "recompute",
    "recompute_watermark",
    "saturating_add",
]
