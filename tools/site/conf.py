"""Sphinx: makes docs/, and the pages beside it that they lead to, a site. `make site` runs it.

`docs/index.md` has the pages in order, by reader; `docs/adr/0027-sphinx-makes-the-site.md` has why it is Sphinx.
"""

from __future__ import annotations

from stream_learner import __version__

project = "stream-learner"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]

source_suffix = {".md": "markdown"}
include_patterns = ["docs/**", "*.md", "helm/stream-learner/README.md", "proofs/README.md"]
exclude_patterns = [".*", "state"]
root_doc = "docs/index"
myst_heading_anchors = 4
"""Links name headings as they do on the web: `page.md#the-heading`."""
default_role = "code"
"""What docstrings have between backticks."""

html_theme = "furo"
html_title = f"stream-learner {release}"
html_extra_path = ["root"]
html_copy_source = False
html_show_copyright = False
