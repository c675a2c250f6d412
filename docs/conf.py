"""The site that `make docs` builds from these pages: Sphinx with the theme Furo. Nothing on it comes from a network."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for directives.py, beside this file

import hipgraphdsl

project = "hipgraphdsl"
author = "the hipgraphdsl authors"
project_copyright = author
version = release = hipgraphdsl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "directives",
]
needs_sphinx = "8.1"
# Backticks in docstrings are code, and a link where they name something that has an entry.
default_role = "py:obj"

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
# GitHub draws this kind of block by itself; here directives.py does.
myst_fence_as_directive = ["mermaid"]

# Long lists use small headings at once.
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"exclude-members": "model_config, model_post_init, references"}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
viewcode_line_numbers = True
toc_object_entries_show_parents = "hide"

# A prompt is not copied, and neither is what a program printed.
copybutton_prompt_text = "$ "
copybutton_selector = "div.highlight-python pre, div.highlight-console pre, div.highlight-cpp pre, div.highlight-default pre"

html_theme = "furo"
html_title = f"hipgraphdsl {release}"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f5f99", "color-brand-content": "#1f5f99", "color-brand-visited": "#5b3fa0"},
    "dark_css_variables": {"color-brand-primary": "#79b8f2", "color-brand-content": "#79b8f2", "color-brand-visited": "#b8a1f0"},
    "top_of_page_buttons": [],
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
