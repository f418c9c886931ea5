"""Write what comes from the code: options, decisions' index, docs/api.md, tests by night (``docs/generate.py``).

With ``--signatures`` it also records the signatures of the public names, which a test compares with the code.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

from docs.generate_api import API_PAGE, SIGNATURES, api_page, signatures
from docs.images.two_partitions import PICTURE, read_recording, svg
from docs.status_page import STATUS_PAGE, status_page
from docs.surface_table import surfaces_page
from pyspark_aligned_kafka.client.setting_table import REFUSED, REFUSED_FAMILIES, SETTINGS
from pyspark_aligned_kafka.options.kafka_option_table import KAFKA_OPTIONS
from pyspark_aligned_kafka.options.kafka_option_table import OPTION_TABLE as KAFKA_TABLE
from pyspark_mysql_cdc_wm.options.mysql_option_table import (
    MYSQL_OPTIONS,
    NO_MEANING,
    NOT_NEEDED_HERE,
    REFUSED_STRATEGIES,
)
from pyspark_mysql_cdc_wm.options.mysql_option_table import OPTION_TABLE as MYSQL_TABLE
from tests.by_night import BY_NIGHT_PAGE, by_night_page
from watermark_source.option_table import Option, Renamed
from watermark_source.spark.option_rows import ENGINE_OPTIONS
from watermark_source.spark.strategy_rows import STRATEGIES

PAGE = Path(__file__).parent / "options.md"
SURFACES_PAGE = Path(__file__).parent / "surfaces.md"
MYSQL_PAGE = Path(__file__).parent / "mysql-options.md"
VERSIONS_PAGE = Path(__file__).parent / "versions.md"
DECISIONS = Path(__file__).parent / "decisions"
DECISIONS_PAGE = DECISIONS / "README.md"

EVENT_TIME = "Event time and watermarks"
ALIGNMENT = "Alignment"
OTHERS = "Others"
ENGINE_GROUPS: dict[str, str] = {
    "watermarkStrategy": EVENT_TIME,
    **{option: EVENT_TIME for strategy in STRATEGIES for option in strategy.options},
    "idleTimeout": EVENT_TIME,
    "idleFollows": EVENT_TIME,
    "idleReturn": EVENT_TIME,
    "maxFutureSkew": EVENT_TIME,
    "watermarkWarningAfter": EVENT_TIME,
    "whenCaughtUp": EVENT_TIME,
    "finalWatermark": EVENT_TIME,
    "includeMarkers": EVENT_TIME,
    "includeLate": EVENT_TIME,
    "alignmentGroup": ALIGNMENT,
    "alignmentMaxDrift": ALIGNMENT,
    "alignmentStore": ALIGNMENT,
    "alignmentTimeToLive": ALIGNMENT,
    "alignmentMembers": ALIGNMENT,
    "alignmentHold": ALIGNMENT,
    "sourceName": OTHERS,
    "minPartitions": OTHERS,
    "maxRecordsPerPartition": OTHERS,
    "reportAddress": OTHERS,
}
"""Section of the page for each option of the engine."""
_WIDTH = 120

_HEAD = """\
<!-- Written by docs/generate.py from the option tables. -->
# Options of `aligned-kafka`

Option names ignore case. Every option is checked at `load()`, and options that only a stream or only a
[batch](batch.md) accepts when the query starts. An unknown name is refused, with the nearest known one. A duration is a
number and a unit: `500 ms`, `5 seconds`, `1 minute 30 seconds`, `2 hours`, `1 day`. A *split* has a watermark of its
own: here it is a partition ([watermarks](watermarks.md)).
"""
_SETTINGS = """\
Kafka's own client settings, in the spelling of its Java clients. Time limits and pauses have the Java clients'
defaults, except `kafka.metadata.max.age.ms`, which is shorter; sizes have defaults of their own. Certificates and keys
are PEM, as files or as text. Passwords, private keys and `kafka.sasl.jaas.config` appear in no log, error or
checkpoint. Spark itself prints a source's options in `explain(True)`; it redacts passwords, but not PEM text: give keys
as files, or set `spark.sql.redaction.options.regex` to `(?i)url|kafka\\.ssl|jaas`.
"""
_REFUSED = "Refused settings, and what to do instead:"
_MYSQL_HEAD = """\
<!-- Written by docs/generate.py from the option tables. -->
# Options of `mysql-cdc-wm`

Option names ignore case. Every option is checked at `load()`, and so are the server's settings and the user's
privileges. An unknown name is refused, with the nearest known one. [MySQL](mysql.md) describes how the source works.
"""
_ENGINES = """\
The options of every source, described under [options](options.md): {0}. Event time is the commit time of a transaction,
by the server's clock, so `maxOutOfOrderness` is useful only where that clock may be set back, with `eventTimeColumn`,
and on MariaDB, which logs when statements began. `minPartitions` cuts a batch's range of the binlog, by bytes; by
default a range of 16 MB or more is cut in two. It does not change the chunks of a snapshot.
"""
_DECISIONS = """\
<!-- Written by docs/generate.py from the first lines of the records. -->
# Decisions

Why things are as they are: each record gives the context of a decision, the decision, its consequences, and what was
rejected. A later decision supersedes a record; it does not rewrite it.

