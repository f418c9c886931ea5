"""The command line: ``python -m watermark_source``, with ``doctor``, ``profile``, ``watermarks``, ``group``,
``verify``, ``certify``, ``explain``, ``complete`` and ``watch``."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from watermark_source.durations import ACCEPTED, parse_duration, parse_time
from watermark_source.errors import EventTimeError, UsageError, WatermarkSourceError
from watermark_source.monitor.checkpoint import query_of_checkpoint
from watermark_source.monitor.doctor import doctor_of, flags, help_of, module_of, options_of, report, with_secrets
from watermark_source.monitor.open_windows import open_window

_GOOD, _BAD, _MISUSED = 0, 1, 2
_SECRETS = (
    "Then the options of the source, each as --name value. Passwords come from environment variables: "
    "WATERMARK_SOURCE_PASSWORD for the option password."
)
_CHECKPOINT = "the checkpointLocation of the query that writes the copy, a local folder"


def main(words: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit status: 0 if no check failed, 1 if a check failed, 2 for a wrong command."""
    try:
        return _run(words)
    except WatermarkSourceError as error:
        sys.stderr.write(f"{error}\n")
        return _MISUSED


def _run(words: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="python -m watermark_source", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar=" | ".join(_COMMANDS), dest="command")
    command = partial(commands.add_parser, allow_abbrev=False)
    doctor = command(
        "doctor",
        help="check whether a source would start",
        description="Runs the checks that a source runs at load(), and some more. After a failure it runs the others, "
        "and prints the remedy.",
        epilog=f"{_SECRETS} On a terminal it prompts for the password. Exit status: 0 if no check failed, 1 if a check "
        "failed, 2 for a wrong command.",
    )
    _add_systems(doctor, flags("DOCTOR_FLAG"))
    profile = command(
        "profile",
        help="measure how far rows are out of order, to choose maxOutOfOrderness",
        description="Reads the event times of the newest rows of each partition, and prints the share of late rows for "
        "several values of maxOutOfOrderness.",
        epilog=f"{_SECRETS}{help_of('PROFILE_HELP')}",
    )
    _add_systems(profile, flags("PROFILE_FLAG"))
    profile.add_argument(
        "--rows", type=_rows, default=1_000_000, metavar="N",
        help="number of rows of each partition, or all (default 1000000)",
    )  # fmt: skip
    watermarks = command(
        "watermarks",
        help="list, audit or remove the writers that announce watermarks for a topic",
        description="list: prints what each writer of a topic announced last. audit: reads the topic whole, and prints "
        "the rows that break what their writers announced. drop WRITER: readers no longer wait for a writer that is "
        "gone for good.",
        epilog=f"{_SECRETS}{help_of('WATERMARKS_HELP')} At the end: list, audit, or drop and a writer's name. Exit "
        "status: 0; 1 if an audit found broken promises; 2 for a wrong command.",
    )
    _add_systems(watermarks, flags("WATERMARKS_FLAG"))
    command(
        "group",
        help="list the sources of an alignment group, or have one leave that is gone for good",
        description="list: prints what each source of a group has reported. leave SOURCE: the others no longer wait "
        "for a source whose query was stopped and does not start again.",
        epilog="The option --alignmentGroup NAME, and the URL of its database from the environment variable "
        "WATERMARK_SOURCE_ALIGNMENT_STORE. At the end: list, or leave and a source's name. Exit status: 0; 2 for a "
        "wrong command.",
    )
    verify = command(
        "verify",
        help="compare a copy of a table with the server, while both are written to",
        description="Compares fingerprints of ranges of keys on both sides, and prints the keys that differ: missing, "
        "doubled, altered, stale, or extra.",
        epilog=f"{_SECRETS}{help_of('VERIFY_HELP')}. Exit status: 0 if the copy equals the table, 1 if not, 2 if it "
        "cannot be verified.",
    )
    _add_systems(verify, flags("VERIFY_FLAG"))
    verify.add_argument(
        "--copy", required=True, metavar="FORMAT:PATH", help="what Spark loads the copy by, or table:NAME"
    )
    against = verify.add_mutually_exclusive_group(required=True)
    against.add_argument("--checkpoint", metavar="DIR", help=_CHECKPOINT)
    against.add_argument("--certificate", metavar="FILE", help="compare with this, and with no server")
    certify = command(
        "certify",
        help="write a certificate of a table, by which others verify a copy without the server",
        description="Writes the fingerprints of ranges of keys, as of the last batch that the query has committed.",
        epilog=f"{_SECRETS} Exit status: 0, or 2 if the table cannot be certified.",
    )
    _add_systems(certify, flags("VERIFY_FLAG"))
    certify.add_argument("--checkpoint", required=True, metavar="DIR", help=_CHECKPOINT)
    certify.add_argument("--certificate", required=True, metavar="FILE", help="the file to write")
    explain = command(
        "explain",
        help="explain from a query's checkpoint why a window is still open",
        description="Reads the checkpoint of a query that has ended, or that runs elsewhere, and prints which "
        "partitions hold a window back, and the line to write. For a running query, watermark_source.why_open(query) "
        "knows more: its options, and what is left to read.",
        epilog="For example: --checkpoint /data/checkpoints/by_minute --window-end 2026-11-27T20:09:00Z. Exit status: "
        "0; 2 for a wrong command or a folder that is not a checkpoint.",
    )
    explain.add_argument(
        "--checkpoint", required=True, metavar="DIR", help="the query's checkpointLocation, a local folder"
    )
    explain.add_argument(
        "--window-end", metavar="TIME",
        help="end of the window: ISO 8601, UTC without a zone, or milliseconds since 1970 (default: any open window)",
    )  # fmt: skip
    explain.add_argument("--html", metavar="FILE", help="write the answer with a picture of the partitions, too")
    complete = command(
        "complete",
        help="whether a table has every row up to a time, or wait until it has",
        description="Reads what the writers of a table have stated (publish_completeness, completeness_of), and prints "
        "whether it has every row before the time that is on time, or who holds it.",
        epilog='For example: /lake/counts --until 2026-11-28T12:00Z --wait --timeout "2 hours". Exit status: 0 if it '
        "is complete; 1 if it is not yet; 2 if no writer has stated anything, the one that holds it has ended, the "
        "place cannot be read, or for a wrong command.",
    )
    complete.add_argument("place", metavar="PLACE", help="the table's folder, or URL#table of a database")
    complete.add_argument(
        "--until", required=True, metavar="TIME", help="ISO 8601, UTC without a zone, or milliseconds since 1970"
    )
    complete.add_argument("--writers", default="", metavar="NAMES", help="writers that count before they have begun")
    complete.add_argument("--wait", action="store_true", help="until it is complete, or the time limit has passed")
    complete.add_argument("--timeout", default="1 hour", metavar="DURATION", help="of --wait (default 1 hour)")
    watch = command(
        "watch",
        help="show a status page in the terminal",
        description="Shows the queries of StatusPage(spark) until Ctrl-C; once where the output is not a terminal. "
        "Needs the extra monitor.",
    )
    watch.add_argument("url", metavar="URL", help="the page's address, such as http://localhost:4050")
    watch.add_argument("--table", action="store_true", help="the table of partitions in place of the picture")
    given, rest = parser.parse_known_args(words)
    if rest and given.command in _WITHOUT_OPTIONS:
        parser.error(f"{given.command}: unrecognized arguments: {' '.join(rest)}")
    return _COMMANDS[given.command](given, rest)


