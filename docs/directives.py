"""What pages take from the project itself when the site is built, so that it cannot differ from the project.

=================  =====================================================================================================
directive          becomes
=================  =====================================================================================================
``drawing``        an example's workflow, drawn by `Graph.export`
``timeline``       when an example's nodes would run, drawn by `Timeline.export`
``picture``        a Graph or a Timeline of the page's own Python code, drawn by `export`: ``<!-- picture of g: ... -->``
``introduction``   the docstring of an example, without its first line
``output``         what an example prints on the CPU runtime
``finding``        what `check` says of the example on the page of a diagnostic, and the drawing that shows it
``command-line``   each command with its options, from argparse
``file-formats``   the formats of `Graph.export`, or of `Timeline.export`, and their options
``schema``         the JSON schema of a workflow file
``mermaid``        a flowchart of boxes and arrows, laid out by Graphviz
=================  =====================================================================================================
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import html
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from hipgraphdsl import Graph, Timeline, Workflow
from hipgraphdsl.checks import Report
from hipgraphdsl.cli import load_graph
from hipgraphdsl.cli.entry import parser as command_parser
from hipgraphdsl.drawing.dot import dot_text, svg_text
from hipgraphdsl.drawing.picture import draw
from hipgraphdsl.export import FORMATS, formats, render
from hipgraphdsl.parts.timeline import files as timelines

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"<!-- picture of (.*?) -->", re.DOTALL)


class ProjectDirective(SphinxDirective):
    """What these directives share."""

    required_arguments = 1

    def page(self, text: str) -> list[nodes.Node]:
        """Parse text without headings as part of the page."""
        return self.parse_text_to_nodes(text)

    def listing(self, text: str, language: str = "text") -> nodes.literal_block:
        return nodes.literal_block(text, text, language=language)

    def svg(self, content: str, alt: str) -> nodes.Node:
        """Keep a drawing beside the doctrees and return the image, which Sphinx copies to the site."""
        folder = Path(self.env.doctreedir) / "drawings"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{Path(self.env.docname).name}_{hashlib.sha256(content.encode()).hexdigest()[:8]}.svg"
        (folder / name).write_text(content, encoding="utf-8")
        page = Path(self.env.doc2path(self.env.docname)).parent
        image = nodes.image(uri=os.path.relpath(folder / name, page), alt=alt, classes=["drawing"])
        self.set_source_info(image)
        return image

    def example(self) -> Path:
        """Return the example that the argument names, and have the page built again when it changes."""
        path = EXAMPLES / f"{self.arguments[0].partition(':')[0]}.py"
        if not path.is_file():
            raise self.error(f"there is no example {path.name}")
        self.env.note_dependency(str(path))
        return path


class Drawing(ProjectDirective):
    """``{drawing} 04_wave2d:build``; options are those of `export`, values as Python literals or plain words."""

    option_spec = dict.fromkeys(("alt", "direction", "edges", "lanes", "critical", "fold", "faults"), directives.unchanged)

    def run(self) -> list[nodes.Node]:
        path = self.example()
        builder = self.arguments[0].partition(":")[2]
        graph = load_graph(f"{path}:{builder}" if builder else str(path))
        options = {name: literal(value) for name, value in self.options.items() if name != "alt"}
        content = render(graph.workflow(), ".svg", **options)
        assert isinstance(content, str)
        return [self.svg(content, self.options.get("alt", f"The workflow {graph.name!r}"))]


class Chart(ProjectDirective):
    """``{timeline} 03_overlap_pipeline``; `durations` and `engines` are those of `simulate`, the rest those of `export`."""

    option_spec = dict.fromkeys(("alt", "durations", "engines", "by", "critical", "title"), directives.unchanged)

    def run(self) -> list[nodes.Node]:
        path = self.example()
        options = {name: literal(value) for name, value in self.options.items() if name != "alt"}
        timeline = load_graph(str(path)).simulate(options.pop("durations"), options.pop("engines", None))
        content = timelines.render(timeline, ".svg", **options)
        assert isinstance(content, str)
        return [self.svg(content, self.options.get("alt", f"The timeline of {timeline.name!r}"))]


class Picture(ProjectDirective):
    """``{picture} 3 g, lanes=True: what it shows``: `g` as it is after the first three Python blocks of the page.

    `adapt` makes it of a comment, ``<!-- picture of g, lanes=True: what it shows -->``, which the repository does not show.
    """

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        count, text = self.arguments[0], self.arguments[1]
        called, _, alt = text.partition(": ")
        call = ast.parse(f"draw({called})", mode="eval").body
        assert isinstance(call, ast.Call)
        name = ast.unparse(call.args[0])
        value = self.names(int(count)).get(name)
        options = {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}
        if isinstance(value, Graph):
            content = render(value.workflow(), ".svg", **options)
        elif isinstance(value, Timeline):
            content = timelines.render(value, ".svg", **options)
        else:
            raise self.error(f"the Python blocks above make no Graph or Timeline {name!r}")
        assert isinstance(content, str)
        return [self.svg(content, alt)]

    def names(self, count: int) -> dict[str, Any]:
        """Return the names of the page's code after so many blocks, each of which runs once."""
        names, done = self.env.temp_data.setdefault("names of the page", ({"__name__": "page"}, []))
        page = Path(self.env.doc2path(self.env.docname))
        blocks = PYTHON.findall(page.read_text(encoding="utf-8"))[len(done) : count]
        os.environ["HIPGRAPHDSL_RUNTIME"] = "cpu"
        with tempfile.TemporaryDirectory() as folder, chdir(folder), redirect_stdout(io.StringIO()):
            for block in blocks:
                exec(compile(block, str(page), "exec"), names)
        done += blocks
        return dict(names)


