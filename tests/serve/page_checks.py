"""What a person at a browser sees of a server: they have a keyboard, a narrow window, a screen reader.

test_page.py runs this file in an environment that has the browser's driver.
"""

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


def test_everything_is_of_this_server(server_url):
    """The policy of the pages forbids inline scripts, styles and other hosts."""
    for path in ("/", "/docs"):
        asked = urllib.request.Request(server_url + path, headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked) as response:
            assert "default-src 'self'" in response.headers["content-security-policy"]


@pytest.mark.parametrize("viewport", [None, NARROW])
def test_tab_begins_at_the_top(open_page, models, viewport):
    """The first stop of Tab leads to the task, also where the list of models was scrolled to the picked one."""
    page = open_page(address(models[-1]), viewport)
    page.wait_for_selector("form")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the task"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert is_in_form(page)
    assert page.locator("h1").inner_text().startswith(models[-1]["name"])
    # The answer scrolls into view, and Tab goes on within the form.
    page.keyboard.press("Control+Enter")
    wait_for_answer(page, models[-1]["kind"])
    assert page.locator(".summary").evaluate("line => line.getBoundingClientRect().bottom <= innerHeight")
    page.keyboard.press("Tab")
    assert is_in_form(page)


@pytest.mark.parametrize("kind", KINDS)
def test_the_keyboard_alone_does_the_task(open_page, models, kind):
    """The example is answered, and then what is typed; each answer is announced and has its latency."""
    for model in of_kind(models, kind):
        page = open_page(address(model))
        page.wait_for_selector("form")
        press_tab_until(page, lambda page=page: is_in_form(page))
        page.keyboard.press("Control+Enter")
        first = wait_for_answer(page, kind)
        assert page.locator(".latency dt").all_inner_texts()[:5] == [
            "Total",
            "Queue",
            "Tokenizing",
            "Computing",
            "In the browser",
        ]
        assert "unknown" not in page.locator(".latency").inner_text()
        # The live region is the one that was there before the answer.
        assert first == page.get_by_role("status").inner_text()
        page.keyboard.press("Control+A")
        page.keyboard.type("An old man [MASK] the boat.")
        press_tab_until(page, lambda page=page: page.evaluate("document.activeElement.type === 'submit'"))
        page.evaluate("document.querySelector('.latency').remove()")  # so that the next one is waited for
        page.keyboard.press("Enter")
        wait_for_answer(page, kind)
        assert page.evaluate("document.activeElement.type === 'submit'")  # the focus has not moved


@pytest.mark.parametrize("kind", KINDS)
def test_a_narrow_window_needs_no_scrolling_to_the_side(open_page, models, kind):
    for model in of_kind(models, kind):
        page = open_page(address(model), NARROW)
        page.wait_for_selector("form")
        assert overhang(page) == 0
        page.locator("form textarea, form input").first.fill("[MASK] " + "x" * 300)
        page.locator("[type=submit]").click()
        wait_for_answer(page, kind)
        page.locator("details summary").last.click()
        assert overhang(page) == 0


