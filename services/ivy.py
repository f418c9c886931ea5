"""Jars with their dependencies, through the Ivy resolver that pyspark ships.

Ivy's built-in settings reach Maven Central, so no address is written here. ``WATERMARK_SOURCE_IVY_SETTINGS`` names an
Ivy settings file for machines that must use another repository.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from services.cache import cached
from services.errors import ServiceError
from services.java import java_command
from services.local_server import ChildProcess

# Where the installed pyspark lies: a complete Spark, with the Ivy that fetches jars.


def pyspark_home() -> Path:
    """Folder of the installed pyspark: ``SPARK_HOME``.

    Raises:
        ServiceError: it is not installed.
    """
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServiceError("pyspark is not installed, and its jars are needed; run: pip install pyspark")
    return Path(found.origin).parent


SETTINGS_VARIABLE = "WATERMARK_SOURCE_IVY_SETTINGS"
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0
_TIMEOUT_SECONDS = 900.0
_RETRIEVE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_NAMED = 3
"""As many modules are named in a line of progress."""
# The jars alone, from the repository that Ivy's own settings name: a module's description takes as long as its jar.
_WITHOUT_DESCRIPTIONS = (
    '<ivysettings><settings defaultResolver="public"/><resolvers>'
    '<ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers></ivysettings>'
)


@dataclass(frozen=True, slots=True)
class Module:
    """Maven coordinates of one artifact."""

    organisation: str
    name: str
    revision: str
    classifier: str | None = None
    """Of a jar beside the module's own, for example ``tests``."""

    def __str__(self) -> str:
        return f"{self.organisation}:{self.name}:{self.revision}"


def jars(
    entry: str, modules: Sequence[Module], *, size: str | None = None, transitive: bool = True
) -> tuple[Path, ...]:
    """Paths of the jars of ``modules``, by default with all they depend on, from the cache folder ``entry``.

    The first call downloads them and shows its progress on stderr; ``size`` is the expected download, for the user.

    Raises:
        ServiceError: a module does not exist, or the repository cannot be reached.
    """
    folder = cached(entry, lambda empty: retrieve(modules, empty, size=size, transitive=transitive))
    return tuple(sorted(folder.glob("*.jar")))


def retrieve(modules: Sequence[Module], target: Path, *, size: str | None = None, transitive: bool = True) -> None:
    """Download the jars of ``modules`` into ``target``, by default with all they depend on; progress on stderr.

    Raises:
        ServiceError: a module does not exist, or the repository cannot be reached; the message names it.
    """
    work = target / "ivy"
    work.mkdir()
    description = work / "wanted.xml"
    description.write_text(_ivy_file(modules), encoding="utf-8")
    settings = os.environ.get(SETTINGS_VARIABLE)
    if settings is None and not transitive:
        settings = str(work / "settings.xml")
        Path(settings).write_text(_WITHOUT_DESCRIPTIONS, encoding="utf-8")
    command = [
        java_command(),
        "-cp",
        str(pyspark_home() / "jars" / "*"),
        "org.apache.ivy.Main",
        *(["-settings", settings] if settings else []),
        "-cache",
        str(work / "cache"),
        "-ivy",
        str(description),
        "-confs",
        "default",
        *([] if transitive else ["-notransitive"]),
        "-retrieve",
        str(target / _RETRIEVE_PATTERN),
    ]
    wanted = ", ".join(str(module) for module in modules[:_NAMED])
    if len(modules) > _NAMED:
        wanted += f" and {len(modules) - _NAMED} more"
    extent = ("with dependencies, " if transitive else "") + (f"{size}, " if size else "")
    sys.stderr.write(f"downloading {wanted}, {extent}once, into {target.parent}\n")
    try:
        _run(command, wanted, work)
    finally:
        shutil.rmtree(work)  # Ivy's own cache holds every jar a second time


