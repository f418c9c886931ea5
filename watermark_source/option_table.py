"""Option tables: one row per option defines its parsing, its error text and its entry in the documentation.

The module also checks the installation: which packages are missing, and which Python Spark starts.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from watermark_source import durations
from watermark_source.errors import MissingPackageError, OptionError, UnknownOptionError, shortened

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
    """The default in the documentation, if it is not ``str(default)``."""
    secret: bool = False
    needed: bool = False
    """Whether the option is required."""

    def read(self, text: str) -> Any:
        """Parse the user's text, or raise ``OptionError`` in the project's pattern."""
        try:
            return self.parse(text)
        except OptionError:
            raise
        except ValueError as error:
            detail = f" ({shortened(error)})" if str(error) else ""
            seen = "***" if self.secret else text
            accepted = self.accepted + ("" if self.secret else detail)
            if self.default is None and text.strip().lower() == self.default_text:
                accepted += f"; left out, it is {self.default_text}"
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
    only_in_streams: tuple[str, ...] = ()
    """Rows that a batch read ignores with a warning."""
    is_secret_in_family: Callable[[str], bool] | None = None
    """Whether a name in a family, in lower case, is a secret; ``None``: no family has secrets."""
    where_all_are: str = _WHERE_ALL_ARE

    def parse(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Return every option's value by its name in the table, defaults included. Names ignore case.

        Raises:
            UnknownOptionError: a name is unknown; the message names the nearest option.
            OptionError: a value is invalid, or a required option is missing.
        """
        of_table, given = is_of_table(given), options_of_table(given)
        by_key = {option.name.lower(): option for option in self.options}
        elsewhere = {_letters(name): name for name in self.not_needed}
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


def unknown_option(name: str, names: Iterable[str], where_all_are: str = _WHERE_ALL_ARE) -> UnknownOptionError:
    """Return the error for a name that is not in ``names``, with the nearest name, or where all names are listed."""
    spelling = {known.lower(): known for known in names}
    near = difflib.get_close_matches(name.lower(), spelling, n=1)
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
        raise ValueError(f'"{name}" is no host name')
    try:
        # Network calls encode a name so, and raise another error for an empty or a long part.
        name.encode("idna")
    except UnicodeError as error:
        raise ValueError(f'"{name}" is no host name ({error})') from None
    return name


def non_empty(text: str) -> str:
    """Parse a text that is not blank."""
    stripped = text.strip()
    if not stripped:
        raise ValueError("is empty")
    return stripped


# The installation: packages, without importing them, and the Python that Spark starts.


_DISTRIBUTION = "watermark-source"
_CHOSEN = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_STARTED_BY_SPARK = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_PORT")
"""Set in Spark's Python workers, and in programs that ``spark-submit`` started with its Python."""
_CHOICES_OF_SPARK = ("spark.pyspark.python", "spark.pyspark.driver.python", "spark.executorEnv.PYSPARK_PYTHON")
_PROPERTIES_FILE = "--properties-file"
_SETTING = re.compile(r"\s*([^\s=:#!]+)\s*[\s=:]\s*(.*?)\s*")
"""A line of Java's properties, as ``spark-defaults.conf`` has them."""


def need(packages: Iterable[str], format_name: str, *, requirement: str) -> None:
    """Check that the packages of a format are installed: most are imported later, in other processes.

    Args:
        packages: the names that the format imports.
        format_name: the format.
        requirement: what pip installs them by, such as ``my-connector[all]``.

    Raises:
        MissingPackageError: one of the packages is not installed.
    """
    missing = next((name for name in packages if find_spec(name) is None), None)
    if missing is not None:
        project, _, extra = requirement.rstrip("]").partition("[")
        command = to_install(extra) if project == _DISTRIBUTION else f"pip install '{requirement or missing}'"
        raise _missing(f'format("{format_name}")', missing, command)


def lacking(what: str, package: str | None, extra: str) -> MissingPackageError:
    """Return the error of a feature whose package, in an extra, is not installed."""
    return _missing(what, package, to_install(extra))


def _missing(what: str, package: str | None, command: str) -> MissingPackageError:
    return MissingPackageError(
        f"{what} needs the package {package}, which is not installed where the driver runs; install it with: {command}",
        name=package,
    )