def _add_systems(command: argparse.ArgumentParser, packages: Mapping[str, str]) -> None:
    systems = command.add_mutually_exclusive_group(required=True)
    for flag, package in packages.items():
        systems.add_argument(f"--{flag}", dest="package", action="store_const", const=package, help=f"with {package}")


def _doctor(given: argparse.Namespace, words: Sequence[str]) -> int:
    chosen = doctor_of(given.package)
    secrets = with_secrets(options_of(words), chosen.OPTIONS, asked_for=chosen.ASKED_FOR)
    return _GOOD if report(chosen.findings(secrets), sys.stdout) else _BAD


def _explain(given: argparse.Namespace, _: Sequence[str]) -> int:
    end = None if given.window_end is None else _time("--window-end", given.window_end)
    known = query_of_checkpoint(given.checkpoint)
    found = open_window(known, end)
    if given.html is not None:
        # What draws is needed here alone.
        from watermark_source.monitor.window_file import write_window  # noqa: PLC0415

        write_window(known, found, given.html)
    sys.stdout.write(f"{found}\n")
    return _GOOD


def _complete(given: argparse.Namespace, _: Sequence[str]) -> int:
    # It imports pyarrow, which most commands do not need.
    from watermark_source.monitor.complete import complete  # noqa: PLC0415

    try:
        seconds = parse_duration(given.timeout) / 1_000
    except ValueError:
        raise UsageError(f"--timeout {given.timeout}: expected {ACCEPTED}, for example 2 hours") from None
    writers = [name.strip() for name in given.writers.split(",") if name.strip()]
    until, seconds = _time("--until", given.until), seconds if given.wait else 0
    return complete(given.place, until, writers, sys.stdout, seconds=seconds, sleep=time.sleep)


