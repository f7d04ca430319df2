"""How `./dev docs` makes a site of these pages: Sphinx, strict, nothing fetched while building or reading."""

from importlib.metadata import version as installed_version
from typing import Any

project = "Godwit"
author = "the Godwit maintainers"
version = release = installed_version("godwit")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["benchmarks"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # signatures name types of modules that are no part of the reference

# Headings get the anchors that code hosts give them, so that a link works in both places.
myst_heading_anchors = 4

# Docstrings are read as Markdown is: `name` is code.
default_role = "code"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "separated"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
add_module_names = False

html_theme = "furo"
html_title = f"Godwit {version}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"


def _list_decisions(_app: Any, page: str, source: list[str]) -> None:
    """Put the decisions below their index, which as a file has links alone."""
    if page == "decisions/README":
        source[0] += "\n\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def setup(app: Any) -> None:
    """Join Sphinx."""
    app.connect("source-read", _list_decisions)