| number | subject | status | date |
|---|---|---|---|
"""
_RENAMED = "| option of earlier versions | write |\n|---|---|\n"
_RECORD = re.compile(r"# (\d+)\. ([^\n]+)\n\nStatus: ([^\n]+)\. Date: (\d{4}-\d\d-\d\d)\.\n\n")


def page() -> str:
    """Return the whole page."""
    engine = {group: [row for row in ENGINE_OPTIONS if ENGINE_GROUPS[row.name] == group] for group in _groups()}
    parts = [_HEAD, _section("Kafka", _table(KAFKA_OPTIONS))]
    parts += [_section(group, _table(rows)) for group, rows in engine.items()]
    settings = f"{_SETTINGS}\n{_table(SETTINGS.values())}\n\n{_REFUSED}\n\n{_reasons(_refused_settings())}"
    parts += [_section("`kafka.*` settings", settings)]
    return "\n".join(parts)


def mysql_page() -> str:
    """Return the whole page of the MySQL source."""
    ours = ", ".join(f"`{row.name}`" for row in ENGINE_OPTIONS if row.name not in NO_MEANING)
    strategies = {f"watermarkStrategy={name}": why for name, why in REFUSED_STRATEGIES.items()}
    refused = f"Refused options, and why:\n\n{_reasons({**NO_MEANING, **NOT_NEEDED_HERE, **strategies})}"
    parts = [
        _MYSQL_HEAD,
        _section("MySQL", _table(MYSQL_OPTIONS)),
        _section("Event time, watermarks and others", f"{_wrapped(_ENGINES.format(ours))}\n\n{refused}"),
    ]
    return "\n".join(parts)


def versions_page() -> str:
    """Return the page of versions with its table of options that had another name."""
    rows = {row.old: row for row in (*KAFKA_TABLE.renamed, *MYSQL_TABLE.renamed)}
    return _with_table(VERSIONS_PAGE, _RENAMED, (f"| `{old}` | {_now(row)} |" for old, row in rows.items()))


def _with_table(page: Path, head: str, rows: Iterable[str]) -> str:
    """Return a page with the rows of the table that begins with ``head``."""
    before, _, rest = page.read_text(encoding="utf-8").partition(head)
    _, _, after = rest.partition("\n\n")
    return "".join((before, head, "\n".join(rows), "\n\n", after))


def _now(row: Renamed) -> str:
    if row.new is None:
        return f"leave it out: {row.why}"
    values = [
        f"`{old}`: {'leave it out' if new is None else f'`{row.new}` `{new}`'}" for old, new in row.values.items()
    ]
    return "; ".join(values) or (f"`{row.new}`" + (f", its text behind `{row.prefix}`" if row.prefix else ""))


def record_head(record: Path) -> tuple[str, str, str, str]:
    """Return the number, the subject, the status and the date of a decision record.

    Raises:
        ValueError: the record does not begin with them.
    """
    match = _RECORD.match(record.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(
            f"{record.name} must begin with a line '# 7. Subject', an empty line, and "
            "'Status: accepted. Date: 2026-11-27.' or 'Status: superseded by 9. Date: ...'"
        )
    return match[1], match[2], match[3], match[4]


def decisions_page() -> str:
    """Return the index of the decision records."""
    rows = []
    for record in sorted(DECISIONS.glob("[0-9]*.md")):
        number, subject, status, date = record_head(record)
        rows.append(f"| {number} | [{subject}]({record.name}) | {status} | {date} |\n")
    return _DECISIONS + "".join(rows)


def _groups() -> Iterable[str]:
    return dict.fromkeys(ENGINE_GROUPS.values())


def _refused_settings() -> Mapping[str, str]:
    families = {f"{prefix}* (others)": reason for prefix, reason in REFUSED_FAMILIES}
    return {f"kafka.{name}": reason for name, reason in {**REFUSED, **families}.items()}


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}\n"


def _table(rows: Iterable[Option]) -> str:
    lines = ["| option | default | accepted | example | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {_cell(row.shown_default)} | {_cell(row.accepted.removeprefix('must be '))} "
        f"| `{_cell(row.example)}` | {_cell(row.doc)} |"
        for row in rows
    ]
    return "\n".join(lines)


def _reasons(reasons: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(f"`{name}`")
    lines = (f"- {', '.join(names)}: {reason}." for reason, names in by_reason.items())
    return "\n".join(_wrapped(line, indent="  ") for line in lines)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    MYSQL_PAGE.write_text(mysql_page(), encoding="utf-8")
    VERSIONS_PAGE.write_text(versions_page(), encoding="utf-8")
    STATUS_PAGE.write_text(status_page(), encoding="utf-8")
    SURFACES_PAGE.write_text(surfaces_page(), encoding="utf-8")
    DECISIONS_PAGE.write_text(decisions_page(), encoding="utf-8")
    API_PAGE.write_text(api_page(), encoding="utf-8")
    BY_NIGHT_PAGE.write_text(by_night_page(), encoding="utf-8")
    PICTURE.write_text(svg(read_recording()), encoding="utf-8")
    if "--signatures" in sys.argv:
        SIGNATURES.write_text(signatures(), encoding="utf-8")
