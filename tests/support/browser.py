"""A headless Chromium, which tests drive by the DevTools protocol.

Playwright and Selenium would bring a driver of their own; the protocol is JSON over the WebSocket
client that Kubernetes' client already brings.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

import pytest
import requests
import websocket

EXECUTABLE = shutil.which("chromium") or shutil.which("google-chrome")
"""The browser, or None if no browser is installed."""
_TOOLS = Path(__file__).parents[2] / ".tools"
AXE = _TOOLS / "node_modules" / "axe-core" / "axe.min.js"
"""The script of axe-core, which `npm install --prefix .tools axe-core` brings."""
_START_SECONDS = 60
_OPTIONS = [
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-allow-origins=*",
    "--remote-debugging-port=0",
]


def _address(page: Path | str) -> str:
    return page if isinstance(page, str) else page.as_uri()


class Browser:
    """A browser that reaches only 127.0.0.1. Each page reports its requests and errors."""

    def __init__(self, profile: Path) -> None:
        """Starts the browser.

        Args:
          profile: an empty folder for the browser's files.
        """
        assert EXECUTABLE is not None
        self._process = subprocess.Popen(
            [EXECUTABLE, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port_file, end = profile / "DevToolsActivePort", time.monotonic() + _START_SECONDS
        while not (port_file.exists() and len(port_file.read_text().splitlines()) == 2):
            assert time.monotonic() < end, "no browser started"
            time.sleep(0.05)
        port = port_file.read_text().splitlines()[0]
        pages = requests.get(f"http://127.0.0.1:{port}/json/list", timeout=30).json()
        address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
        self._socket = websocket.create_connection(address, timeout=60)
        self._number = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Returns the result of a command; events that arrive meanwhile are kept."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def open(self, page: Path | str, width: int = 1200, scheme: str = "light") -> None:
        """Opens a page, and waits until it is shown.

        Args:
          page: a file or an address.
          width: the width of the window in pixels.
          scheme: `light` or `dark`.
        """
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.media("screen", scheme)
        self.call("Page.navigate", url=_address(page))
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(json.loads(self._socket.recv()))

    def media(self, media: str, scheme: str = "light") -> None:
        """Sets the medium, `screen` or `print`, and the colour scheme, `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=media, features=[feature])

    def evaluate(self, expression: str) -> Any:
        """Returns the value of a JavaScript expression, in spite of the page's policy."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Waits until a JavaScript expression is true."""
        end = time.monotonic() + _START_SECONDS
        while not self.evaluate(f"Boolean({expression})"):
            assert time.monotonic() < end, expression
            time.sleep(0.02)

    def click(self, selector: str) -> None:
        """Clicks the middle of an element with the mouse."""
        box = self.evaluate(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **at)

    def check(self, page: Path | str) -> list[str]:
        """Opens a page, which must request and report nothing; returns the ids of its sections."""
        self.open(page)
        assert self.requests() == [_address(page)]
        assert self.errors() == []
        sections = self.evaluate("[...document.querySelectorAll('section')].map(s => s.id)")
        assert isinstance(sections, list)
        return sections

    def violations(self) -> list[tuple[str, str]]:
        """Returns the serious problems that axe-core finds in the page with everything unfolded."""
        if not AXE.exists():
            pytest.skip("there is no axe-core; `npm install --prefix .tools axe-core` brings it")
        self.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        self.evaluate(AXE.read_text())
        found = self.evaluate("axe.run({resultTypes: ['violations']}).then(r => r.violations)")
        return [
            (one["id"], one["nodes"][0]["html"][:200])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def requests(self) -> list[str]:
        """Returns the addresses that the page has requested, itself included; no data URLs."""
        sent = (e for e in self.events if e["method"] == "Network.requestWillBeSent")
        addresses = [event["params"]["request"]["url"] for event in sent]
        return [address for address in addresses if not address.startswith("data:")]

    def errors(self) -> list[Any]:
        """Returns what the page has written to the console, and its exceptions."""
        methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event["method"] in methods]

    def screenshot(self, path: Path, height: int | None = None) -> None:
        """Writes the page as PNG file.

        Args:
          path: the file to write.
          height: the height in pixels, or None for the whole page.
        """
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"]}
        image = self.call(
            "Page.captureScreenshot", clip=clip | {"scale": 1}, captureBeyondViewport=True
        )
        path.write_bytes(base64.b64decode(image["data"]))
