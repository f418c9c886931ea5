"""A headless Chromium for tests of pages: the one on PATH, or that of Debian's packages in a folder of the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from services.cache import first_that_works
from services.debian import DebianRoot, debian_root
from services.errors import ServiceError
from services.local_server import run_to_end

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_ON_PATH = ("chromium", "chromium-browser", "google-chrome")
_ENTRY = "debian-chromium"
_PACKAGES = ("chromium-headless-shell", "patchelf", "fonts-dejavu-core")
_UNUSED = ("mesa-libgallium",)
"""A third of the download, for graphics cards: without one nothing of it is loaded."""
_SIZE = "about 130 MB"
_PROGRAM = "usr/lib/chromium/chromium-headless-shell"
_FONTS = "fonts.conf"
_SECONDS, _START_SECONDS = 60.0, 200.0


@dataclass(frozen=True, slots=True)
class BrowserProgram:
    """A program that speaks the DevTools protocol, and what it needs beside this process's environment."""

    executable: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Start it without a window.

        Raises:
            ServiceError: it does not run; a snap's placeholder, for example.
        """
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        run_to_end(
            ["/usr/bin/env", *variables, str(self.executable), "--version"],
            folder=Path("/"),
            seconds=_SECONDS,
            what=f"{self.executable} --version",
        )

    @contextmanager
    def started(self) -> Iterator[Browser]:
        """Start it without a window until the end of the block, or of this process."""
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=self.executable, env={**os.environ, **self.environment}, timeout=1_000 * _START_SECONDS
            )
            yield browser
            browser.close()


def usable_browser() -> tuple[BrowserProgram, Sequence[str]]:
    """Return a browser as ``first_that_works`` does; the first call may download it."""
    return first_that_works(_ways(), BrowserProgram.check, wanted="Chromium")


def _ways() -> Iterator[Callable[[], BrowserProgram]]:
    for name in _ON_PATH:
        yield partial(_on_path, name)
    yield browser_of_debian


def _on_path(name: str) -> BrowserProgram:
    found = shutil.which(name)
    if found is None:
        raise ServiceError(f"no {name} on PATH")
    return BrowserProgram(Path(found))


def browser_of_debian() -> BrowserProgram:
    """Return that of Debian's packages; the first call downloads it.

    Raises:
        ServiceError: as ``debian_root``, or its loader could not be set.
    """
    root = debian_root(_ENTRY, _PACKAGES, size=_SIZE, without=_UNUSED, finish=_finish)
    # Where a library of sound has its own.
    libraries = f"{root.libraries}:{root.loader.parent / 'pulseaudio'}"
    environment = {"LD_LIBRARY_PATH": libraries, "FONTCONFIG_FILE": str(root.path / _FONTS)}
    return BrowserProgram(root.path / _PROGRAM, environment)


def _finish(root: DebianRoot, final: Path) -> None:
    """Set the program's loader: it starts itself again for each page, so that it cannot be started through one."""
    loader = final / root.loader.relative_to(root.path)
    patch = [*root.command("usr/bin/patchelf"), "--set-interpreter", str(loader), str(root.path / _PROGRAM)]
    run_to_end(patch, folder=root.path, seconds=_SECONDS, what="setting the loader of Chromium")
    fonts = f"<dir>{final / 'usr/share/fonts'}</dir><cachedir>{final / 'font-cache'}</cachedir>"
    text = f'<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>{fonts}</fontconfig>\n'
    (root.path / _FONTS).write_text(text, encoding="utf-8")
