"""Programs of Debian's packages in a folder, without root's rights and without touching the system's packages.

apt-get works on a state of its own and takes the packages from the mirror that the machine's own sources name, so no
address is written here. They come from Debian's unstable suite whatever the machine runs, or from the suite that has
the release that is wanted: with their own C library, through whose loader the programs are started.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.cache import cache_folder, cached
from services.errors import ServiceError
from services.local_server import run_to_end

UNSTABLE = "sid"
_UPDATE_SECONDS = 300.0
_DOWNLOAD_SECONDS = 900.0
_UNPACK_SECONDS = 120.0
_KEYRINGS = ("/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp")


@dataclass(frozen=True, slots=True)
class DebianRoot:
    """A folder with the extracted files of packages and of all that they need."""

    path: Path

    def command(self, program: str) -> tuple[str, ...]:
        """How to run ``program`` (a path below the folder): by the folder's loader, with the folder's libraries.

        Raises:
            ServiceError: the folder holds no such program or no loader.
        """
        executable = self.path / program
        if not executable.is_file():
            raise ServiceError(f"{self.path} lacks {program}; remove that folder and try again")
        return (str(self.loader), "--library-path", self.libraries, str(executable))

    @property
    def loader(self) -> Path:
        """The program that loads the folder's programs with their C library.

        Raises:
            ServiceError: there is none.
        """
        # Suites before trixie have it in /lib, which systems make the same folder as /usr/lib.
        for folder in ("usr/lib", "lib"):
            if loaders := sorted(self.path.glob(f"{folder}/*-linux-gnu*/ld-linux*.so.*")):
                return loaders[0]
        raise ServiceError(f"{self.path} lacks a loader; remove that folder and try again")

    @property
    def libraries(self) -> str:
        """Folders of the folder's libraries, as ``LD_LIBRARY_PATH`` takes them."""
        machine = self.loader.parent.name
        return ":".join(str(self.path / folder / machine) for folder in ("usr/lib", "lib"))


def debian_root(
    entry: str,
    packages: Sequence[str],
    *,
    size: str,
    suite: str = UNSTABLE,
    without: Sequence[str] = (),
    finish: Callable[[DebianRoot, Path], None] = lambda root, final: None,
) -> DebianRoot:
    """The extracted ``packages``, from the cache folder ``entry``; the first call downloads them, about ``size``.

    ``without``: packages that they name as needed, and that are left out with all that these need in turn. ``finish``
    changes the extracted files; its second argument is the folder that they are in afterwards.

    Raises:
        ServiceError: not a machine with apt, no Debian mirror among its sources, or the download failed.
    """

    def fill(folder: Path) -> None:
        _fill(folder, packages, without, size, suite)
        finish(DebianRoot(folder), cache_folder() / entry)

    return DebianRoot(cached(entry, fill))


def _fill(folder: Path, packages: Sequence[str], without: Sequence[str], size: str, suite: str) -> None:
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise ServiceError(f"{tool} is not there, so Debian's packages {', '.join(packages)} cannot be had")
    sys.stderr.write(f"downloading Debian's {', '.join(packages)} and what they need, {size}, once, into {folder}\n")
    work = folder / "apt"
    apt = _own_apt(work, _mirror(), suite)
    run_to_end([*apt, "update"], folder=work, seconds=_UPDATE_SECONDS, what="apt-get update")
    if without:
        _count_as_installed(without, work, apt)
    run_to_end(
        [*apt, "install", "--yes", "--download-only", *packages],
        folder=work,
        seconds=_DOWNLOAD_SECONDS,
        what=f"the download of {', '.join(packages)} by apt-get",
    )
    for package in sorted((work / "cache" / "archives").glob("*.deb")):
        run_to_end(
            ["dpkg-deb", "--extract", str(package), str(folder)],
            folder=work,
            seconds=_UNPACK_SECONDS,
            what=f"extracting {package.name}",
        )
    shutil.rmtree(work)


def _mirror() -> str:
    """The address from which this machine has Debian's main archive."""
    answer = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)\t$(LABEL)\t$(SITE)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    targets = [line.split("\t") for line in answer.stdout.splitlines()]
    # The label differs from that of security updates, which has no unstable suite. Before the machine's
    # first apt-get update both are empty, and the path decides.
    for origin, label, site in targets:
        if (origin, label) == ("Debian", "Debian") or (not origin and site.rstrip("/").endswith("/debian")):
            return site
    raise ServiceError("apt has no mirror of Debian's archive among this machine's sources (apt-get indextargets)")


def _count_as_installed(packages: Sequence[str], work: Path, apt: Sequence[str]) -> None:
    """Write into apt's state that packages are there, in the versions that others need."""
    found = subprocess.run(
        ["apt-cache", *apt[1:], "show", "--no-all-versions", *packages],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    kept = ("Package:", "Version:", "Architecture:", "Multi-Arch:", "Provides:")
    for stanza in found.stdout.split("\n\n"):
        lines = [line for line in stanza.splitlines() if line.startswith(kept)]
        if lines:
            with (work / "status").open("a", encoding="utf-8") as status:
                status.write("\n".join([*lines, "Status: install ok installed", "", ""]))


def _own_apt(work: Path, mirror: str, suite: str) -> list[str]:
    """Make apt's folders below ``work`` and return the command that uses nothing else of the system's."""
    for each in ("state/lists/partial", "cache/archives/partial", "none"):
        (work / each).mkdir(parents=True)
    (work / "status").touch()
    keyring = next((each for each in _KEYRINGS if Path(each).is_file()), None)
    signed = f"[signed-by={keyring}] " if keyring else ""
    (work / "sources.list").write_text(f"deb {signed}{mirror} {suite} main\n", encoding="utf-8")
    settings = {
        "Dir::State": work / "state",
        "Dir::State::status": work / "status",
        "Dir::Cache": work / "cache",
        "Dir::Etc::sourcelist": work / "sources.list",
        "Dir::Etc::sourceparts": work / "none",
        "Dir::Etc::preferences": work / "none" / "preferences",
        "Dir::Etc::preferencesparts": work / "none",
        "APT::Install-Recommends": "false",
        "Acquire::Languages": "none",
        # As root apt downloads as a user who may not enter the cache folder.
        "APT::Sandbox::User": "root",
    }
    # After the system's own settings (proxies, credentials), so that these win.
    return ["apt-get", *(part for name, value in settings.items() for part in ("-o", f"{name}={value}"))]
