"""A process of tests that takes too much memory ends, with its stacks: the system would end it without a word."""

from __future__ import annotations

import faulthandler
import os
import resource
import sys
import threading
import time

import pytest

_POLL_SECONDS = 0.2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--most-memory", type=int, default=4_096, help="MiB that a process of tests may have (4096)")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") and sys.platform == "linux":
        # As pytest's own handler of faults: while a test runs, the usual number is that of what it captures.
        shown = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else 2
        threading.Thread(target=_watch, args=(config.getoption("most_memory") << 20, shown), daemon=True).start()


def _watch(most: int, shown: int) -> None:
    # Opened once: a test may lower the number of files that can be open.
    with open("/proc/self/statm", "rb", buffering=0) as pages:
        while (taken := int(os.pread(pages.fileno(), 200, 0).split()[1]) * resource.getpagesize()) < most:
            time.sleep(_POLL_SECONDS)
    os.write(shown, f"{taken >> 20} MiB of memory, and at most {most >> 20} were expected (--most-memory)\n".encode())
    faulthandler.dump_traceback(shown)
    os._exit(1)
