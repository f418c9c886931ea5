"""Puts machine code that ``release.decoders`` built from the same sources into the wheel: it is for a processor then.

Without such code the wheel is for any processor, and numba compiles what a query needs.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MachineCodeHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatch's hook for the wheel alone."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries of the packages, and the platform they are for."""
        # The environment of a build has nothing of the project, and this imports nothing beside it.
        sys.path.insert(0, self.root)
        from watermark_source.machine_code.built_library import file_name  # noqa: PLC0415

        for folder in map(Path, self.build_config.packages):
            sys.path.insert(0, str(Path(self.root, folder.parent)))
            name = file_name(folder.name)
            if version != "editable" and Path(self.root, folder, name).is_file():
                build_data["force_include"][str(Path(self.root, folder, name))] = f"{folder.name}/{name}"
                # A library imports nothing that is of one version of a C library.
                build_data.update(pure_python=False, tag=f"py3-none-manylinux_2_17_{platform.machine()}")
