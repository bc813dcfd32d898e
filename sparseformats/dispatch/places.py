"""Where files of measured times lie: those that come with the library, and the user's own."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ENVIRONMENT", "shipped_tables", "user_directory"]

ENVIRONMENT = "SPARSEFORMATS_CACHE"


def shipped_tables() -> Path:
    """Folder of the tables that come with the library."""
    return Path(__file__).parent / "tables"


def user_directory() -> Path:
    """Folder of the user's own files; not made by asking.

    ``SPARSEFORMATS_CACHE``, else ``sparseformats`` in ``XDG_CACHE_HOME`` or ``~/.cache``. A user
    who has no home, as in some containers, has a folder that cannot be: nothing is found or kept.
    """
    chosen = os.environ.get(ENVIRONMENT, "").strip()
    base = os.environ.get("XDG_CACHE_HOME", "").strip()
    try:
        if chosen:
            return Path(chosen).expanduser()
        return (Path(base) if base else Path.home() / ".cache") / "sparseformats"
    except RuntimeError:
        return Path(os.devnull) / "sparseformats"
