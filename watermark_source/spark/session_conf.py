"""Settings of a Spark session under which these sources, and Spark's own, are faster; figures are in docs/speed.md."""

from __future__ import annotations

import socket
from typing import Any

WORKER_DAEMON = "spark.python.daemon.module"
UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
CHECKPOINT_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
OUR_DAEMON = "watermark_source.spark.executor.worker_daemon"


def recommended_conf(*, local_checkpoints: bool = False, installed_on_executors: bool = False) -> dict[str, Any]:
    """Return settings of Spark that make queries of these sources faster, for ``SparkSession.builder.config(map=…)``.

    They take effect where the session is created: on Spark Classic, before its Java process starts. Results are the
    same with and without them, and no check is switched off. What each is worth was measured, and is in docs/speed.md:

    - ``spark.python.unix.domain.socket.enabled``: 40 to 50 ms less for each batch, the wait of a TCP socket. Left out
      where Python has no Unix sockets (Windows). The folder ``spark.python.unix.domain.socket.dir`` (Java's folder for
      temporary files by default) must be writable on every node, its path at most about 60 characters long. Spark's
      short-lived Python processes may print a ``BrokenPipeError`` with its traceback when a query starts; it harms
      nothing, and was seen neither with TCP sockets nor with ``installed_on_executors``.
    - ``spark.sql.streaming.checkpointFileManagerClass``, with ``local_checkpoints`` alone: 12 ms instead of 40 ms for
      each of the two files of a batch, because Hadoop starts no processes for them.
    - ``spark.python.daemon.module``, with ``installed_on_executors`` alone: a Python worker starts with a second and a
      half of a core less to do. Spark starts one for each task that runs beside others, and ends it after a minute
      without a task. Whose connection Spark has closed ends without a traceback.
      The limit: Python workers of other tasks have these modules in memory, too.

    Args:
        local_checkpoints: whether the checkpoints of all queries of the session are in folders of the local disk. The
            setting is for these alone: it renames files, which is not atomic in every object store, and where no
            checkpoint is local Spark's own choice starts no processes.
        installed_on_executors: whether this project is installed where executors run, as it is with ``master("local")``
            and in an environment or image that is shipped. With ``--py-files`` it is not: Spark's daemon of Python
            workers does not see those files, and could not start.
    """
    # All texts, but config(map=) is typed with an invariant dict of more kinds.
    settings: dict[str, Any] = {}
    if hasattr(socket, "AF_UNIX"):
        settings[UNIX_SOCKETS] = "true"
    if local_checkpoints:
        settings[CHECKPOINT_MANAGER] = _LOCAL_MANAGER
    if installed_on_executors:
        settings[WORKER_DAEMON] = OUR_DAEMON
    return settings
