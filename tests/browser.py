"""A headless Chromium, driven by its DevTools protocol through a pipe, without other packages."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

#: The lowest WCAG contrast of any text with what is behind it, and that text.
LOWEST_CONTRAST = """
(() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = element => {
    for (; element; element = element.parentElement) {
      const found = parse(getComputedStyle(element).backgroundColor);
      if (found.length < 4 || found[3] === 1) return found;
    }
    throw new Error("nothing behind");
  };
  let lowest = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].filter(n => n.nodeType === 3 && n.data.trim());
    if (!words.length || element.closest("title, style")) continue;
    const style = getComputedStyle(element);
    const colour = parse(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(colour), light(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < lowest[0]) lowest = [contrast, words[0].data];
  }
  return lowest;
})()
"""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find() -> str | None:
    """The path of a browser, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page of a browser with a profile of its own. Every event is kept in ``events``."""

    def __init__(self, program: str, profile: Path) -> None:
        self._to_browser, self._from_browser = os.pipe(), os.pipe()
        # The protocol is spoken on descriptors 3 and 4: ours are taken out of their way first.
        theirs = [
            fcntl.fcntl(end, fcntl.F_DUPFD, 20)
            for end in (self._to_browser[0], self._from_browser[1])
        ]
        arguments = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", "--hide-scrollbars"),
            *(f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"),
        ]
        script = f'exec "$0" "$@" 3<&{theirs[0]} 4>&{theirs[1]}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, program, *arguments],
            pass_fds=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for descriptor in (*theirs, self._to_browser[0], self._from_browser[1]):
            os.close(descriptor)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._number, self._session = b"", 0, ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command and waits for its result; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser[1], json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + 60
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from_browser[0]], [], [], end - time.monotonic())
            assert ready, "the browser does not answer"
            data = os.read(self._from_browser[0], 1 << 20)
            assert data, "the browser ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path | str, width: int, height: int = 900, scheme: str = "light") -> None:
        """Shows a file or an address in a window, in the light or dark scheme; waits for it."""
        self.resize(width, height)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while all(event.get("method") != "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def resize(self, width: int, height: int) -> None:
        """Changes the window, as that of a phone below 600 pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; the page's own policy does not bind us."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """All of the page as a .png file."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def close(self) -> None:
        """Ends the browser."""
        try:
            self._session = ""
            self.call("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(timeout=30)
        os.close(self._to_browser[1])
        os.close(self._from_browser[0])


def complaints(browser: Browser) -> list[dict[str, Any]]:
    """What a console would show."""
    kinds = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    return [event for event in browser.events if event["method"] in kinds]


def requests(browser: Browser) -> list[str]:
    return [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]