def to_install(extra: str) -> str:
    """Return the command that installs an extra's packages. It works wherever the project itself was installed from."""
    # The import takes 30 ms, and only errors need it.
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415

    try:
        listed = [requirement.partition(";") for requirement in requires(_DISTRIBUTION) or ()]
    except PackageNotFoundError:
        listed = []
    wanted = [name.strip() for name, _, marker in listed if f"extra == '{extra}'" in marker.replace('"', "'")]
    own = [name for name in wanted if not name.startswith(_DISTRIBUTION)]
    if not own:
        return f"pip install '.[{extra}]' in a checkout of the project"
    return f"pip install {' '.join(map(repr, own))}"


def name_python(environment: MutableMapping[str, str], executable: str) -> None:
    """Set ``PYSPARK_PYTHON`` to this interpreter where Spark would start another one, which lacks the project.

    Spark looks for ``python3`` on the ``PATH``: the environment's own only where it is activated. Nothing is set where
    ``PYSPARK_PYTHON``, ``PYSPARK_DRIVER_PYTHON`` or a setting of Spark names a Python (``spark.pyspark.python``,
    ``spark.executorEnv.PYSPARK_PYTHON``), in a program that ``spark-submit`` started, in Spark's own workers, and where
    Spark's settings name a master that is not local, or a Spark Connect server: executors on other machines need not
    have this path. Settings are those of ``PYSPARK_SUBMIT_ARGS``, ``spark-defaults.conf``, ``MASTER`` and
    ``SPARK_REMOTE``; those that the program makes later are not known yet.

    Warns where a session of this program is older: its Java process keeps the environment that it began with.
    """
    if not executable or any(name in environment for name in (*_CHOSEN, *_STARTED_BY_SPARK)):
        return
    if _is_on_path(executable, environment) or not _is_for_import_to_choose(environment):
        return
    environment["PYSPARK_PYTHON"] = executable
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    if getattr(context, "_gateway", None) is not None:
        warnings.warn(
            'Spark was started before watermark_source was imported, and starts the Python "python3", in which the '
            "project is not installed: import watermark_source before SparkSession.builder…getOrCreate(), or set "
            f"PYSPARK_PYTHON={executable}",
            stacklevel=3,
        )


def _is_on_path(executable: str, environment: Mapping[str, str]) -> bool:
    import shutil  # noqa: PLC0415 - needed once, in the user's program alone

    first = shutil.which("python3", path=environment.get("PATH"))
    # Paths are not resolved: the Python of a virtual environment is a link to the one that created it.
    return first is not None and Path(first).absolute().parent == Path(executable).absolute().parent


def _is_for_import_to_choose(environment: Mapping[str, str]) -> bool:
    """Return whether Spark runs on this machine alone, by all its settings that are known, and they name no Python."""
    try:
        submitted = _submitted(shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "")))
    except ValueError:
        # A quote without its other one: Spark refuses it, with its own words.
        return False
    settings = {**_settings_in_file(_settings_file(environment, submitted)), **submitted}
    if any(name in settings for name in _CHOICES_OF_SPARK):
        return False
    if environment.get("SPARK_REMOTE") or "spark.remote" in settings:
        return False
    return settings.get("spark.master", environment.get("MASTER", "local")).startswith("local")


def _submitted(arguments: Sequence[str]) -> Mapping[str, str]:
    """Return the settings that arguments of ``spark-submit`` make, also those that have an argument of their own."""
    settings: dict[str, str] = {}
    own: dict[str, str] = {}
    names = {"--master": "spark.master", "--remote": "spark.remote", _PROPERTIES_FILE: _PROPERTIES_FILE}
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if not equals or not name.startswith("--"):
            name, value = argument, next(iter(arguments[at + 1 : at + 2]), "")
        if name in names:
            own[names[name]] = value
        elif name in ("--conf", "-c"):
            key, _, text = value.partition("=")
            settings[key.strip()] = text.strip()
    return {**settings, **own}


def _settings_file(environment: Mapping[str, str], submitted: Mapping[str, str]) -> Path | None:
    if _PROPERTIES_FILE in submitted:
        return Path(submitted[_PROPERTIES_FILE])
    if folder := environment.get("SPARK_CONF_DIR"):
        return Path(folder, "spark-defaults.conf")
    home = environment.get("SPARK_HOME")
    if home is None:
        installed = find_spec("pyspark")
        home = next(iter(installed.submodule_search_locations or ()), None) if installed is not None else None
    return None if home is None else Path(home, "conf", "spark-defaults.conf")


def _settings_in_file(file: Path | None) -> Mapping[str, str]:
    if file is None:
        return {}
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _SETTING.fullmatch(line)) is not None}