def literal(text: str) -> Any:
    """Return the Python literal that text is, or the text."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


class Introduction(ProjectDirective):
    """``{introduction} 04_wave2d``."""

    def run(self) -> list[nodes.Node]:
        docstring = ast.get_docstring(ast.parse(self.example().read_text(encoding="utf-8")))
        if not docstring:
            raise self.error(f"example {self.arguments[0]} has no docstring")
        return self.page(docstring.partition("\n")[2].strip())


class Output(ProjectDirective):
    """``{output} 01_hip_graph_tutorial --size 65536``."""

    optional_arguments = 20

    def run(self) -> list[nodes.Node]:
        command = [sys.executable, str(self.example()), "--runtime", "cpu", *self.arguments[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "110"}
        done = subprocess.run(command, cwd=self.env.doctreedir, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise self.error(f"{self.arguments[0]} ended with status {done.returncode}: {done.stdout}{done.stderr}")
        shown = " ".join(["$ python", f"examples/{command[1].rpartition(os.sep)[2]}", *command[2:]])
        return [self.listing(f"{shown}\n{done.stdout.rstrip()}", "console")]


class Finding(ProjectDirective):
    """``{finding} HG203``: put after the first example of each page of a diagnostic."""

    def run(self) -> list[nodes.Node]:
        code = self.arguments[0]
        text = Path(self.env.doc2path(self.env.docname)).read_text(encoding="utf-8")
        block = re.search(r"\n## Example\n.*?```python\n(.*?)```", text, re.DOTALL)
        if block is None:
            raise self.error(f"the page of {code} has no example")
        names: dict[str, Any] = {}
        exec(compile(block[1], f"{code}.md", "exec"), names)
        graph = names["g"]
        assert isinstance(graph, Graph)
        report = names.get("report") or graph.check()
        assert isinstance(report, Report)
        said = "\n".join(str(diagnostic) for diagnostic in report.diagnostics)
        alternative = f"The workflow of the example, with what {code} is about marked in red"
        drawing = svg_text(dot_text(draw(graph.workflow(), faults=report), direction="LR", legend=False), alternative)
        listing = self.listing(said)
        listing["classes"].append("wrapped")
        return [
            *self.page("`check` says:"),
            listing,
            self.svg(drawing, alternative),
        ]


class CommandLine(ProjectDirective):
    """The reference of the commands."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        parser = command_parser()
        commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        found = self.page(described(parser, skip=commands))
        for name, command in commands.choices.items():
            section = nodes.section("", nodes.title("", name), *self.page(described(command)), names=[name])
            self.state.document.note_implicit_target(section)
            found.append(section)
        return found


