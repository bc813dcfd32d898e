"""The contract table of the documentation, as the law tests read it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sparseformats import testing

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "contract.toml"
CONTRACT: dict[str, Any] = tomllib.loads(TABLE.read_text(encoding="utf-8"))
LIBRARIES = ("numpy", "torch", "array_api_strict")

# "*.T" is a row of the table but no target of a conversion.
FORMATS = [row["format"] for row in CONTRACT["formats"] if row["class"] != "Transposed"]
PATTERNS = ("2:4", "1:2", "3:5", "4:4")


def sources() -> list[str]:
    """Every format that a matrix can be drawn in, transposed views included."""
    views = any(row["class"] == "Transposed" for row in CONTRACT["formats"])
    slots = [row["format"] for row in CONTRACT["formats"] if row["slots"]]
    return FORMATS + [f"{name}.T" for name in slots if name in FORMATS and views]


def steps(format: str) -> Any:
    """Strategy of conversion steps into one row of the table."""
    row = next(row for row in CONTRACT["formats"] if row["format"] == format)
    if format == "n:m":
        return st.sampled_from(PATTERNS).map(lambda pattern: (pattern, {}))
    if "blocksize" not in row["needs"]:
        return st.just((format, {}))
    sizes = testing.blocksizes()
    if row["blocks"] == "square":
        sizes = sizes.map(lambda pair: (pair[0], pair[0]))
    return sizes.map(lambda pair: (format, {"blocksize": pair}))


def chains(formats: Any = FORMATS, most: int = 4) -> Any:
    """Strategy of chains of up to `most` conversions, over all rows of the table by default."""
    return st.lists(st.sampled_from(formats).flatmap(steps), min_size=1, max_size=most)
