"""``python -m watermark_source``: the command line, which Ctrl-C ends without a traceback from its imports on."""

from __future__ import annotations

import sys

BY_CTRL_C = 130
"""The exit status of programs that end by SIGINT."""

if __name__ == "__main__":
    try:
        from watermark_source.command_line import main

        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("\nCtrl-C: ended\n")
        sys.exit(BY_CTRL_C)
