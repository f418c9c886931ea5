"""Read tasks on their way to an executor."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from watermark_source.planning.split import Split, SplitRange
from watermark_source.planning.watermark import Millis
from watermark_source.spark.markers import Marker
from watermark_source.spark.read_tasks import ReadTask
from watermark_source.spark.report_protocol import ReportAddress

_ranges = st.builds(
    SplitRange, st.builds(Split, st.sampled_from(["a", "b"]), st.integers(0, 9)), st.integers(0, 10**12), st.integers()
)


@given(st.lists(_ranges, max_size=12).map(tuple))
def test_a_task_arrives_as_it_was_sent(ranges: tuple[SplitRange, ...]) -> None:
    marker = Marker("watermark", None, None, 7, None, False, None)
    sent = ReadTask(ranges, (marker,), Millis(9), Millis(8), Millis(7), ReportAddress(("host",), 1, b"key"))
    assert cloudpickle.loads(cloudpickle.dumps(sent)) == sent
    summed = replace(sent, summarized_by="package.module:Class")
    assert cloudpickle.loads(cloudpickle.dumps(summed)) == summed
