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
from pathlib import Path
from xml.sax.saxutils import quoteattr

from services.cache import cached
from services.errors import ServiceError
from services.java import java_command
from services.process import ChildProcess
from services.pyspark_home import pyspark_home

SETTINGS_VARIABLE = "WATERMARK_SOURCE_IVY_SETTINGS"
_POLL_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0
_TIMEOUT_SECONDS = 900.0
_RETRIEVE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


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


def jars(entry: str, modules: Sequence[Module], *, size: str | None = None) -> tuple[Path, ...]:
    """Paths of the jars of ``modules`` and of all they depend on, from the cache folder ``entry``.

    The first call downloads them and shows its progress on stderr; ``size`` tells the user how much to expect.

    Raises:
        ServiceError: a module does not exist, or the repository cannot be reached.
    """
    folder = cached(entry, lambda empty: retrieve(modules, empty, size=size))
    return tuple(sorted(folder.glob("*.jar")))


def retrieve(modules: Sequence[Module], target: Path, *, size: str | None = None, transitive: bool = True) -> None:
    """Download the jars of ``modules`` into ``target``, by default with all they depend on; progress on stderr.

    Raises:
        ServiceError: a module does not exist, or the repository cannot be reached; the message tells which.
    """
    work = target / "ivy"
    work.mkdir()
    description = work / "wanted.xml"
    description.write_text(_ivy_file(modules), encoding="utf-8")
    settings = os.environ.get(SETTINGS_VARIABLE)
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
    wanted = ", ".join(str(module) for module in modules)
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
    told = started
    try:
        while (code := ivy.exit_code) is None:
            time.sleep(_POLL_SECONDS)
            now = time.monotonic()
            if now - started > _TIMEOUT_SECONDS:
                raise ServiceError(f"Ivy was still downloading {wanted} after {_TIMEOUT_SECONDS:.0f} s")
            if now - told >= _PROGRESS_SECONDS:
                files = log.read_text(encoding="utf-8", errors="replace").count("[SUCCESSFUL ]")
                state = f"{files} files" if files else "looking up dependencies"
                sys.stderr.write(f"  {now - started:3.0f} s: {state}\n")
                told = now
    finally:
        ivy.kill()
    seconds = time.monotonic() - started
    if code != 0:
        raise ServiceError(
            f"Ivy could not fetch {wanted} ({seconds:.0f} s). It said:\n{_problems(log)}\n"
            f"Check the network (a proxy goes into JAVA_TOOL_OPTIONS as -Dhttps.proxyHost=… -Dhttps.proxyPort=…); "
            f"for another repository set {SETTINGS_VARIABLE} to an Ivy settings file."
        )
    sys.stderr.write(f"  done in {seconds:.0f} s\n")


def _problems(log: Path) -> str:
    """What Ivy names as unresolved, otherwise the end of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    named = [line.strip() for line in lines if "not found" in line or "ERROR" in line or "xception" in line]
    return "\n".join(f"  {line}" for line in (named or lines)[-15:])