def described(parser: argparse.ArgumentParser, skip: argparse.Action | None = None) -> str:
    """Return a command as Markdown: what it does, how it is called, its arguments, its examples."""
    formatter = argparse.HelpFormatter(parser.prog, width=96)
    formatter.add_usage(parser.usage, [a for a in parser._actions if a is not skip], parser._mutually_exclusive_groups, prefix="")
    usage = formatter.format_help().strip() + (" COMMAND ..." if skip else "")
    intro, *lists = (parser.description or "").split("\n\n")
    parts = [intro, f"```text\n{usage}\n```"]
    rows = []
    for action in parser._actions:
        if action is skip or action.help is argparse.SUPPRESS:
            continue
        called = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper())
            called += f" {value}"
        explained = formatter._expand_help(action) if action.help else ""
        rows.append((f"`{called}`", cell(explained)))
    if rows:
        parts.append(table(("argument", "meaning"), rows))
    for block in (*lists, *(parser.epilog or "").split("\n\n")):
        title, _, body = block.partition(":\n")
        if body:
            lines = inspect.cleandoc("\n" + body)
            language = "console" if title == "examples" else "text"
            if language == "console":
                lines = "\n".join(f"$ {line}" for line in lines.splitlines())
            parts += [f"{title.capitalize()}:", f"```{language}\n{lines}\n```"]
        elif block:
            parts.append(f"{block[0].upper()}{block[1:]}.")
    return "\n\n".join(parts)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(text: str) -> str:
    """Return plain text for a cell of a Markdown table."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", " ".join(text.split()))


class FileFormats(ProjectDirective):
    """The formats of a workflow, or of ``timelines``."""

    required_arguments = 0
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        rows = []
        entries = timelines.FORMATS if self.arguments else {extension: FORMATS[extension] for extension in formats()}
        for extension, entry in entries.items():
            function = getattr(entry.opened(), entry.function)
            parameters = list(inspect.signature(function).parameters.values())[1:]
            names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
            if len(names) < len(parameters):
                names += [name for name in list(inspect.signature(draw).parameters)[1:] if name not in names]
            rows.append((f"`{extension}`", cell(entry.title), ", ".join(f"`{name}`" for name in names) or "none"))
        return self.page(table(("extension", "what it is", "options"), rows))


class Schema(ProjectDirective):
    """The JSON schema."""

    required_arguments = 0

    def run(self) -> list[nodes.Node]:
        return [self.listing(json.dumps(Workflow.model_json_schema(), indent=1), "json")]


class Mermaid(ProjectDirective):
    """A flowchart of boxes with labels, rounded ones in dashed lines, and arrows, which may be dashed; all that the pages use."""

    required_arguments = 0
    has_content = True

    BOX = re.compile(r'(\w+)(?:(\(?)\["([^"]*)"\]\)?)?')

    def run(self) -> list[nodes.Node]:
        kind, *lines = (line.strip() for line in self.content if line.strip())
        if not kind.startswith("flowchart "):
            raise self.error(f"only flowcharts are drawn (got {kind!r})")
        dot = [
            f"digraph {{ rankdir={kind.split()[1]}; bgcolor=transparent;",
            'node [shape=box style=rounded fontname="Helvetica,Arial,sans-serif" fontsize=11 margin="0.16,0.1"];',
            "edge [arrowsize=0.7];",
        ]
        for line in lines:
            ends = []
            for part in re.split("-->|-\\.->", line):
                box = self.BOX.fullmatch(part.strip())
                if box is None:
                    raise self.error(f"not understood: {line}")
                ends.append(box[1])
                if box[3]:
                    first, *rest = (html.escape(html.unescape(text)) for text in box[3].split("<br/>"))
                    dashed = ' style="rounded,dashed"' if box[2] else ""
                    dot.append(f"{box[1]} [label=<<B>{first}</B>{''.join('<BR/>' + text for text in rest)}>{dashed}];")
            dot.append(" -> ".join(ends) + (" [style=dashed];" if "-.->" in line else ";"))
        drawing = svg_text("\n".join([*dot, "}"]), "A flowchart: " + "; ".join(lines))
        return [nodes.raw("", f'<div class="flowchart">{drawing}</div>', format="html")]


def adapt(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give pages that are also read in the repository what only the site needs: links to its own pages, lists, findings."""
    text = with_pictures(source[0])
    text = re.sub(r"\]\(((?:\.\./)+[^)#\s]+)[^)\s]*\)", lambda link: f"]({target(Path(docname).parent, link[1])})", text)
    folder, _, name = docname.rpartition("/")
    if folder == "diagnostics":  # summaries are also printed as they are, so they hold no backticks
        text = re.sub(r"(?m)^(?:\||\*\*).*", lambda line: re.sub(r"\b__\w+?__\b", r"`\g<0>`", line[0]), text)
    if docname == "diagnostics/index":
        text += "\n```{toctree}\n:hidden:\n:glob:\n\nHG*\n```\n"
    elif folder == "diagnostics":
        text = re.sub(
            r"(\n## Example\n.*?```python\n.*?```\n)", rf"\1\n```{{finding}} {name}\n```\n", text, count=1, flags=re.DOTALL
        )
    source[0] = text


