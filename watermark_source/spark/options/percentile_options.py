"""What the options of strategies that learn mean, and which of them cannot be together."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from watermark_source.errors import OptionError
from watermark_source.eventtime.disorder import SEGMENT
from watermark_source.eventtime.percentile import MILLION, Percentile
from watermark_source.option_table import given_text

PERCENTILE = "percentile"
PUNCTUATED = "punctuated"
_OF_PERCENTILE = ("watermarkPercentile", "percentileRows")


def on_time(text: str) -> int:
    """Parse a percentage of rows; returns how many of a million that is."""
    try:
        share = Decimal(text.strip().removesuffix("%").strip()) * (MILLION // 100)
    except InvalidOperation:
        raise ValueError("not a number") from None
    if not share.is_finite() or not MILLION // 2 <= share < MILLION:
        raise ValueError("must be at least 50 and less than 100")
    if share != int(share):
        raise ValueError("has more than four digits behind the point")
    return int(share)


def percentile_of(values: Mapping[str, Any], given: Mapping[str, str]) -> Percentile | None:
    """Return what the user wished, ``None`` with another strategy.

    Raises:
        OptionError: options that cannot be together, or one that another needs.
    """
    strategy = values["watermarkStrategy"]
    if strategy != PERCENTILE:
        for name in (name for name in _OF_PERCENTILE if given_text(given, name) is not None):
            raise OptionError(
                name, given_text(given, name),
                f"belongs to watermarkStrategy percentile, and the strategy is {strategy}", example="leave it out",
            )  # fmt: skip
        return None
    most = values["maxOutOfOrderness"]
    if not most:
        raise OptionError(
            "maxOutOfOrderness", given_text(given, "maxOutOfOrderness"),
            "is needed because watermarkStrategy is percentile: it is the largest bound that may be learned, and the "
            "one until enough rows are known", example="10 minutes",
        )  # fmt: skip
    wish = Percentile(values["watermarkPercentile"], values["percentileRows"], most)
    if wish.rows < 2 * wish.enough:
        raise OptionError(
            "percentileRows", given_text(given, "percentileRows"),
            f"must be at least {2 * wish.enough}: of fewer rows hardly any is expected beyond a watermarkPercentile of "
            f"{wish.on_time / (MILLION // 100):g}", example=str(2 * wish.enough),
        )  # fmt: skip
    largest = values["maxRecordsPerPartition"]
    if largest is not None and largest < SEGMENT:
        raise OptionError(
            "maxRecordsPerPartition", given_text(given, "maxRecordsPerPartition"),
            f"must be at least {SEGMENT} with watermarkStrategy percentile, which counts disorder in stretches of so "
            "many rows", example=str(SEGMENT),
        )  # fmt: skip
    return wish
