"""A batch read in another process, as after a restart: ``python -m watermark_source.testing.other_process``."""

from __future__ import annotations

import os
import subprocess
import sys

from pyspark import cloudpickle

from watermark_source.spark.stream_reader import AlignedStreamReader
from watermark_source.testing.check import NonConformanceError
from watermark_source.testing.driven_stream import Offset, Stream, batch_of
from watermark_source.testing.pickled import pickled

_SECONDS = 120


def read_elsewhere(stream: Stream, start: Offset, end: Offset) -> list[str]:
    """Return what ``Batch.shown`` is when a process of its own plans the tasks of a batch and runs them."""
    done = subprocess.run(  # noqa: S603 - this interpreter, on this file
        [sys.executable, "-m", __name__],
        input=pickled((stream.reader, start, end, stream.schema)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise NonConformanceError(f"in another process: {done.stderr.decode(errors='replace')[-1_000:]}")
    shown: list[str] = cloudpickle.loads(done.stdout)
    return shown


def main() -> None:
    """Read the batch that comes on the standard input."""
    reader: AlignedStreamReader
    reader, start, end, schema = cloudpickle.loads(sys.stdin.buffer.read())
    try:
        shown = batch_of(reader, start, end, schema).shown
    finally:
        reader.stop()
    sys.stdout.buffer.write(pickled(shown))
    sys.stdout.buffer.flush()
    # Threads of a client may not end by themselves.
    os._exit(0)


if __name__ == "__main__":
    main()
