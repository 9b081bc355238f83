"""The long description of the wheel: README with links that lead somewhere on a package index.

With `PCPG_URL=https://host/owner/pcpg` links of files are absolute and the project has URLs; else their text stays.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


def described(text: str, url: str) -> str:
    """README for readers who have no files beside it."""
    if url:
        return LINK.sub(lambda found: f"{found[1]}[{found[2]}]({url.rstrip('/')}/{_kind(found)}/main/{found[3]})", text)
    return LINK.sub(lambda found: "" if found[1] else found[2], text)


def _kind(found: re.Match[str]) -> str:
    return "raw" if found[1] else "blob"


class Description(MetadataHookInterface):
    """Called by hatchling when it builds."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        url = os.environ.get("PCPG_URL", "")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text, url)}
        paper = {"Paper": "https://arxiv.org/abs/2007.08459"}
        files = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md"}
        ours = {name: f"{url}/blob/main/{file}" for name, file in files.items()}
        metadata["urls"] = paper | ({"Source": url, "Issues": f"{url}/issues"} | ours if url else {})
