"""A browser, its pages, and what the checks of the server's page ask of them."""

import json
import os
import urllib.parse
import urllib.request

import pytest
from playwright.sync_api import sync_playwright

BROWSER = "/usr/bin/chromium"
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KINDS = ["embedder", "reranker", "classifier", "tagger", "question-answerer", "masked-lm", "index"]
NARROW = {"width": 360, "height": 740}
# A panel of its kind shows one of these after an answer; a model that was not trained may find nothing.
SHOWN = {
    "embedder": ".bars li",
    "reranker": ".bars li .note",
    "classifier": ".summary",
    "tagger": ".summary",
    "question-answerer": ".marked",
    "masked-lm": ".bars li",
    "index": ".summary",
}


@pytest.fixture(scope="module")
def server_url():
    """The address of a server that serves a model of each kind, without a key."""
    return os.environ["BERT_JAX_SERVER_URL"].rstrip("/")


@pytest.fixture(scope="module")
def models(server_url):
    with urllib.request.urlopen(f"{server_url}/models") as response:
        return json.load(response)["models"]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, server_url):
    """Return a function that opens a page. At the end, nothing may have come from elsewhere or stand in the console."""
    contexts, foreign, complaints = [], [], []

    def is_own(url):
        return url.startswith(f"{server_url}/")

    def complain(message):
        # The browser itself reports an answer with an error's status, which the page shows in words.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    def open_page(path="/", viewport=None, colors="light", intercept=None):
        context = browser.new_context(
            viewport=viewport or {"width": 1200, "height": 800}, color_scheme=colors, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: is_own(request.url) or foreign.append(request.url))
        page.on(
            "response", lambda response: response.status == 404 and complaints.append(f"404 {response.url}")
        )
        page.on("console", complain)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        if intercept is not None:
            page.route("**/models", intercept)
        page.goto(server_url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert foreign == []
    assert complaints == []


def of_kind(models, kind):
    listed = [model for model in models if model["kind"] == kind]
    assert listed, f"the server has no {kind}"
    return listed


def address(model):
    return "/#" + urllib.parse.quote(model["name"], safe="!'()*")


def focused(page):
    return page.evaluate("document.activeElement.innerText ?? ''")


def is_in_form(page):
    return page.evaluate("document.activeElement.closest('form') !== null")


def press_tab_until(page, condition):
    for _ in range(60):
        page.keyboard.press("Tab")
        if condition():
            # What has the focus is seen to have it.
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    raise AssertionError("Tab does not get there")


def wait_for_answer(page, kind):
    """Return the summary that a screen reader says."""
    page.wait_for_selector(".latency, .error")
    assert page.locator(".error").all_inner_texts() == []
    assert page.locator(SHOWN[kind]).count() > 0
    summary = page.get_by_role("status").inner_text()
    assert summary.endswith(".") and "undefined" not in summary
    return summary


def overhang(page):
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
