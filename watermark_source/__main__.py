"""The command line: ``python -m watermark_source doctor --mysql --hostname db1 --username cdc --tables shop.t``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from watermark_source.errors import WatermarkSourceError
from watermark_source.monitor.doctor import doctor_of, flags, options_of, report, with_secrets

_GOOD, _BAD, _MISUSED = 0, 1, 2


def main(words: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status: 0 all that is needed holds, 1 it does not, 2 the command is wrong."""
    parser = argparse.ArgumentParser(prog="python -m watermark_source", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="doctor")
    doctor = commands.add_parser(
        "doctor",
        help="whether a source would start",
        description="Makes the checks that a source makes at load(), and some more, goes on after one that fails, and "
        "says what mends it.",
        epilog="Then the options of the source, each as --name value. Passwords are asked for, or taken from "
        "environment variables: WATERMARK_SOURCE_PASSWORD for the option password. Exit status: 0 all that is needed "
        "holds, 1 it does not, 2 the command is wrong.",
        allow_abbrev=False,
    )
    systems = doctor.add_mutually_exclusive_group(required=True)
    for flag, package in flags().items():
        systems.add_argument(f"--{flag}", dest="package", action="store_const", const=package, help=f"by {package}")
    given, options = parser.parse_known_args(words)
    try:
        chosen = doctor_of(given.package)
        held = report(chosen.findings(with_secrets(options_of(options), chosen)), sys.stdout)
    except WatermarkSourceError as error:
        sys.stderr.write(f"{error}\n")
        return _MISUSED
    return _GOOD if held else _BAD


if __name__ == "__main__":
    sys.exit(main())
