"""What the project finds installed: packages, without importing them, and the Python that Spark starts."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

from watermark_source.errors import MissingPackageError

_DISTRIBUTION = "watermark-source"
_CHOSEN = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_STARTED_BY_SPARK = ("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER_FACTORY_SECRET", "PYSPARK_GATEWAY_PORT")
"""Set in Spark's Python workers, and in programs that ``spark-submit`` started with a Python it chose."""
_CHOICE_OF_SPARK = "spark.pyspark.python"


def need(packages: Iterable[str], format_name: str, *, extra: str) -> None:
    """Refuse at once what an installation lacks: most of what a format needs is imported later, in other processes.

    Args:
        packages: what the format imports.
        format_name: the format.
        extra: the extra that has all of it.

    Raises:
        MissingPackageError: one of the packages is not there.
    """
    missing = next((name for name in packages if find_spec(name) is None), None)
    if missing is not None:
        raise lacking(f'format("{format_name}")', missing, extra)


def lacking(what: str, package: str | None, extra: str) -> MissingPackageError:
    """Return the error of something that needs a package of an extra, which is not installed."""
    return MissingPackageError(
        f"{what} needs the package {package}, which is not installed where the driver runs; install it with: "
        f"{to_install(extra)}",
        name=package,
    )


def to_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, from any index, wherever the project came from."""
    # Takes 30 ms, and is needed for errors alone.
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415

    try:
        listed = [each.partition(";") for each in requires(_DISTRIBUTION) or ()]
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
    ``PYSPARK_PYTHON``, ``PYSPARK_DRIVER_PYTHON`` or ``spark.pyspark.python`` (``spark-defaults.conf``,
    ``PYSPARK_SUBMIT_ARGS``) names a Python, in a program that ``spark-submit`` started, and in Spark's own workers.
    Warns where a session of this program is older: its Java process keeps the environment that it began with.
    """
    if not executable or any(name in environment for name in (*_CHOSEN, *_STARTED_BY_SPARK)):
        return
    if _is_on_path(executable, environment) or _is_chosen_by_spark(environment):
        return
    environment["PYSPARK_PYTHON"] = executable
    context = getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)
    if getattr(context, "_gateway", None) is not None:
        warnings.warn(
            'Spark was started before watermark_source was imported, and looks for Python at "python3", where the '
            "project is not installed: import watermark_source before SparkSession.builder…getOrCreate(), or set "
            f"PYSPARK_PYTHON={executable}",
            stacklevel=3,
        )


def _is_on_path(executable: str, environment: Mapping[str, str]) -> bool:
    import shutil  # noqa: PLC0415 - needed once, in the user's program alone

    found = shutil.which("python3", path=environment.get("PATH"))
    # Not resolved: the Python of a virtual environment is a link to the one it was made with.
    return found is not None and Path(found).absolute().parent == Path(executable).absolute().parent


def _is_chosen_by_spark(environment: Mapping[str, str]) -> bool:
    if _CHOICE_OF_SPARK in environment.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (None if home is None else f"{home}/conf")
    if folder is None:
        return False
    try:
        lines = (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.split("=")[0].split()[:1] == [_CHOICE_OF_SPARK] for line in lines)
