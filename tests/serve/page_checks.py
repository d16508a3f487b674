"""What a person at a browser sees of a server: they have a keyboard, a narrow window, a screen reader.

test_page.py runs this file in an environment that has the browser's driver.
"""

import json
import urllib.request

import pytest

from tests.serve.browser import (
    KINDS,
    NARROW,
    address,
    focused,
    is_in_form,
    of_kind,
    overhang,
    press_tab_until,
    wait_for_answer,
)


def test_everything_is_of_this_server(server_url):
    """The policy of the pages forbids inline scripts, styles and other hosts."""
    for path in ("/", "/docs"):
        asked = urllib.request.Request(server_url + path, headers={"Accept": "text/html"})
        with urllib.request.urlopen(asked) as response:
            assert "default-src 'self'" in response.headers["content-security-policy"]


def test_models_are_listed(open_page, models):
    page = open_page()
    page.wait_for_selector("form")
    assert page.locator("h1").inner_text().startswith(models[0]["name"])
    if len(models) > 1:
        links = page.get_by_role("navigation", name="Models").get_by_role("link")
        assert [text.split("\n")[0] for text in links.all_inner_texts()] == [
            model["name"] for model in models
        ]
        assert links.first.get_attribute("aria-current") == "page"


def test_a_model_is_picked_with_the_keyboard(open_page, models):
    page = open_page()
    page.wait_for_selector("form")
    press_tab_until(page, lambda: models[1]["name"] in focused(page))
    page.keyboard.press("Enter")
    page.wait_for_function("name => document.title.startsWith(name)", arg=models[1]["name"])
    # The heading has the focus, so that the next Tab is in the form.
    assert focused(page).startswith(models[1]["name"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('form') !== null")


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
def test_every_field_has_a_label(open_page, models, kind):
    for model in of_kind(models, kind):
        page = open_page(address(model))
        page.wait_for_selector("form")
        assert page.evaluate(
            "[...document.querySelectorAll('input, textarea')].every(field => field.labels.length === 1)"
        )


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
def test_contrast(open_page, models, kind, colors):
    """All text has the contrast 4.5 that WCAG's level AA asks for."""
    for model in of_kind(models, kind):
        page = open_page(address(model), colors=colors)
        page.wait_for_selector("form")
        page.locator("[type=submit]").click()
        wait_for_answer(page, kind)
        page.mouse.move(0, 0)
        assert page.evaluate(PALE_TEXTS) == []


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


def test_an_empty_field_is_named(open_page, models):
    model = of_kind(models, "masked-lm")[0]
    page = open_page(address(model))
    page.wait_for_selector("form")
    page.get_by_label("Text").fill(" ")
    page.get_by_label("Text").press("Control+Enter")
    page.get_by_role("alert").filter(has_text="“Text” is empty").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"


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


def test_no_server(open_page, models):
    model = models[0]
    page = open_page(address(model))
    page.wait_for_selector("form")
    page.context.set_offline(True)
    page.locator("[type=submit]").click()
    page.get_by_role("alert").filter(has_text="The server does not answer.").wait_for()


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


def test_a_label_is_read_as_text(open_page, models):
    """A label stands beside its span and not in its colour only."""
    page = open_page(address(of_kind(models, "tagger")[0]))
    page.wait_for_selector("form")
    page.locator("[type=submit]").click()
    wait_for_answer(page, "tagger")
    for mark in page.locator("mark").all():
        label = mark.locator(".tag")
        assert label.is_visible()
        assert mark.get_attribute("title").startswith(label.inner_text())
        assert "score" in mark.inner_text()


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


def test_the_labels_of_a_model_are_listed(open_page, models):
    for model in of_kind(models, "classifier"):
        page = open_page(address(model))
        page.wait_for_selector("form")
        assert ", ".join(model["labels"]) in page.locator(".facts").inner_text()


def test_abstaining_is_asked_for_only_where_it_is_possible(open_page, models):
    for model in of_kind(models, "classifier"):
        page = open_page(address(model))
        page.wait_for_selector("form")
        possible = bool(model["highest_precision"]) and model["predicts"] != "number"
        assert page.get_by_label("Wanted precision").count() == possible
        if possible:
            field = page.get_by_label("Wanted precision")
            field.fill("7")
            page.keyboard.press("Enter")
            page.get_by_role("alert").filter(has_text="takes a number from").wait_for()
            field.fill(field.get_attribute("placeholder"))
            with page.expect_response(lambda response: response.request.method == "POST") as sent:
                page.keyboard.press("Enter")
            wait_for_answer(page, "classifier")
            result = sent.value.json()["results"][0]
            abstains = any(one["abstained"] for one in result.get("labels", [result]))
            assert ("abstains" in page.get_by_role("status").inner_text()) == abstains
            assert (page.locator(".badge.abstains").count() > 0) == abstains


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
