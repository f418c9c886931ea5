"""A driver program of its own with one source of an alignment group, to be frozen and killed.

Run as ``python group_driver.py FOLDER OPTION=VALUE…``: it writes the rows of a stream of Kafka into files, and what its
progress shows of the group to ``FOLDER/groups``, a line whenever that has changed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.integration.killed_driver import Lines, session

_OFTEN = {"spark.sql.streaming.noDataProgressEventInterval": "100"}


def checkpoint_of(folder: Path) -> Path:
    """Return where the query's checkpoint is."""
    return folder / "checkpoint"


def sink_of(folder: Path) -> Path:
    """Return where its rows are."""
    return folder / "sink"


def main(folder: Path, options: dict[str, str]) -> None:
    """Run the query for ever."""
    frame = session("local[1]", _OFTEN).readStream.format("aligned-kafka").options(**options).load()
    rows = frame.where("marker IS NULL").select("partition", "offset")
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint_of(folder)))
    query = writer.start(str(sink_of(folder)))
    log, group = Lines(folder / "groups"), None
    while query.isActive:
        time.sleep(0.05)
        progress = query.lastProgress
        status = json.loads(progress.sources[0].latestOffset) if progress and progress.sources[0].latestOffset else {}
        if status.get("group") != group:
            group = status.get("group")
            log.write({"at": time.time(), "group": group})
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(option.split("=", 1) for option in sys.argv[2:]))
