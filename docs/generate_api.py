"""Makes docs/api.md, and the signatures of the public names, from their source: signatures, defaults and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

API_PAGE = Path(__file__).parent / "api.md"
SIGNATURES = Path(__file__).parents[1] / "tests" / "unit" / "public_signatures.txt"
SECTIONS: Mapping[tuple[str, str], str] = {
    ("Queries", "watermark_source"): (
        "follow_watermark follow_clock data_rows markers split_late temporal_join order_by_event_time status why "
        "why_open stop_between_batches StatusPage recommended_conf"
    ),
    ("A watermark strategy of your own", "watermark_source"): "WatermarkGenerator RowsRead Silence",
    ("Completeness", "watermark_source"): "publish_completeness completeness_of publish_in complete_until",
    ("Announcing", "pyspark_aligned_kafka"): "announce_watermark WatermarkAnnouncer",
    ("Auditing", "pyspark_aligned_kafka.announcing"): "audit Audit BrokenPromise",
    ("Verifying a copy", "pyspark_mysql_cdc_wm"): "verify_copy certify verify_certified",
    ("What differs", "pyspark_mysql_cdc_wm.verify"): "Verdict Difference Kind",
    ("The format", "watermark_source.connector"): (
        "AlignedDataSource SourceOptions Abilities RowLimits MinimumRows WatermarkCharacteristic"
    ),
    ("Options", "watermark_source.connector"): (
        "Option OptionTable Renamed one_of true_or_false at_least_one boolean integer positive_integer duration word "
        "non_empty STREAM_OPTIONS ENGINE_OPTIONS ONLY_IN_STREAMS RENAMED EARLIEST LATEST"
    ),
    ("The driver side", "watermark_source.connector"): (
        "Split SplitRange Millis SourceDefinition Connector SplitDiscovery StartPositions EarliestOrLatest LogBounds "
        "CurrentEnds Ends LossKind Words"
    ),
    ("The reader", "watermark_source.connector"): "RangeReader ReadBatch event_times",
    ("Batch reads", "watermark_source.connector"): "WholeLogs BatchDefinition BatchRangeReader OpenRange",
    ("What only some systems have", "watermark_source.connector"): (
        "EventTimeIndex IndexEntry NewestTime EventTimePreview RowIndex RangeCutter Piece PieceReader OpenTransactions "
        "ProgressSink Snapshots SnapshotSize SnapshotRangeReader SnapshotBatch Chunk Bound Replicas Passage Relocation "
        "RelocatedRangeReader Lineage ReadUpTo Epoch ExpectedLogs LineageRangeReader"
    ),
    ("Announced watermarks", "watermark_source.connector"): (
        "AnnouncementLog AnnouncementsRead LoggedStatement Announcement Removal"
    ),
    ("Errors", "watermark_source.connector"): (
        "WatermarkSourceError OptionError StartMismatchError SchemaError UsageError MissingPackageError OffsetError "
        "SourceError UnreachableError RefusedError UnknownSplitError ResponseTimeoutError CorruptDataError "
        "EventTimeError UnsupportedFormatError DataLossError UnskippableLossError"
    ),
    ("Stores of alignment groups", "watermark_source.group_store.store"): "Store Identity Answer",
    ("Where stores are found", "watermark_source.group_store.database"): "STORES store_of",
    ("Reports in a store", "watermark_source.planning.group"): "GroupMember MemberStatus",
    ("Conformance kit", "watermark_source_testing"): (
        "check_generator Harness Ability Row checks_for Check ALL_CHECKS NonConformanceError"
    ),
}
"""Each section of the page, the module that users import its names from, and the names."""
_WIDTH = 120
_TITLES = ("Args:", "Raises:")
"""Of a docstring's lists of names."""
_RESULTS = ("Returns:", "Yields:")
_HEAD = """\
<!-- Written by docs/generate.py from the docstrings. -->
# API

Every public name, with the module to import it from. Names that are not on this page may change at any time; a change
of a signature here is in the [changelog](../CHANGELOG.md). [Writing a source](writing-a-source.md) shows how the parts
of a connector fit together.
"""


class Member(NamedTuple):
    """A public name, or a member of one, as its source has it."""

    signature: str
    doc: str


class Public(NamedTuple):
    """A public name, and its members in the order of the source."""

    name: str
    own: Member
    members: tuple[Member, ...]


def api_page() -> str:
    """Return the whole page."""
    parts = [_HEAD]
    for (title, module), names in SECTIONS.items():
        parts.append(f"## {title}\n\n`from {module} import …`\n")
        parts += [_entry(public) for public in publics(module, names)]
    return "\n".join(parts)


def signatures() -> str:
    """Return a line for each public name and member: what a caller or a subclass relies on, without docstrings."""
    lines = []
    for (_, module), names in SECTIONS.items():
        for public in publics(module, names):
            lines.append(f"{module}.{public.own.signature}")
            lines += [f"{module}.{public.name}.{member.signature}" for member in public.members]
    return "\n".join(lines) + "\n"


def publics(module: str, names: str) -> Iterator[Public]:
    """Yield the names of a section, which are public in a module."""
    for name in names.split():
        yield _public(_home(module, name), name)


