"""Programs that are started as a terminal starts them: in a session of their own, whose group gets Ctrl-C."""

from __future__ import annotations

import contextlib
import os

import psutil


def processes_of_session(leader: int) -> list[int]:
    """Return the processes of a session that have not ended, by the id of its first process."""
    return [each.pid for each in psutil.process_iter() if each.pid != os.getpid() and _session(each) == leader]


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process has not ended; one that no one waits for stays as a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _session(process: psutil.Process) -> int | None:
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(process.pid) if is_alive(process) else None
    return None
