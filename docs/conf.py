"""Sphinx settings of the documentation; `make docs` builds it with warnings as errors."""

import importlib.metadata
import re

project = "pcpg"
author = "the pcpg authors"
release = version = importlib.metadata.version("pcpg")

extensions = ["sphinx.ext.autodoc", "myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
myst_links_external_new_tab = False
highlight_language = "text"  # of blocks that name none: commands

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_title = "pcpg"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
default_role = "code"
smartquotes = False  # phi' is a transpose

CODE = re.compile(r"(`[^`]*`)")
SPECIAL = re.compile(r"([\\*_|])")
EITHER = re.compile(r"(\w+)\[[\w.~]*\bArray, ('[^']*')\] \| [\w.~]*\b\1\[[\w.~]*\bndarray, \2\]")


SECTION = re.compile(r"(Args|Returns|Raises|Example):$")
ENTRY = re.compile(r" {4}(\*{0,2}[A-Za-z_][\w, *]*): (.*)")


def as_rst(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText: ours are plain text with `code`, indented parts, tables of bars and examples."""
    made: list[str] = []
    is_quoted = is_example = False
    section = ""
    for line in lines:
        if found := SECTION.match(line):
            section, is_quoted = found[1], False
            made += ["", f"**{TITLES[section]}**", ""]
            continue
        section = section if not line or line.startswith(" ") else ""
        if section in LISTED and line:
            entry = ENTRY.match(line)
            made.append(f"* {_names(entry[1])}: {_escaped(entry[2])}" if entry else f"  {_escaped(line.strip())}")
            continue
        if section == "Returns" and line:
            made.append(_escaped(line.strip()))
            continue
        if not line.strip():
            made.append("")
            is_example = False
            continue
        is_example = is_example or line.startswith(">>>")
        starts_quote = is_example or line.startswith(("    ", "|"))
        if starts_quote and not is_quoted:
            made += ["", ".. code-block:: text", ""]
        elif is_quoted and not starts_quote:
            made.append("")
        is_quoted = starts_quote
        made.append(f"   {line}" if is_quoted else _escaped(line))
    return made


TITLES = {"Args": "Arguments", "Returns": "Returns", "Raises": "Raises", "Example": "Example"}
LISTED = ("Args", "Raises")


def _names(text: str) -> str:
    """The names before a colon, as code."""
    return ", ".join(f"`{name.strip()}`" for name in text.split(","))


def _escaped(line: str) -> str:
    """The line with nothing in it that reStructuredText would take for markup, but for code."""
    parts = CODE.split(line)
    return "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\1", part) for part in parts)


def translate(app, what, name, obj, options, lines) -> None:
    """Docstrings of this package as they are meant; those of Python's own classes tell nobody anything."""
    is_inherited = what in ("class", "exception") and "__doc__" not in vars(obj)
    lines[:] = [] if is_inherited else as_rst(lines)


def name_arrays(app, what, name, obj, options, signature, returns) -> tuple[str | None, str | None]:
    """Arrays of JAX or NumPy by the names that the code has for them (pcpg.shapes)."""

    def named(text: str | None) -> str | None:
        text = EITHER.sub(r"\1[Array, \2]", text or "").replace("jaxlib._jax.Array", "Array")
        return re.sub(r"float \| [\w.~]*floating \| [\w.~]*Float\[Array, ''\]", "Scalar", text) or None

    return named(signature), named(returns)


def skip(app, what, name, obj, would_skip, options) -> bool | None:
    """Fields of a named tuple that have no docstring of their own stand in its signature."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def setup(app) -> None:
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", translate)
    app.connect("autodoc-process-signature", name_arrays)
