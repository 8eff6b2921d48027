"""The built site in a browser: ``scripts/docs.sh`` runs this file. ``SEELE_SITE`` is the site's folder."""

import functools
import importlib.util
import json
import os
import threading
import time
from contextlib import closing
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SITE = os.environ.get("SEELE_SITE")
if not SITE:
    pytest.skip("needs the built site: bash scripts/docs.sh", allow_module_level=True)
_spec = importlib.util.spec_from_file_location(
    "chromium", Path(__file__).parents[2] / "benchmarks" / "chromium.py"
)
chromium = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(chromium)

PAGES = ("index", "methods/seele", "methods/ppo", "reference/commands", "evidence/results", "map")
WIDTHS = (390, 1440)
FOUND = """JSON.stringify({
    width: document.documentElement.scrollWidth,
    formulas: [...document.querySelectorAll(".formula math")].map((math) => math.getBoundingClientRect()),
    elsewhere: performance.getEntriesByType("resource").map((asked) => asked.name)
        .filter((name) => !name.startsWith(location.origin + "/")),
    asked: performance.getEntriesByType("resource").length,
})"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """A browser that shows the site's front page."""
    command = chromium.find_browser()
    if command is None:
        pytest.skip("needs a browser: chromium or google-chrome")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/index.html"
    with closing(chromium.Tab(command, address, tmp_path_factory.mktemp("profile"))) as tab:
        wait_until(tab, f"location.href == {address!r} && document.readyState == 'complete'")
        yield tab
    server.shutdown()
    server.server_close()


def wait_until(tab, expression):
    deadline = time.monotonic() + 30
    while not tab.value(expression):
        assert time.monotonic() < deadline, f"not in 30 s: {expression}"
        time.sleep(0.02)


def show(tab, page, width):
    tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    tab.value(f"document.title = '', location.assign('/{page}.html')")
    wait_until(tab, "document.title && document.readyState == 'complete'")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_shows_its_formulas_and_asks_nobody_else(tab, page, width):
    show(tab, page, width)
    found = json.loads(tab.value(FOUND))
    assert found["width"] <= width
    assert found["asked"] and found["elsewhere"] == []
    assert bool(found["formulas"]) == page.startswith("methods/")
    assert all(size["width"] > 0 and size["height"] > 10 for size in found["formulas"])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_search_finds_a_word(tab, width):
    show(tab, "index", width)
    tab.value("document.querySelector('label[for=__search]').click()")
    tab.value("document.querySelector('.md-search__input').focus()")
    tab.send("Input.insertText", text="controller")
    wait_until(tab, "document.querySelector('.md-search-result__link[href*=controllers]')?.offsetHeight > 0")


def test_the_palette_toggles(tab):
    show(tab, "index", 1440)
    background = "getComputedStyle(document.body).backgroundColor"
    seen = [tab.value(background)]
    for _ in range(2):
        tab.value("document.querySelector('[data-md-component=palette] label:not([hidden])').click()")
        wait_until(tab, f"{background} != {seen[-1]!r}")
        seen.append(tab.value(background))
    assert seen[0] == seen[2]


@pytest.mark.parametrize(("width", "link"), [(390, ".md-nav__link"), (1440, ".md-tabs__link")])
def test_the_navigation_leads_to_another_page(tab, width, link):
    show(tab, "index", width)
    if width < 1000:
        tab.value("document.querySelector('label[for=__drawer]').click()")
        wait_until(tab, "document.querySelector('.md-sidebar--primary').getBoundingClientRect().left == 0")
    links = f"[...document.querySelectorAll('{link}[href]')]"
    other = f"{links}.find((link) => link.offsetHeight && link.pathname != location.pathname)"
    target = tab.value(f"{other}.href")
    tab.value(f"{other}.click()")
    wait_until(tab, f"location.href == {target!r} && document.readyState == 'complete'")
    assert tab.value("document.querySelector('h1').textContent")
