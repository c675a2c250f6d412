"""``hipgraphdsl bench``."""

from __future__ import annotations

import argparse
import ast
import importlib
import pkgutil
import re
from pathlib import Path

from ...cli.arguments import Help
from ...cli.files import require_place
from ...cli.status import GOOD, Misuse
from ...cli.workflows import load_graph
from ...errors import RuntimeUnavailable

DESCRIPTION = "Measure how fast hipgraphdsl itself is."
EXAMPLES = ("", "launch", "advise wave.py")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments, and the benchmarks to its description."""
    known = benchmarks()
    width = max(map(len, known), default=0)
    listed = "\n".join(f"  {name:<{width}}  {title}" for name, (_, title) in known.items()) or "  none is installed"
    parser.description = f"{DESCRIPTION}\n\nbenchmarks:\n{listed}"
    parser.add_argument("name", nargs="?", metavar="NAME", help="which benchmark (default: all of them)")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # the benchmark's own


def run(options: argparse.Namespace) -> int:
    """Run one benchmark, or all of them."""
    known = benchmarks()
    if options.name is not None:
        if options.name not in known:
            raise Misuse(f"there is no benchmark {options.name!r}; benchmarks are {', '.join(known) or 'none'}")
        return _measure(options.name, known[options.name][0], options.arguments)
    status = GOOD
    for name, (module, title) in known.items():
        print(f"== {name}: {title}", flush=True)
        try:
            status = max(status, _measure(name, module, []))
        except RuntimeUnavailable as error:
            print(f"left out: {error}")
    return status


def _measure(name: str, path: str, arguments: list[str]) -> int:
    module = importlib.import_module(path)
    parser = argparse.ArgumentParser(
        prog=f"hipgraphdsl bench {name}", description=(module.__doc__ or "").replace("``", ""), formatter_class=Help
    )
    module.add_arguments(parser)
    parser.set_defaults(load_graph=load_graph)  # for benchmarks of the user's own workflows
    options = parser.parse_args(arguments)
    given = vars(options)
    require_place(given.get("output"), given.get("markdown"))
    return int(module.main(options) or GOOD)


def benchmarks() -> dict[str, tuple[str, str]]:
    """Return the benchmarks: name -> module and first line of its docstring; none is imported."""
    here = Path(__file__).parent
    folders = {__package__: here}
    if ((root := here.parents[2]) / "pyproject.toml").exists():  # a checkout, with the developers' own benchmarks
        folders["benchmarks"] = root / "benchmarks"
    found = {}
    for parent, folder in folders.items():
        for module in pkgutil.iter_modules([str(folder)]):
            path = folder / f"{module.name}.py"
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(item, ast.FunctionDef) and item.name == "main" for item in tree.body):
                title = (ast.get_docstring(tree) or "").replace("``", "").partition("\n")[0]
                title = re.sub(r"^hipgraphdsl bench [^:]*: ", "", title)
                found[module.name] = (f"{parent}.{module.name}", title[:1].upper() + title[1:])
    return dict(sorted(found.items()))