def _home(module: str, name: str) -> str:
    """Return the module that defines a name, which a public module imports from there."""
    if name in _defined(module):
        return module
    imports = (each for each in ast.walk(_parsed(module)) if isinstance(each, ast.ImportFrom))
    source = next(each.module for each in imports if name in {alias.name for alias in each.names})
    assert source is not None
    return _home(source, name)


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(Path(str(import_module(module).__file__)).read_text(encoding="utf-8"))


@cache
def _defined(module: str) -> Mapping[str, tuple[ast.stmt, str]]:
    """Return the statements of a module that define names, each with the text that documents it."""
    return dict(_documented(_parsed(module).body))


def _documented(body: Iterable[ast.stmt]) -> Iterator[tuple[str, tuple[ast.stmt, str]]]:
    statements = [*body, ast.Pass()]
    for statement, after in pairwise(statements):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            yield statement.name, (statement, ast.get_docstring(statement) or "")
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            if isinstance(target, ast.Name):
                yield target.id, (statement, _text(after))


def _text(statement: ast.stmt) -> str:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return inspect.cleandoc(str(statement.value.value)) if is_text else ""  # type: ignore[attr-defined]


def _public(module: str, name: str) -> Public:
    statement, doc = _defined(module)[name]
    own = Member(_signature(statement, name), doc)
    return Public(name, own, tuple(_members(module, statement)) if isinstance(statement, ast.ClassDef) else ())


def _members(module: str, owner: ast.ClassDef) -> Iterator[Member]:
    names = set()
    for name, (statement, doc) in _documented(owner.body):
        if not name.startswith("_") or name in ("__init__", "__call__"):
            names.add(name)
            yield Member(_signature(statement, name), doc)
    # What it has from a base that is not public itself.
    for base in (each.id for each in owner.bases if isinstance(each, ast.Name)):
        found = getattr(import_module(module), base, None)
        if inspect.isclass(found) and found.__module__.startswith("watermark_source") and base not in _public_names():
            statement = _defined(found.__module__)[base][0]
            assert isinstance(statement, ast.ClassDef)
            yield from (each for each in _members(found.__module__, statement) if _name(each) not in names)


def _name(member: Member) -> str:
    return re.split(r"[(:]", member.signature)[0]


@cache
def _public_names() -> frozenset[str]:
    return frozenset(name for names in SECTIONS.values() for name in names.split())


def _signature(statement: ast.stmt, name: str) -> str:
    if isinstance(statement, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, statement.bases))
        by_keyword = any("kw_only=True" in ast.unparse(each) for each in statement.decorator_list)
        return (f"{name}({bases})" if bases else name) + (" by keywords" if by_keyword else "")
    if isinstance(statement, ast.FunctionDef):
        returned = "" if statement.returns is None else f" -> {ast.unparse(statement.returns)}"
        if any(ast.unparse(each) == "property" for each in statement.decorator_list):
            return f"{name}:{returned.removeprefix(' ->')}"
        return f"{name}({ast.unparse(statement.args)}){returned}"
    if isinstance(statement, ast.AnnAssign):
        value = "" if statement.value is None else f" = {ast.unparse(statement.value)}"
        # Tables of options have pages of their own.
        return f"{name}: {ast.unparse(statement.annotation)}{value if len(value) < _WIDTH else ''}"
    return name


def _entry(public: Public) -> str:
    text = [f"### `{public.name}`", ""]
    if public.own.signature != public.name:
        text += ["```text", *textwrap.wrap(public.own.signature, _WIDTH, subsequent_indent="    "), "```", ""]
    text += [_prose(public.own.doc), ""]
    if public.members:
        text += ["| member | meaning |", "|---|---|"]
        text += [f"| `{_cell(member.signature)}` | {_cell(_flat(member.doc))} |" for member in public.members]
        text += [""]
    return "\n".join(text)


def _prose(doc: str) -> str:
    return "\n\n".join(_as_page(block) for block in _blocks(doc))


def _flat(doc: str) -> str:
    """Return a docstring as the text of a cell, which is one line."""
    return "<br>".join(_as_line(block) for block in _blocks(doc))


class _Block(NamedTuple):
    """A paragraph of a docstring, then what it introduces: entries of a list, or code."""

    text: str
    entries: tuple[str, ...] = ()
    code: str = ""


def _blocks(doc: str) -> Iterator[_Block]:
    for part in doc.replace("``", "`").split("\n\n"):
        title, _, body = part.partition("\n")
        lead, *items = re.split(r"(?:^|\n)- ", part)
        if title in _TITLES:
            entries = [each.partition(": ") for each in re.split(r"\n(?=\S)", textwrap.dedent(body))]
            yield _Block(title, tuple(f"`{name}`: {_joined(text)}" for name, _, text in entries))
        elif title in _RESULTS:
            yield _Block(_joined(part))
        elif part.startswith("    "):
            yield _Block("", code=textwrap.dedent(part))
        else:
            yield _Block(re.sub("::$", ":", _joined(lead)), tuple(map(_joined, items)))


def _as_page(block: _Block) -> str:
    items = (_wrapped(f"- {entry}", indent="  ") for entry in block.entries)
    code = f"```python\n{block.code}\n```" if block.code else ""
    return "\n\n".join(part for part in (_wrapped(block.text), "\n".join(items), code) if part)


def _as_line(block: _Block) -> str:
    code = (f"`{line}`" for line in block.code.splitlines())
    return "<br>".join(part for part in (block.text, *(f"- {entry}" for entry in block.entries), *code) if part)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _joined(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
