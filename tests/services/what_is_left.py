"""What is left of a local server: processes of its group, and whether its port accepts."""

from __future__ import annotations

import os
import socket

import psutil


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def members(group: int) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE and _group_of(process.pid) == group
    ]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
