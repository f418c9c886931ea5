"""The options of a connector that has no others for the same: where a new query begins, limits, loss."""

from __future__ import annotations

from watermark_source.option_table import Option, at_least_one, one_of, true_or_false

EARLIEST = "earliest"
LATEST = "latest"

STREAM_OPTIONS: tuple[Option, ...] = (
    one_of(
        name="startingOffsets",
        choices=(EARLIEST, LATEST),
        default=LATEST,
        example=EARLIEST,
        doc="Where a new query begins: at the first row there is, or after the last one.",
    ),
    at_least_one(
        name="maxRowsPerTrigger",
        default_text="no limit",
        example="1000000",
        doc="The most rows of one batch. The trigger Once reads everything in one batch all the same.",
    ),
    true_or_false(
        name="failOnDataLoss",
        default=True,
        example="true",
        doc="Whether rows that are gone before they were read end the query. With false they are skipped, and a "
        "warning says so.",
    ),
)
