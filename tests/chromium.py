"""A page in headless Chromium, after a script has run in it."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_LONGEST_S = 120  # a browser that has not answered by then is ended

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: no program chromium or google-chrome")

CLICK = """
const i = page.PLURAL.findIndex((n) => n.name === "NAME");
page.select(i, true); page.select(-1);
const [x, y] = page.screen(i), c = document.getElementById("canvas");
for (const type of ["pointerdown", "pointerup"])
  c.dispatchEvent(new PointerEvent(type, {clientX: x, clientY: y, pointerId: 1, bubbles: true}));
"""
"""Clicks where NAME stands on the screen, one of `page.PLURAL`."""

Ask = Callable[..., dict[str, Any]]
"""Sends a command of the DevTools protocol and returns its answer, after the event `until` if one is named."""


def in_chromium(page: str, script: str, tmp_path: Path, size: tuple[int, int] = (1300, 900)) -> str:
    """Return the page's document after a script has run in it, in a viewport of `size` CSS pixels.

    A window would not do: Chromium makes it no narrower than 500 pixels, and its bars take some of its height.
    """
    path = tmp_path / "page.html"
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    width, height = size
    with _browser(tmp_path / "profile") as ask:
        target = ask("Target.createTarget", url="about:blank")["targetId"]
        session = ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        ask("Emulation.setDeviceMetricsOverride", session, **metrics)
        ask("Page.enable", session)
        ask("Page.navigate", session, "Page.loadEventFired", url=path.as_uri())
        document = "[innerWidth, innerHeight, document.documentElement.outerHTML]"
        found = ask("Runtime.evaluate", session, expression=document, returnByValue=True)["result"]["value"]
    assert found[:2] == [width, height]
    return str(found[2])


_RENUMBERED = "import os, sys; _, r, w, *run = sys.argv; os.dup2(int(r), 3); os.dup2(int(w), 4); os.execv(run[0], run)"


@contextmanager
def _browser(profile: Path) -> Iterator[Ask]:
    """Run Chromium, which reads commands from descriptor 3 and writes answers to 4, each ended by a zero byte."""
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    pipes = (*os.pipe(), *os.pipe())
    reads, tell, hear, writes = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in pipes)  # none is 3 or 4
    for fd in pipes:
        os.close(fd)
    command = [sys.executable, "-c", _RENUMBERED, str(reads), str(writes), CHROMIUM, *flags]
    log = profile.with_suffix(".log")
    with log.open("wb") as said:
        browser = subprocess.Popen(command, pass_fds=(reads, writes), stdout=said, stderr=said)
    os.close(reads)
    os.close(writes)
    overdue = threading.Timer(_LONGEST_S, browser.kill)  # its end closes the pipe, which ends the wait for an answer
    overdue.start()
    numbers, rest = itertools.count(1), bytearray()

    def message() -> dict[str, Any]:
        while b"\0" not in rest:
            piece = os.read(hear, 1 << 16)
            assert piece, f"Chromium has ended: {log.read_text(errors='replace')}"
            rest.extend(piece)
        one, _, others = bytes(rest).partition(b"\0")
        rest[:] = others
        return dict(json.loads(one))

    def ask(method: str, session: str | None = None, until: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(numbers)
        asked = {"id": number, "method": method, "params": params} | ({} if session is None else {"sessionId": session})
        os.write(tell, json.dumps(asked).encode() + b"\0")
        answer, happened = None, until is None
        while answer is None or not happened:
            found = message()
            if found.get("id") == number:
                assert "error" not in found, found
                answer = dict(found["result"])
            happened = happened or found.get("method") == until
        return answer

    try:
        yield ask
    finally:
        os.close(tell)  # which ends it
        browser.wait()
        overdue.cancel()
        os.close(hear)
