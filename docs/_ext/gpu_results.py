"""Directives for the results of a GPU: tables of rows beside their goals, and plots.

A page names a file: ``{gpu-results} h200.json`` gives one table a group of rows, ``{gpu-plots}
h200.json`` the plots. Where there is no such row, or no file, the page says so.
"""

from __future__ import annotations

from pathlib import Path

import gpu_rows
from docutils import nodes
from gpu_plots import density_plot, roofline_plot
from sphinx.util.docutils import SphinxDirective
from table_directive import TableDirective


class GpuResults(TableDirective):
    """One table a group of rows."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render; the page is built again when the file changes."""
        name = self.arguments[0]
        self.env.note_dependency(str(gpu_rows.RESULTS / name))
        return self.show(gpu_rows.page(gpu_rows.read(name)), name)


class GpuPlots(SphinxDirective):
    """Speed-up over density, and share of the roofline."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Draw what there are rows for."""
        name = self.arguments[0]
        self.env.note_dependency(str(gpu_rows.RESULTS / name))
        rows = gpu_rows.read(name)
        root = Path(self.env.srcdir)
        found: list[nodes.Node] = []
        for draw in (density_plot, roofline_plot):
            plot = draw(rows, root / "reference" / "generated", Path(name).stem)
            if plot is None:
                continue
            file, caption = plot
            figure = nodes.figure()
            uri = f"/{file.relative_to(root).as_posix()}"
            figure += nodes.image(uri=uri, alt=caption)
            figure += nodes.caption(caption, caption)
            found.append(figure)
        if not found:
            found.append(nodes.paragraph(text="There is nothing to plot yet."))
        return found