@pytest.mark.parametrize("colors", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_contrast_and_labels(open_page, models, kind, colors):
    """All text has the contrast 4.5 that WCAG's level AA asks for, and each field a label."""
    for model in of_kind(models, kind):
        page = open_page(address(model), colors=colors)
        page.wait_for_selector("form")
        page.locator("[type=submit]").click()
        wait_for_answer(page, kind)
        page.mouse.move(0, 0)
        assert page.evaluate(PALE_TEXTS) == []
        assert page.evaluate(FIELDS_WITHOUT_LABEL) == 0


def test_an_error_is_one_line(open_page, models):
    model = of_kind(models, "masked-lm")[0]
    page = open_page(address(model))
    page.wait_for_selector("form")
    page.get_by_label("Text").press("Control+Enter")
    wait_for_answer(page, "masked-lm")
    page.get_by_label("Text").fill("no mask")
    page.get_by_label("Text").press("Control+Enter")
    alert = page.get_by_role("alert").filter(has_text="MASK")
    alert.wait_for()
    assert "\n" not in alert.inner_text().strip()
    assert page.locator(".latency").count() == 0  # no older answer stands below it


def test_a_warning_is_one_line(open_page, models):
    """A text that is longer than the model reads is answered, and the page says what was left out."""
    for kind, field in (("embedder", "source"), ("classifier", "text")):
        page = open_page(address(of_kind(models, kind)[0]))
        page.wait_for_selector("form")
        page.locator(f"[name={field}]").fill("Ada Lovelace lived in London. " * 600)
        with page.expect_response(lambda response: response.request.method == "POST") as sent:
            page.locator("[type=submit]").click()
        answer = sent.value.json()
        wait_for_answer(page, kind)
        (warning,) = page.locator("[aria-live] .warning").all_inner_texts()
        if kind == "classifier":
            assert [warning] == answer["warnings"]
        else:  # the example's other texts may be too long as well
            assert warning.endswith("left out.")


def test_a_key_is_asked_for(open_page, models):
    """The page asks for the key that the server wants, and again after a wrong one, and keeps it in its tab."""
    seen = []

    def want_key(route):
        seen.append(route.request.headers.get("authorization"))
        if seen[-1] == "Bearer right":
            route.continue_()
        else:
            error = {"error": "the key is missing or wrong", "error_type": "Unauthorized"}
            route.fulfill(status=401, json=error)

    page = open_page(intercept=want_key)
    field = page.get_by_label("API key")
    field.wait_for()
    assert page.locator(".error").count() == 0
    page.keyboard.type("wrong")  # the field has the focus
    page.keyboard.press("Enter")
    page.get_by_role("alert").filter(has_text="the key is missing or wrong").wait_for()
    page.keyboard.type("right")
    with page.expect_response(lambda response: response.url.endswith("/models") and response.ok):
        page.keyboard.press("Enter")
    page.wait_for_selector(".panel")
    assert seen == [None, "Bearer wrong", "Bearer right"]
    with page.expect_request(lambda request: request.method == "POST") as sent:
        page.locator("[type=submit]").click()
    assert sent.value.headers["authorization"] == "Bearer right"
    page.reload()
    page.wait_for_selector(".panel")
    assert page.evaluate("localStorage.length") == 0


def test_spans_count_characters(open_page, models):
    """A character beyond UTF-16's first plane does not move the marks."""
    for kind, field in (("tagger", "Text"), ("question-answerer", "Passage")):
        page = open_page(address(of_kind(models, kind)[0]))
        page.wait_for_selector("form")
        page.get_by_role("textbox", name=field).fill("𝔸𝔹 🎩🎩 Ada Lovelace lived in London.")
        with page.expect_response(lambda response: response.request.method == "POST") as sent:
            page.locator("[type=submit]").click()
        result = sent.value.json()["results"][0]
        wait_for_answer(page, kind)
        expected = (
            result["spans"] if kind == "tagger" else [{"text": result["answer"]}] if result["answer"] else []
        )
        marks = page.locator("mark").evaluate_all(
            "all => all.map(mark => [...mark.childNodes].find(node => node.nodeType === 3).data)"
        )
        assert marks == [span["text"] for span in expected]


def test_markup_stays_text(open_page, models):
    page = open_page(address(of_kind(models, "embedder")[0]))
    page.wait_for_selector("form")
    page.get_by_label("Texts to compare it with").fill("<img src=x onerror=alert(1)>\n<b>bold</b>")
    page.locator("[type=submit]").click()
    wait_for_answer(page, "embedder")
    assert set(page.locator(".bars .label").all_inner_texts()) == {
        "<img src=x onerror=alert(1)>",
        "<b>bold</b>",
    }
    assert page.locator(".bars img, .bars b").count() == 0


@pytest.mark.parametrize("viewport", [None, NARROW])
def test_docs(open_page, server_url, viewport):
    """Every route is there, opens with the keyboard, and has an example to copy."""
    with urllib.request.urlopen(f"{server_url}/openapi.json") as response:
        paths = json.load(response)["paths"]
    methods = ("get", "post", "put", "patch", "delete")
    routes = {(method.upper(), path) for path, all in paths.items() for method in methods if method in all}
    page = open_page("/docs", viewport)
    page.wait_for_selector(".route")
    names = page.locator(".route > summary .method").all_inner_texts()
    assert set(zip(names, page.locator(".route > summary .path").all_inner_texts(), strict=True)) == routes
    press_tab_until(page, lambda: page.evaluate("document.activeElement.matches('.route > summary')"))
    page.keyboard.press("Enter")
    assert page.locator(".route[open]").count() == 1
    assert "curl '" in page.locator(".route[open] .code").inner_text()
    page.get_by_role("button", name="Open all routes").press("Enter")
    assert page.locator(".route[open]").count() == len(routes)
    assert "undefined" not in page.locator("main").inner_text()
    assert overhang(page) == 0
    assert page.evaluate(PALE_TEXTS) == []


FIELDS_WITHOUT_LABEL = (
    "[...document.querySelectorAll('input, textarea')].filter(f => f.labels.length !== 1).length"
)
# Texts whose contrast with what lies behind them is below 4.5. A canvas turns every notation of a colour to numbers.
PALE_TEXTS = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paint = (colors) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => (node ? [...behind(node.parentElement), getComputedStyle(node).backgroundColor] : []);
  const pale = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest("noscript, script")) continue;
    const ground = behind(node);
    const both = [paint(ground), paint([...ground, getComputedStyle(node).color])].map(luminance);
    const [low, high] = both.sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) pale.push(`${contrast.toFixed(2)} ${walker.currentNode.data}`);
  }
  return pale;
}"""
