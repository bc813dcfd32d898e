"""The base of directives that write Markdown."""

from __future__ import annotations

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective


class TableDirective(SphinxDirective):
    """Show Markdown lines as if they stood in the page."""

    def show(self, lines: list[str], source: str) -> list[nodes.Node]:
        """Parse and return the nodes."""
        node = nodes.section()
        self.state.nested_parse(StringList(lines, source), self.content_offset, node)
        return node.children
