"""A page in headless Chromium, after a script has run in it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: no program chromium or google-chrome")

CLICK = """
const i = page.PLURAL.findIndex((n) => n.name === "NAME");
page.select(i, true); page.select(-1);
const [x, y] = page.screen(i), c = document.getElementById("canvas");
for (const type of ["pointerdown", "pointerup"])
  c.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: y, pointerId: 1, bubbles: true}));
"""
"""Clicks where NAME stands on the screen, one of `page.PLURAL`."""


def in_chromium(page: str, script: str, tmp_path: Path, size: str = "1300,900") -> str:
    """Return the page's document after a script has run in it."""
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               f"--window-size={size}", "--virtual-time-budget=2000", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    return done.stdout.decode()
