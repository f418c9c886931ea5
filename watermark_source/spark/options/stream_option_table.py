"""The options of a connector that has no others for the same: where a new query begins, limits, loss."""

from __future__ import annotations

from watermark_source.option_table import Option, boolean, positive_integer, word

EARLIEST = "earliest"
LATEST = "latest"

STREAM_OPTIONS: tuple[Option, ...] = (
    Option(
        name="startingOffsets",
        parse=word((EARLIEST, LATEST)),
        default=LATEST,
        accepted="must be earliest or latest",
        example=EARLIEST,
        doc="Where a new query begins: at the first row there is, or after the last one.",
    ),
    Option(
        name="maxRowsPerTrigger",
        parse=positive_integer,
        default_text="no limit",
        accepted="must be a whole number of at least 1",
        example="1000000",
        doc="The most rows of one batch. The trigger Once reads everything in one batch all the same.",
    ),
    Option(
        name="failOnDataLoss",
        parse=boolean,
        default=True,
        default_text="true",
        accepted="must be true or false",
        example="true",
        doc="Whether rows that are gone before they were read end the query. With false they are skipped, and a "
        "warning says so.",
    ),
)
