"""Chromium without a window, by its own protocol: for browser.py and the rollout browser's tests."""

import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

LIMITS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
START_S = 30


def find_browser() -> list[str] | None:
    """Return the command of a browser without a window and without requests of its own; None if none is
    installed.
    """
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    return [program, "--headless=new", *LIMITS] if program else None


class Tab:
    """A page in a new browser."""

    def __init__(self, browser: Sequence[str], address: str, folder: Path) -> None:
        """Open the page.

        Args:
            browser: As from ``find_browser``.
            address: Address of the page.
            folder: The browser's profile; empty for nothing cached.
        """
        from websockets.sync.client import connect

        command = [*browser, "--remote-debugging-port=0", f"--user-data-dir={folder}", address]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        with ExitStack() as opened:
            opened.callback(self._process.wait)
            opened.callback(self._process.kill)
            address = _address_of_page(folder / "DevToolsActivePort")
            self._socket = opened.enter_context(connect(address, max_size=None))
            self._open = opened.pop_all()
        self._commands = itertools.count(1)

    def send(self, method: str, **parameters: object) -> dict[str, Any]:
        """Return the result of a command of the protocol."""
        number = next(self._commands)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (answer := json.loads(self._socket.recv())).get("id") != number:
            pass
        return dict(answer.get("result", {}))

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; None for one without a JSON value."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer.get("result", {}).get("value")

    def close(self) -> None:
        """End the browser."""
        self._open.close()


def _address_of_page(port_file: Path) -> str:
    """Wait for a browser that has just started; return the address at which its page takes commands."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if port_file.exists() and port_file.read_text().count("\n"):
            port = port_file.read_text().split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.02)
    raise TimeoutError(f"the browser did not start in {START_S} s")