def with_pictures(text: str) -> str:
    """Replace comments that ask for pictures by directives, each with the number of Python blocks above it."""

    def directive(comment: re.Match[str]) -> str:
        return f"```{{picture}} {len(PYTHON.findall(text[: comment.start()]))} {' '.join(comment[1].split())}\n```"

    return PICTURE.sub(directive, text)


def target(page: Path, path: str) -> str:
    """Return what a link to a file of the project leads to: a page of the site, or a copy of the file."""
    up = "../" * len(page.parts)
    file = Path(os.path.normpath(ROOT / "docs" / page / path))
    if file == EXAMPLES:
        return f"{up}examples/index.md"
    if file.parent == EXAMPLES:
        return f"{up}examples/{file.stem}.md"
    if file == ROOT / "CHANGELOG.md":
        return f"{up}changelog.md"
    return path if file.is_relative_to(ROOT / "docs") else f"path:{path}"


def keep_whole(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Keep Napoleon from taking what stands before a colon in the text of an attribute for its type."""
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # an empty comment


def tidy(app: Sphinx, doctree: nodes.document) -> None:
    """Call attributes attributes, and leave words in the types of parameters, such as "dtype" and "name", without a link."""
    for name in doctree.findall(nodes.field_name):
        if name.astext() == "Variables":
            name.children = [nodes.Text("Attributes")]
    for reference in list(doctree.findall(addnodes.pending_xref)):
        if reference.get("reftype") == "class" and reference["reftarget"].islower() and not within_signature(reference):
            reference.replace_self(nodes.emphasis("", reference.children[-1].astext()))


def drop_wrong_ways_back(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Drop links from source to entries under a name that has none: viewcode takes one prefix for all names of a module."""
    if pagename.startswith("_modules/"):
        known = app.env.domains["py"].data["objects"]
        context["body"] = re.sub(
            r'<a class="viewcode-back" href="[^"#]*#([^"]+)">.*?</a>',
            lambda link: link[0] if link[1] in known else "",
            context.get("body", ""),
        )


def within_signature(node: nodes.Node | None) -> bool:
    """Return whether a node is part of the line that declares an entry."""
    while node is not None and not isinstance(node, addnodes.desc_signature):
        node = node.parent
    return node is not None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives with Sphinx."""
    for name, directive in {
        "drawing": Drawing,
        "timeline": Chart,
        "picture": Picture,
        "introduction": Introduction,
        "output": Output,
        "finding": Finding,
        "command-line": CommandLine,
        "file-formats": FileFormats,
        "schema": Schema,
        "mermaid": Mermaid,
    }.items():
        app.add_directive(name, directive)
    app.connect("source-read", adapt)
    app.connect("autodoc-process-docstring", keep_whole, priority=400)
    app.connect("doctree-read", tidy)
    app.connect("html-page-context", drop_wrong_ways_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