def _time(flag: str, text: str) -> int:
    try:
        return parse_time(text)
    except ValueError as error:
        raise UsageError(f"{flag} {error}") from None


def _watch(given: argparse.Namespace, _: Sequence[str]) -> int:
    # rich is an optional dependency.
    from watermark_source.monitor.terminal import watch  # noqa: PLC0415

    watch(given.url, table=given.table)
    return _GOOD


def _profile(given: argparse.Namespace, words: Sequence[str]) -> int:
    # The profile imports numpy, which the doctor does not need.
    from watermark_source.monitor.profile import profile_of, profiler_of, write  # noqa: PLC0415

    chosen = profiler_of(given.package)
    try:
        profile = profile_of(chosen.event_times(with_secrets(options_of(words), chosen.OPTIONS), given.rows))
    except EventTimeError as error:
        sys.stdout.write(f"no record has an event time: {error}\n")
        return _BAD
    write(profile, sys.stdout)
    return _GOOD


def _watermarks(given: argparse.Namespace, words: Sequence[str]) -> int:
    action, writer, options = _action("watermarks", words, ("list", "audit"), "drop", "WRITER")
    module = module_of(given.package, "announcing.audit")
    secrets = with_secrets(options_of(options), module.OPTIONS)
    return _GOOD if module.watermarks(secrets, action, writer, sys.stdout) else _BAD


def _verify(given: argparse.Namespace, words: Sequence[str]) -> int:
    options = options_of(words)
    if given.certificate is not None:
        if options:
            raise UsageError(f"with --certificate no server is asked: leave out --{next(iter(options))}")
        certified = module_of(given.package, "certified")
        return _GOOD if certified.verify(given.copy, given.certificate, sys.stdout) else _BAD
    module = module_of(given.package, "verify")
    secrets = with_secrets(options, module.OPTIONS, asked_for=module.ASKED_FOR)
    return _GOOD if module.verify(secrets, given.copy, given.checkpoint, sys.stdout) else _BAD


def _certify(given: argparse.Namespace, words: Sequence[str]) -> int:
    module = module_of(given.package, "certification")
    secrets = with_secrets(options_of(words), module.OPTIONS, asked_for=module.ASKED_FOR)
    sys.stdout.write(f"{module.certify(given.certificate, checkpoint=given.checkpoint, options=secrets)}\n")
    return _GOOD


def _group(given: argparse.Namespace, words: Sequence[str]) -> int:
    # Of the store that most commands do not need.
    from watermark_source.monitor.alignment_group import OPTIONS, group  # noqa: PLC0415

    _, source, options = _action("group", words, ("list",), "leave", "SOURCE")
    group(with_secrets(options_of(options), OPTIONS), source, sys.stdout)
    return _GOOD


_COMMANDS: Mapping[str, Callable[[argparse.Namespace, Sequence[str]], int]] = {
    "doctor": _doctor, "profile": _profile, "watermarks": _watermarks, "group": _group, "verify": _verify,
    "certify": _certify, "explain": _explain, "complete": _complete, "watch": _watch,
}  # fmt: skip
"""What each command does with its arguments, and with the words behind these: options of a source."""
_WITHOUT_OPTIONS = ("explain", "complete", "watch")


def _action(
    command: str, words: Sequence[str], alone: Sequence[str], on_one: str, one: str
) -> tuple[str, str | None, Sequence[str]]:
    """Return what to do, the name of whom it is done to if it has one, and the options; raises ``UsageError``.

    Args:
        command: what is called.
        words: begin or end with what to do.
        alone: what can be done.
        on_one: what can be done to one, which is named behind it.
        one: what that is.
    """
    # A word behind --name is its value, one behind --name=value is not.
    is_value, last_is_value = (any(re.match("--[^=]*$", word) for word in words[n - 1 : n]) for n in (-2, -1))
    if words[-2:-1] == [on_one] and not is_value:
        return on_one, words[-1], words[:-2]
    for name in alone:
        if words[-1:] == [name] and not last_is_value:
            return name, None, words[:-1]
        if words[:1] == [name]:
            return name, None, words[1:]
    if words[:1] == [on_one] and len(words) > 1:
        return on_one, words[1], words[2:]
    raise UsageError(
        f"{command}: what is to be done is missing; end the command with {', '.join(alone)}, or {on_one} {one}"
    )


def _rows(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}; expected a number of rows, 1 or more, or all")
    return int(text)
