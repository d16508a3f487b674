"""Texts that are longer than a model reads: the answer says so, or the request is refused."""

import json
import urllib.error
import urllib.request

import pytest

LONG = "the cat sat on the mat . " * 5
SPACES = "cat" + " " * 3000 + "mat"  # few tokens, but the second word lies behind what is read of a text


@pytest.fixture
def ask(served):
    """Ask a model; return (status, headers, body)."""

    def ask(path: str, **body) -> tuple[int, dict[str, str], dict]:
        request = urllib.request.Request(
            f"{served}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, dict(answer.headers), json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), json.load(error)

    return ask


@pytest.mark.parametrize("text", [LONG, SPACES])
def test_truncation_is_told_or_refused(ask, text):
    path = "/models/embedder/embed"
    status, headers, vectors = ask(path, inputs=["the cat", text])
    assert status == 200 and headers["x-truncated-texts"] == "1" and len(vectors) == 2
    status, _, refused = ask(path, inputs=["the cat", text], truncate=False)
    assert status == 422 and "text 2 of 2 is longer than the 16 tokens" in refused["error"]
    status, headers, _ = ask(path, inputs=["the cat"], truncate=False)
    assert status == 200 and "x-truncated-texts" not in headers


def test_dialects_with_a_place_for_it_say_which_texts(ask):
    warning = "texts 1, 2 of 2 are longer than the 16 tokens that the model reads; the rest was left out"
    _, _, embedded = ask("/models/embedder/v2/embed", texts=[LONG, LONG], input_type="search_document")
    assert embedded["meta"]["warnings"] == [warning]
    _, _, classified = ask("/models/classifier/classify", inputs=[LONG, LONG])
    assert classified["warnings"] == [warning] and len(classified["results"]) == 2


def test_taggers_and_answerers_read_all_of_a_text(ask):
    _, headers, tagged = ask("/models/tagger/tag", inputs=[LONG])
    assert tagged["warnings"] == [] and "x-truncated-texts" not in headers
    assert int(headers["x-compute-tokens"]) > 35
    _, _, answered = ask("/models/answerer/answer", inputs={"question": "the cat", "context": LONG})
    assert answered["warnings"] == [] and len(answered["results"]) == 1
