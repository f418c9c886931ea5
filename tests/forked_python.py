"""A Python for Spark whose short processes are copies of one with their imports: each spares half a second of a core.

Spark starts a process of Python for each ``load``, for the plan of each query, and for each source that a query reads.
``forked_python`` writes a program that Spark starts in Python's place. The program asks a server for a copy of itself
and lives as long as that copy; the first program of a Spark has started the server, which ends with Spark. Whatever
else Spark starts is Python itself. So are all processes of the programs that tests start (kills, a cluster, examples,
what ``make play`` prints) and, with ``--long``, of every test.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_OF_SPARK = (
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
)
_OF_SOURCES = (
    "watermark_source.spark.executor.reading",
    "watermark_source.spark.driver.runner",
    "pyspark_aligned_kafka.driver",
    "pyspark_mysql_cdc_wm.source",
)
_STREAMS = 3
# It imports nothing that takes time, for it runs as often as what it spares.
_PROGRAM = """\
#!{python} -IS
import _socket, os, sys

PYTHON, SERVER, FOLDER, COPIED, IMPORTED = {python!r}, {server!r}, {folder!r}, {copied!r}, {imported!r}

def connected():
    asked = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        asked.connect(f"{{FOLDER}}/{{os.getppid()}}")
    except OSError:
        asked.close()
        return None
    return asked

def started():
    import fcntl, subprocess
    with open(f"{{FOLDER}}/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        asked = connected()
        if asked is None:
            with open(f"{{FOLDER}}/log", "a") as log:
                command = [PYTHON, "-P", SERVER, FOLDER, str(os.getppid()), ",".join(COPIED), ",".join(IMPORTED)]
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            asked = connected()
    return asked

if sys.argv[1:2] != ["-m"] or sys.argv[2] not in COPIED:
    os.execv(PYTHON, [PYTHON, *sys.argv[1:]])
asked = connected() or started()
import json
said = json.dumps([os.getpid(), sys.argv[2:], os.getcwd(), dict(os.environ)]).encode() + b"\\n"
streams = b"".join(each.to_bytes(4, sys.byteorder) for each in range({streams}))
sent = asked.sendmsg([said], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while sent < len(said):
    sent += asked.send(said[sent:])
status = asked.recv(1)
os._exit(status[0] if status else 1)
"""


def forked_python(folder: Path, copied: Sequence[str] = _OF_SPARK, imported: Sequence[str] = _OF_SOURCES) -> Path:
    """Write the program into a folder of this session alone, whose path is short, and return where it is.

    For each program with a copy the folder has a file, named for the program's process, with the number of the copy's.

    Args:
        folder: where its sockets are, too.
        copied: modules with which it is a copy: ``python -m module``.
        imported: what copies have imported, besides what these modules import.
    """
    if sys.platform != "linux":
        return Path(sys.executable)
    program = folder / "python"
    text = _PROGRAM.format(
        python=sys.executable, server=__file__, folder=str(folder), copied=tuple(copied), imported=tuple(imported),
        streams=_STREAMS,
    )  # fmt: skip
    program.write_text(text, encoding="utf-8")
    program.chmod(0o700)
    return program


class _Server:
    """Gives each program a copy of this process, tells it how the copy ended, and ends the copy of one that ended."""

    def __init__(self, folder: Path, spark: int) -> None:
        self._folder, self._spark = folder, spark
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.bind(str(folder / str(spark)))
        self._listening.listen(100)
        self._waiting = selectors.DefaultSelector()
        self._on(self._listening, self._copy)
        self._on(os.pidfd_open(spark), sys.exit)

    def serve(self) -> None:
        """Return never: exit when Spark has ended, and in a copy when its work is done."""
        while True:
            for key, _ in self._waiting.select():
                key.data()

    def _on(self, what: int | socket.socket, act: Callable[[], object]) -> None:
        self._waiting.register(what, selectors.EVENT_READ, act)

    def _copy(self) -> None:
        program, _ = self._listening.accept()
        said, streams, _, _ = socket.recv_fds(program, 1 << 16, _STREAMS)
        while not said.endswith(b"\n"):
            said += program.recv(1 << 16)
        number, *asked = json.loads(said)
        copy = os.fork()
        if copy == 0:
            self._become(program, streams, *asked)
        for stream in streams:
            os.close(stream)
        (self._folder / f"{number}.copy").write_text(str(copy), encoding="ascii")
        ended = os.pidfd_open(copy)

        def tell() -> None:
            code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
            with contextlib.suppress(OSError):
                program.send(bytes([code % 256]))
            for each in (ended, program):
                with contextlib.suppress(KeyError):
                    self._waiting.unregister(each)
            os.close(ended)
            program.close()

        def end() -> None:
            self._waiting.unregister(program)
            signal.pidfd_send_signal(ended, signal.SIGKILL)

        self._on(ended, tell)
        self._on(program, end)

    def _become(
        self, program: socket.socket, streams: list[int], command: list[str], folder: str, environment: dict[str, str]
    ) -> None:
        self._waiting.close()
        self._listening.close()
        program.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        # By its parent a source finds how Spark was started.
        os.getppid = lambda: self._spark
        paths = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
        sys.path[:0] = [path for path in paths if path not in sys.path]
        sys.argv[:] = command
        runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        sys.exit()


def _main(folder: str, spark: str, copied: str, imported: str) -> None:
    names = [name for name in copied.split(",") if name]
    for name in (*names, *filter(None, imported.split(","))):
        importlib.import_module(name)
    # What runs one of them is to find none, as in a new process.
    for name in names:
        del sys.modules[name]
    server = _Server(Path(folder), int(spark))
    if os.fork() == 0:
        gc.freeze()
        server.serve()


if __name__ == "__main__":
    _main(*sys.argv[1:])