def _ivy_file(modules: Sequence[Module]) -> str:
    wanted = "".join(
        f"<dependency org={quoteattr(module.organisation)} name={quoteattr(module.name)}"
        f' rev={quoteattr(module.revision)} conf="default->default">{_artifact(module)}</dependency>'
        for module in modules
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="watermark-source" module="services"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _artifact(module: Module) -> str:
    if module.classifier is None:
        return ""
    name, classifier = quoteattr(module.name), quoteattr(module.classifier)
    return f'<artifact name={name} type="jar" ext="jar" m:classifier={classifier}/>'


def _run(command: Sequence[str], wanted: str, work: Path) -> None:
    """Run Ivy to its end; its log becomes a few lines of progress, and the text of the error if it fails."""
    log = work / "ivy.log"
    ivy = ChildProcess(command, folder=work, log=log)
    started = time.monotonic()
    reported = started
    try:
        while (code := ivy.exit_code) is None:
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            if now - started > _TIMEOUT_SECONDS:
                raise ServiceError(f"Ivy was still downloading {wanted} after {_TIMEOUT_SECONDS:.0f} s")
            if now - reported >= _PROGRESS_SECONDS:
                text = log.read_text(encoding="utf-8", errors="replace")
                files, found = text.count("[SUCCESSFUL ]"), text.count("\tfound ")
                state = f"{files} of {found} files" if files else f"looking up what to download: {found} modules found"
                sys.stderr.write(f"  {now - started:3.0f} s: {state}\n")
                reported = now
    finally:
        ivy.kill()
    seconds = time.monotonic() - started
    if code != 0:
        raise ServiceError(
            f"Ivy could not fetch {wanted} ({seconds:.0f} s). Its log:\n{_problems(log)}\n"
            f"Check the network (a proxy goes into JAVA_TOOL_OPTIONS as -Dhttps.proxyHost=… -Dhttps.proxyPort=…); "
            f"for another repository set {SETTINGS_VARIABLE} to an Ivy settings file."
        )
    sys.stderr.write(f"  done in {seconds:.0f} s\n")


def _problems(log: Path) -> str:
    """What Ivy names as unresolved, otherwise the end of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line.strip() for line in lines if "not found" in line or "ERROR" in line or "xception" in line]
    return "\n".join(f"  {line}" for line in (named or lines)[-15:])


# Jars that pyspark lacks: its Kafka source and MySQL's driver to compare with, a catalog whose tables take MERGE.


_SPARK = "org.apache.spark"
SPARK_KAFKA = Module(_SPARK, "spark-sql-kafka-0-10_2.13", "4.2.0")
"""Spark's own source and sink for Kafka: the newest release that is published, for Spark 4.2 and 4.3."""
MERGE_CATALOG = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
"""Class of a catalog in the driver's memory, of Spark's own tests."""
# Spark itself carries what else it depends on.
_OF_SPARK_KAFKA = (
    SPARK_KAFKA,
    Module(_SPARK, "spark-token-provider-kafka-0-10_2.13", SPARK_KAFKA.revision),
    Module("org.apache.kafka", "kafka-clients", "3.9.2"),
    Module("org.apache.commons", "commons-pool2", "2.13.1"),
)
_CATALYST_TESTS = Module(_SPARK, "spark-catalyst_2.13", "4.2.0", "tests")
_MYSQL_DRIVER = Module("com.mysql", "mysql-connector-j", "9.4.0")


def mysql_driver_jars() -> tuple[Path, ...]:
    """Jars of MySQL's JDBC driver. Downloaded once.

    Raises:
        ServiceError: the repository cannot be reached.
    """
    return jars(f"mysql-driver-{_MYSQL_DRIVER.revision}", [_MYSQL_DRIVER], size="about 5 MB")


def spark_kafka_jars() -> tuple[Path, ...]:
    """Jars of ``SPARK_KAFKA``. Downloaded once.

    Use: ``builder.config("spark.jars", ",".join(map(str, spark_kafka_jars())))``.

    Raises:
        ServiceError: the repository cannot be reached.
    """
    return jars(f"spark-kafka-source-{SPARK_KAFKA.revision}", _OF_SPARK_KAFKA, transitive=False)


def merge_catalog_jars() -> tuple[Path, ...]:
    """Jar of ``MERGE_CATALOG``, for the class path of the driver from its start. Downloaded once (8 MB).

    Raises:
        ServiceError: the repository cannot be reached.
    """
    return jars(f"spark-merge-catalog-{_CATALYST_TESTS.revision}", [_CATALYST_TESTS], transitive=False)
