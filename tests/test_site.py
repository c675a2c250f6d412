"""The built site: every link and anchor leads somewhere, nothing comes from a network, and nothing public is missing.

`make site` builds the site and hands it over in HIPGRAPHDSL_SITE; without that it is built here.
"""

from __future__ import annotations

import html
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import hipgraphdsl
from hipgraphdsl.checks import CATALOGUE
from hipgraphdsl.export import formats
from hipgraphdsl.parts.timeline import files as timelines

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
NEEDED = ("sphinx", "furo", "myst_parser", "sphinx_copybutton", "sphinx_design", "pygraphviz", "yaml")

# Elements whose address a browser loads by itself; that of <a> waits for a click.
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("HIPGRAPHDSL_SITE")
    if given:
        return (ROOT / given).resolve()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the site cannot be built: {', '.join(missing)} not installed (extra 'docs')")
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [*command, "docs", str(folder / "site")], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@dataclass
class Page(HTMLParser):
    """What a page refers to and what may be referred to in it."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    undescribed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.add(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        relation = found.get("rel", "")
        if tag in LOADED and LOADED[tag] in found and relation not in {"canonical", "search", "index", "next", "prev"}:
            self.loaded.append(found[LOADED[tag]])
        if tag == "img" and not found.get("alt"):
            self.undescribed.append(found.get("src", ""))


@cache
def parsed(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > len(CATALOGUE)
    return found


def is_elsewhere(address: str) -> bool:
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    broken = []
    for path in pages(site):
        for address in {*parsed(path).links, *parsed(path).loaded}:
            if is_elsewhere(address):
                continue
            parts = urlsplit(address)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                broken.append(f"{path.relative_to(site)}: {address}")
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in parsed(target).ids:
                broken.append(f"{path.relative_to(site)}: {address} has no such anchor")
    assert broken == []


def test_a_browser_loads_nothing_from_elsewhere(site: Path) -> None:
    foreign = [
        f"{path.relative_to(site)}: {address}"
        for path in pages(site)
        for address in parsed(path).loaded
        if is_elsewhere(address) and not address.startswith("data:")
    ]
    for style in sorted(site.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        foreign += [
            f"{style.relative_to(site)}: {address}"
            for address in re.findall(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text)
            if is_elsewhere("".join(address)) and not "".join(address).startswith("data:")
        ]
    assert foreign == []


def test_every_picture_is_described(site: Path) -> None:
    undescribed = {path.name: parsed(path).undescribed for path in pages(site) if parsed(path).undescribed}
    assert undescribed == {}


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    ids = set().union(*(parsed(path).ids for path in (site / "reference").glob("*.html")))
    public = set(hipgraphdsl.__all__) - {"__version__"}
    missing = {
        name
        for name in public
        if f"hipgraphdsl.{name}" not in ids and f"{getattr(hipgraphdsl, name).__module__}.{name}" not in ids
    }
    assert missing == set()


CLASSES = ("Graph", "Executable", "Timeline", "Plan", "Report", "GraphMemory", "Workflow", "Kernel", "Module")
CALLS = (property, staticmethod, classmethod, cached_property)


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_call_of_a_class_is_in_the_reference(site: Path, name: str) -> None:
    ids = set().union(*(parsed(path).ids for path in (site / "reference").glob("*.html")))
    members = vars(getattr(hipgraphdsl, name)).items()
    public = {key for key, value in members if not key.startswith("_") and (callable(value) or isinstance(value, CALLS))}
    described = {anchor.rpartition(".")[2] for anchor in ids if anchor.rpartition(".")[0].endswith(f".{name}")}
    assert public - described == set()


def test_every_diagnostic_shows_what_check_says(site: Path) -> None:
    silent = []
    for code, entry in CATALOGUE.items():
        text = (site / "diagnostics" / f"{code}.html").read_text(encoding="utf-8")
        if f"{code} {entry.severity}:" not in re.sub(r"<[^>]+>", "", text) or "_images/" not in text:
            silent.append(code)
    assert silent == []


@pytest.mark.parametrize("page", ["getting_started", "concepts", "loops_and_branches", "timelines"])
def test_every_page_that_teaches_has_the_pictures_that_it_asks_for(site: Path, page: str) -> None:
    asked = re.findall(r"<!-- picture of .*?: (.*?) -->", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    assert len(asked) >= 2
    text = html.unescape((site / f"{page}.html").read_text(encoding="utf-8"))
    assert [alt for alt in asked if f'alt="{alt}"' not in text] == []


def test_every_example_has_a_page_with_its_program_and_drawing(site: Path) -> None:
    for example in sorted((ROOT / "examples").glob("[0-9]*.py")):
        text = (site / "examples" / f"{example.stem}.html").read_text(encoding="utf-8")
        assert f"examples/{example.name}" in text
        assert ".svg" in text


def test_every_command_and_format_is_in_the_reference(site: Path) -> None:
    commands = {"info", "check", "show", "run", "timeline", "verify", "bench", "diff", "schema"}
    assert commands <= parsed(site / "reference" / "command_line.html").ids
    text = (site / "reference" / "file_format.html").read_text(encoding="utf-8")
    assert [extension for extension in formats() if f">{extension}<" not in text] == []
    text = (site / "timelines.html").read_text(encoding="utf-8")
    assert [extension for extension in timelines.FORMATS if f">{extension}<" not in text] == []
    assert text.count(".svg") >= 2
