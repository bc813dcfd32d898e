"""Sphinx configuration; built with -W, so every warning is an error."""

import sys
from pathlib import Path

import sparseformats

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

project = "sparseformats"
author = "The sparseformats developers"
copyright = "2026, The sparseformats developers"
release = sparseformats.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "tables",
]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "sparseformats"

napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# Loses: what a conversion drops, usually nothing. The other two are those of the formats' modules.
napoleon_custom_sections = [("Loses", "notes_style"), "Layout", "Invariants"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"

# Docstrings are tested by pytest; here only what the pages show.
doctest_test_doctest_blocks = ""
doctest_global_setup = "import numpy as np, scipy.sparse, sparseformats as sf"


def skip_formats(app, what, name, obj, skip, options):
    """Leave the formats to their own pages, so that a new format touches no other page."""
    on_api_page = app.env.docname == "reference/api"
    return True if on_api_page and isinstance(obj, type) and _is_format(obj) else None


def _is_format(cls):
    return cls.__module__.startswith("sparseformats.formats.") and cls.__name__ != "SparseMatrix"


def setup(app):
    app.connect("autodoc-skip-member", skip_formats)
