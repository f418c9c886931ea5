"""Addresses of the project in its metadata: of the repository whose workflow builds a release. No checkout has them."""

from __future__ import annotations

import os
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PAGES = {
    "Homepage": "",
    "Documentation": "/blob/HEAD/docs/README.md",
    "Source": "",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}


class ProjectUrls(MetadataHookInterface):
    """Adds the addresses where a workflow names its repository, as GitHub's do."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the project's metadata."""
        server, repository = (os.environ.get(f"GITHUB_{each}") for each in ("SERVER_URL", "REPOSITORY"))
        if server and repository:
            metadata["urls"] = {name: f"{server}/{repository}{page}" for name, page in _PAGES.items()}
