"""A stream that has ended, or is about to, is not gone on with by a query that has no end."""

from __future__ import annotations

import pytest

from tests.spark.file_log import TABLE
from watermark_source.errors import OptionError, StreamEndedError
from watermark_source.eventtime.watermark import MAX, Millis
from watermark_source.planning.state import SourceState
from watermark_source.spark.driver.stream_end import StreamEnd
from watermark_source.spark.options.engine_options import EngineOptions


def end_of(**given: str) -> StreamEnd:
    return StreamEnd(EngineOptions.of(TABLE.parse(given), format_name="file-log", given=given))


def test_a_query_without_an_end_does_not_go_on_from_a_checkpoint_that_has_said_the_end_of_time() -> None:
    half = SourceState(watermark=MAX)
    with pytest.raises(StreamEndedError):
        end_of().check(half, is_run=False)
    # A run says the rest of it.
    end_of().check(half, is_run=True)
    end_of().check(SourceState(watermark=Millis(7)), is_run=False)


def test_the_last_run_has_an_end() -> None:
    with pytest.raises(OptionError, match="availableNow"):
        end_of(finalWatermark="true").check(SourceState(), is_run=False)
