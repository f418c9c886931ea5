"""The installation: which packages are missing, which Python Spark starts, and what follows an import of Spark."""

from __future__ import annotations

import pkgutil
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from watermark_source.errors import MissingPackageError

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


def need_compiler(package: str, format_name: str) -> None:
    """Check that a connector's package has its machine code, or numba is there to compile it.

    Raises:
        MissingPackageError: neither is there.
    """
    if find_spec("numba") is None:
        # It imports numpy and reads the package's sources.
        from watermark_source.machine_code.built_library import is_there  # noqa: PLC0415

        if not is_there(package):
            need(("numba",), format_name, requirement=f"{_DISTRIBUTION}[compiler]")


def format_packages() -> Iterator[str]:
    """Yield the names of the packages in which Spark looks for formats: connectors, and other projects' formats."""
    return (module.name for module in pkgutil.iter_modules() if module.name.startswith("pyspark_"))


def lacking(what: str, package: str | None, extra: str) -> MissingPackageError:
    """Return the error of a feature whose package, in an extra, is not installed.

    Every feature may be the first to need Spark, which an extra of its own installs.
    """
    extra = "spark" if package is not None and package.partition(".")[0] == "pyspark" else extra
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


# Calls with a module of Spark as soon as the process imports it; this imports none itself.


def after_import(names: Collection[str], call: Callable[[ModuleType], None]) -> None:
    """Call ``call`` with each module of these names: at once if it has been imported, or as soon as it is."""
    later = set(names)
    for module in [sys.modules[name] for name in names if name in sys.modules]:
        later.discard(module.__name__)
        call(module)
    if later:
        sys.meta_path.insert(0, _Finder(later, call))


class _Finder(MetaPathFinder):
    """Finds each module once, where the other finders do, and has it loaded by ``_Loader``."""

    def __init__(self, names: set[str], call: Callable[[ModuleType], None]) -> None:
        self._names = names
        self._call = call

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._names:
            return None
        # The search below comes here again.
        self._names.discard(name)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._call)
        return spec


class _Loader(Loader):
    """Loads a module by its own loader, which the module keeps, and calls ``call`` with it."""

    def __init__(self, own: Loader, call: Callable[[ModuleType], None]) -> None:
        self._own = own
        self._call = call

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._own
        module.__loader__ = self._own
        self._own.exec_module(module)
        self._call(module)
