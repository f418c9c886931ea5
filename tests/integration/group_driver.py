"""A driver program of its own with one source of an alignment group, to be frozen and killed.

Run as ``python group_driver.py FOLDER NAME OPTION=VALUE…``: it writes the rows of a stream of Kafka into files.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.killed_driver import session


def checkpoint_of(folder: Path) -> Path:
    """Return where the query's checkpoint is."""
    return folder / "checkpoint"


def sink_of(folder: Path) -> Path:
    """Return where its rows are."""
    return folder / "sink"


def main(folder: Path, options: dict[str, str]) -> None:
    """Run the query for ever."""
    frame = session("local[1]").readStream.format("aligned-kafka").options(**options).load()
    rows = frame.where("marker IS NULL").select("partition", "offset")
    rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint_of(folder))).option(
        "path", str(sink_of(folder))
    ).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(option.split("=", 1) for option in sys.argv[2:]))
