"""Option tables: one row per option defines its parsing, its error text and its entry in the documentation."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from watermark_source import durations
from watermark_source.clock import Clock
from watermark_source.errors import OptionError, UnknownOptionError, reason_of

_log = logging.getLogger(__name__)

# Spark adds these to the options of every reader.
_SPARK_OWN = frozenset({"path", "paths"})
_PROVIDER = "provider"
"""Spark adds it to the options of a table (``CREATE TABLE ... USING``), beside the table's own properties."""
_TABLE_PROPERTIES = frozenset(
    {_PROVIDER, "serialization.format", "owner", "comment", "location", "external", "is_managed_location", "collation"}
)
_OF_EACH_TABLE = frozenset({"owner", "serialization.format"})
_OPTION_OF_TABLE = "option."
"""Prefix of the names under which Spark passes a table's options a second time."""
_MOST = 2**63 - 1
_WHERE_ALL_ARE = "docs/options.md lists all options"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_AGO = re.compile(r"(.+)\s+ago", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of the table."""

    name: str
    parse: Callable[[str], Any]
    """Returns the value of the user's text; raises ``ValueError`` for an invalid text."""
    accepted: str
    """The accepted values, as a phrase that continues "option x = y: "."""
    example: str
    doc: str
    default: Any = None
    default_text: str | None = None
    """The default in the documentation, if it is neither ``str(default)`` nor none."""
    secret: bool = False
    needed: bool = False
    """Whether the option is required."""

    @property
    def shown_default(self) -> str:
        """The default in words."""
        return self.default_text or ("none" if self.default in (None, "", ()) else str(self.default))

    def read(self, text: str) -> Any:
        """Parse the user's text, or raise ``OptionError`` in the project's pattern."""
        try:
            return self.parse(text)
        except OptionError:
            raise
        except ValueError as error:
            detail = f" ({reason_of(error)})" if str(error) else ""
            seen = "***" if self.secret else text
            accepted = self.accepted + ("" if self.secret else detail)
            if self.default is None and text.strip().lower() == self.shown_default:
                accepted += f"; left out, it is {self.shown_default}"
            raise OptionError(self.name, seen, accepted, example=self.example) from None


def one_of(
    *,
    name: str,
    choices: Iterable[str],
    example: str,
    doc: str,
    default: str | None = None,
    default_text: str | None = None,
    kind: Callable[[str], Any] = str,
) -> Option:
    """Return a row that accepts one of the words, in any case, and converts it to ``kind``."""
    words = tuple(choices)
    parse = word(words)
    return Option(
        name=name,
        parse=lambda text: kind(parse(text)),
        accepted=f"must be {', '.join(words[:-1])} or {words[-1]}",
        example=example,
        doc=doc,
        default=None if default is None else kind(default),
        default_text=default_text or default,
    )


def true_or_false(*, name: str, default: bool, example: str, doc: str) -> Option:
    """Return a row that accepts ``true`` or ``false``."""
    return Option(
        name=name,
        parse=boolean,
        accepted="must be true or false",
        example=example,
        doc=doc,
        default=default,
        default_text="true" if default else "false",
    )


def at_least_one(
    *, name: str, example: str, doc: str, default: int | None = None, default_text: str | None = None
) -> Option:
    """Return a row that accepts a whole number of at least 1."""
    return Option(
        name=name,
        parse=positive_integer,
        accepted="must be a whole number of at least 1",
        example=example,
        doc=doc,
        default=default,
        default_text=default_text,
    )


def a_duration(
    *, name: str, example: str, doc: str, default: str | None = None, minimum: str = "0 ms", maximum: str | None = None
) -> Option:
    """Return a row that accepts a duration, as milliseconds; all of it is given as a user writes it.

    Without a default the option is off.
    """
    lowest = durations.parse_duration(minimum)
    parse = duration(minimum=lowest, maximum=None if maximum is None else durations.parse_duration(maximum))
    at_least = ", greater than zero" if lowest == 1 else f", at least {minimum}" if lowest else ""
    limits = f", {minimum} to {maximum}" if maximum else at_least
    return Option(
        name=name,
        parse=parse,
        accepted=f"must be {durations.ACCEPTED}{limits}",
        example=example,
        doc=doc,
        default=None if default is None else parse(default),
        default_text=default or "off",
    )


def point_in_time(*, name: str, kind: Callable[[int], Any], doc: str) -> Option:
    """Return a row that accepts a time, and converts its milliseconds since the epoch to ``kind``."""
    return Option(
        name=name,
        parse=lambda text: kind(time_millis(text)),
        accepted="must be milliseconds since the epoch, a time in ISO 8601 such as 2025-01-01T00:00:00Z, or how long "
        "ago, such as 10 minutes ago",
        example="10 minutes ago",
        doc=doc,
    )


@dataclass(frozen=True, slots=True)
class Renamed:
    """An option of earlier versions: the next release refuses it, and this one warns with the line to write."""

    old: str
    new: str | None
    """The option to write; ``None``: there is nothing to write."""
    values: Mapping[str, str | None] = field(default_factory=dict)
    """The new option's texts for the old one's, in any case; ``None``: its default. Others are unchanged."""
    why: str = ""
    """Why there is nothing to write."""
    prefix: str = ""
    """What the new option's text has in front of the old one's."""
    joined: str | None = None
    """What stands between the texts of several old options that are parts of one new option; ``None``: of one alone."""

    def text(self, text: str) -> str | None:
        """Return the text of the new option; ``None`` where it is to be left out."""
        new_texts = {old.lower(): new for old, new in self.values.items()}
        return None if self.new is None else new_texts.get(text.strip().lower(), f"{self.prefix}{text}")


@dataclass(frozen=True, slots=True)
class OptionTable:
    """All options of one source. ``prefixes`` name families that are parsed elsewhere, such as ``kafka.``."""

    options: tuple[Option, ...]
    prefixes: tuple[str, ...] = ()
    family_names: tuple[str, ...] = ()
    """Full names in those families, to suggest for a name without its prefix."""
    not_needed: Mapping[str, str] = field(default_factory=dict)
    """Options of other systems, with the reason why there is nothing to set here. Names are compared by their letters
    and digits alone, because other systems write ``server-id`` or ``server.id``."""
    no_meaning: Mapping[str, str] = field(default_factory=dict)
    """Rows of the table that this source refuses, and the reason: it shares them with other sources."""
    without_effect: Mapping[str, str] = field(default_factory=dict)
    """Options of other readers that are accepted with a warning, and the reason why they change nothing."""
    only_in_streams: tuple[str, ...] = ()
    """Rows that a batch read ignores with a warning."""
    is_secret_in_family: Callable[[str], bool] | None = None
    """Whether a name in a family, in lower case, is a secret; ``None``: no family has secrets."""
    where_all_are: str = _WHERE_ALL_ARE
    renamed: tuple[Renamed, ...] = ()
    """Options of earlier versions."""

    def current(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return the user's options under the names that they have now; each that had another is logged once.

        Raises:
            OptionError: an option is given by two names.
        """
        names = {name.lower(): name for name in given}
        found, keys = dict(given), list[tuple[Renamed, str | None]]()
        for row, prefix in product(self.renamed, ("", _OPTION_OF_TABLE)):
            if (name := f"{prefix}{row.old}".lower()) not in names:
                continue
            text, key = str(found.pop(names[name])), f"{prefix}{row.new}"
            new, known = row.text(text), given_text(found, key)
            keys.append((row, None if new is None else key))
            if new is None:
                continue
            if known is not None and row.joined is not None and given_text(given, key) is None:
                new = f"{known}{row.joined}{new}"
            elif known not in (None, new):
                seen = "***" if self.is_secret(str(row.new)) else text
                raise OptionError(row.old, seen, f"is {row.new} now, which is given too", example="leave it out")
            found[key] = new
        for row, written in keys:
            shown = f"{row.prefix}***" if self.is_secret(str(row.new)) else found.get(written or "")
            line = "leave it out" if written is None else f'write .option("{row.new}", "{shown}")'
            _warn_once(f"{row.old} is an option of earlier versions: {line}{row.why and f'; {row.why}'}")
        return found

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return every option's value by its name in the table, defaults included. Names ignore case.

        Raises:
            UnknownOptionError: a name is unknown; the message names the nearest option.
            OptionError: a value is invalid, or a required option is missing.
        """
        of_table, given = is_of_table(given), options_of_table(given)
        by_key = {option.name.lower(): option for option in self.options}
        elsewhere = {_letters(name): name for name in self.not_needed}
        without_effect = {name.lower(): name for name in self.without_effect}
        values = {option.name: option.default for option in self.options}
        for name, text in given.items():
            key = name.lower()
            if key in by_key:
                option = by_key[key]
                if (why := self.no_meaning.get(option.name)) is not None:
                    raise OptionError(option.name, str(text), f"has no meaning here: {why}", example="leave it out")
                values[option.name] = option.read(str(text))
            elif (foreign := elsewhere.get(_letters(name))) is not None:
                reason = f"is not needed: {self.not_needed[foreign]}"
                raise OptionError(foreign, str(text), reason, example="leave it out")
            elif (idle := without_effect.get(key)) is not None:
                _warn_once(f"{idle} has no effect: {self.without_effect[idle]}")
            elif key not in _SPARK_OWN and not key.startswith(self.prefixes):
                where = f"a table's TBLPROPERTIES are read as its OPTIONS; {self.where_all_are}"
                raise unknown_option(name, (*values, *self.family_names), where if of_table else self.where_all_are)
        for option in self.options:
            if option.needed and values[option.name] is None:
                raise OptionError(option.name, None, "is needed", example=option.example)
        return values

    def is_secret(self, name: str) -> bool:
        """Return whether the option of this name, in any case, holds a secret."""
        key = name.lower()
        if any(option.secret and option.name.lower() == key for option in self.options):
            return True
        return self.is_secret_in_family is not None and key.startswith(self.prefixes) and self.is_secret_in_family(key)

    def ignored_in_batch(self, given: Iterable[str]) -> list[str]:
        """Return which of the given options a batch read ignores, in the table's spelling."""
        named = {name.lower() for name in given}
        return [name for name in self.only_in_streams if name.lower() in named]


@cache
def _warn_once(text: str) -> None:
    _log.warning("%s", text)


def unknown_option(name: str, names: Iterable[str], where_all_are: str = _WHERE_ALL_ARE) -> UnknownOptionError:
    """Return the error for a name that is not in ``names``, with the nearest name, or where all names are listed."""
    spelling, key = {known.lower(): known for known in names}, name.lower()
    # A beginning, or a part between dots, is of a name that the user did not know to its end.
    parts = [known for known in spelling if len(key) > 3 and (known.startswith(key) or key in known.split("."))]
    near = parts[:1] or difflib.get_close_matches(key, spelling, n=1)
    hint = f"; the nearest is {spelling[near[0]]}" if near else f", and no similar one; {where_all_are}"
    return UnknownOptionError(name, None, f"there is no such option{hint}")


def is_of_table(given: Mapping[str, str]) -> bool:
    """Return whether Spark handed over the properties of a table (``CREATE TABLE ... USING``).

    It gives each table's provider, and its owner or, from a catalog of Hive's, the format of its rows.
    """
    names = {name.lower() for name in given}
    return _PROVIDER in names and not names.isdisjoint(_OF_EACH_TABLE)


def options_of_table(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's options, without what Spark adds to those of a table; elsewhere such names are unknown.

    Spark gives each of a table's OPTIONS twice, and what is among TBLPROPERTIES once. Those are options, too: one that
    is known counts wherever it stands, and one that is not is refused.
    """
    if not is_of_table(given):
        return given
    names = {name.lower() for name in given}

    def is_the_users(name: str) -> bool:
        if name.startswith(_OPTION_OF_TABLE):
            return name[len(_OPTION_OF_TABLE) :] not in names
        return name not in _TABLE_PROPERTIES or f"{_OPTION_OF_TABLE}{name}" in names

    return {name: text for name, text in given.items() if is_the_users(name.lower())}


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def given_text(given: Mapping[str, str], name: str) -> str | None:
    """Return the user's text for an option, whose name ignores case."""
    return next((str(v) for k, v in given.items() if k.lower() == name.lower()), None)


def boolean(text: str) -> bool:
    """Parse ``true`` or ``false``, in any case."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError
    return lowered == "true"


def integer(text: str, *, minimum: int, maximum: int = _MOST) -> int:
    """Parse a whole number from ``minimum`` to ``maximum``, in ASCII digits."""
    if _INTEGER.fullmatch(text.strip()) is None:
        raise ValueError("not a whole number")
    value = int(text)
    if value < minimum:
        raise ValueError(f"must be at least {minimum}")
    if value > maximum:
        raise ValueError(f"must be at most {maximum}")
    return value


def time_millis(text: str) -> int:
    """Parse milliseconds since the epoch, ISO 8601 (UTC without a zone), or a duration ago by this machine's clock."""
    text = text.strip()
    if _INTEGER.fullmatch(text):
        return integer(text, minimum=0)
    if (before := _AGO.fullmatch(text)) is not None:
        return max(0, Clock().wall() - durations.parse_duration(before[1]))
    try:
        millis = durations.parse_time(text)
    except ValueError:
        raise ValueError from None
    if millis < 0:
        raise ValueError("before the epoch")
    return millis


def positive_integer(text: str) -> int:
    """Parse a whole number of at least 1."""
    return integer(text, minimum=1)


def ports(text: str) -> range:
    """Parse a port, or a range of ports with its first and last, such as ``40000-40015``."""
    first, dash, last = text.partition("-")
    lowest = integer(first, minimum=1, maximum=65_535)
    highest = integer(last, minimum=lowest, maximum=65_535) if dash else lowest
    return range(lowest, highest + 1)


def duration(*, minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return a parser of durations of at least ``minimum`` and at most ``maximum`` milliseconds."""

    def parse(text: str) -> int:
        value = durations.parse_duration(text)
        if value < minimum:
            raise ValueError("must be greater than zero" if minimum == 1 else f"must be at least {minimum} ms")
        if maximum is not None and value > maximum:
            raise ValueError(f"must be at most {maximum} ms")
        return value

    return parse


def word(choices: Iterable[str]) -> Callable[[str], str]:
    """Return a parser of one of the choices. It ignores case, and returns the word as in ``choices``."""
    spelling = {choice.lower(): choice for choice in choices}

    def parse(text: str) -> str:
        try:
            return spelling[text.strip().lower()]
        except KeyError:
            raise ValueError from None

    return parse


def host_name(text: str) -> str:
    """Parse a host name or an address."""
    name = non_empty(text)
    if re.search(r"[\s/@,]", name):
        raise ValueError(f'"{name}" is not a host name')
    try:
        # Network calls encode a name so, and raise another error for an empty or a long part.
        name.encode("idna")
    except UnicodeError as error:
        raise ValueError(f'"{name}" is not a host name ({error})') from None
    return name


def non_empty(text: str) -> str:
    """Parse a text that is not blank."""
    stripped = text.strip()
    if not stripped:
        raise ValueError("is empty")
    return stripped
