"""What ``AlignedDataSource`` does with options."""

from __future__ import annotations

import pytest

from watermark_source.errors import UnknownOptionError
from watermark_source.option_table import Option
from watermark_source.spark.data_source import AlignedDataSource

FOLDER = Option(name="folder", parse=str, accepted="must be a folder", example="/data", doc="Where files are.")


class Files(AlignedDataSource):
    """A format of somebody else's."""

    format_name = "files"
    own_options = (FOLDER,)


def test_an_option_like_no_other_is_told_those_of_the_format() -> None:
    with pytest.raises(
        UnknownOptionError, match="nor one like it; files has folder, startingOffsets, maxRowsPerTrigger"
    ):
        Files({"zzz": "1"}).schema()
