"""The end of containers whose owner has died: a process that waits for that and removes them."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

# It reads a pipe that only the owner holds open; the kernel closes it however the owner ends, kill -9 included. Twice,
# because the engine may still be making a container that the owner asked for.
_WATCH = """
import sys, time
sys.stdin.buffer.read()
import docker
engine = docker.from_env()
for _ in range(2):
    for container in engine.containers.list(all=True, filters={"label": sys.argv[1]}, ignore_removed=True):
        try:
            container.remove(force=True, v=True)
        except docker.errors.APIError:
            pass
    time.sleep(1)
"""


@functools.cache
def watch(label: str, engine: str | None) -> subprocess.Popen[bytes]:
    """Let all containers of an engine with this label go, and their data, when this process ends.

    ``engine`` is what ``DOCKER_HOST`` says; a second call for the same starts no second watcher.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _WATCH, label],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=os.environ | ({"DOCKER_HOST": engine} if engine else {}),
        start_new_session=True,
    )
