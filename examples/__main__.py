"""Runs an example by its name, ``python -m examples skewed_topic``: Ctrl-C is heard from its imports on."""

from __future__ import annotations

import runpy
import sys

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("expected the name of an example, such as python -m examples skewed_topic")
    name, *sys.argv[1:] = sys.argv[1:]
    try:
        runpy.run_module(f"examples.{name}", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        sys.stderr.write("\nCtrl-C: ended\n")
        sys.exit(130)
