"""What Python entry points say to arguments that they cannot take: one line, and never a traceback of a library's."""

import io
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.hostile import material
from tests.hostile.outcomes import LONGEST


@pytest.fixture(scope="module")
def models(small, tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    vocabulary = small / "vocabulary"
    paths = {
        "tag": material.model(root / "tagger", vocabulary, ("tag",), ("O", "B-X")),
        "answer": material.model(root / "finder", vocabulary, ("answer",)),
        "classify": small / "classifier",
        "mlm": small / "masked",
    }
    return {name: bert_jax.load(path) for name, path in paths.items()} | {"path": small / "masked"}


NO_TEXTS = (
    None, 3, 2.5, True, b"w1", {"w1": 1}, {"w1"}, [None], [3], [["w1", 3]], [("w1", "w2", "w3")], [b"w1"], ["w1", None],
    np.zeros(3), np.zeros((2, 2)), np.array("w1"), np.array([["w1", "w2"]]), object(), len, range(3), [["w1"]], (),
)  # fmt: skip
NO_NUMBERS = ("x", None, float("nan"), float("inf"), -1, 0, 2.5, [1], np.zeros(2), 10**30, True)
NO_PATHS = (None, 3, "", [], b"masked", {}, np.zeros(2), io.StringIO())
NO_NAMES = (3, "nowhere", [], {}, np.zeros(2), b"cls", object())


def calls():
    """(name, call of the models)"""
    for n, wrong in enumerate(NO_TEXTS):
        for name in ("hidden_states", "pooled", "encode"):
            yield f"{name} {n}", lambda m, name=name, wrong=wrong: getattr(m["mlm"], name)(wrong)
        for method, name in (
            ("embed", "mlm"),
            ("fill_mask", "mlm"),
            ("classify", "classify"),
            ("tag", "tag"),
        ):
            yield (
                f"{method} {n}",
                lambda m, p=(method, name), wrong=wrong: used(getattr(m[p[1]], p[0])(wrong)),
            )
        yield f"tag_words {n}", lambda m, wrong=wrong: used(m["tag"].tag_words(wrong))
        yield f"answer {n}", lambda m, wrong=wrong: used(m["answer"].answer(wrong, "w1 w2"))
        yield f"answer of {n}", lambda m, wrong=wrong: used(m["answer"].answer("w1", wrong))
        yield f"tokenizer {n}", lambda m, wrong=wrong: m["mlm"].tokenizer.encode(wrong)
    for n, wrong in enumerate(NO_NUMBERS):
        yield f"top {n}", lambda m, wrong=wrong: m["mlm"].fill_mask("w1 [MASK]", top=wrong)
        yield f"longest {n}", lambda m, wrong=wrong: m["answer"].answer("w1", "w2", longest=wrong)
        yield f"precision {n}", lambda m, wrong=wrong: m["classify"].classify("w1", precision=wrong)
        yield f"seed {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], head="answer", seed=wrong)
        yield f"max_length {n}", lambda m, wrong=wrong: m["mlm"].tokenizer.encode(["w1"], max_length=wrong)
        yield f"vocab_multiple {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], vocab_multiple=wrong)
        yield f"ids {n}", lambda m, wrong=wrong: m["mlm"].tokenizer.decode([wrong])
    for n, wrong in enumerate(NO_PATHS):
        yield f"load {n}", lambda m, wrong=wrong: bert_jax.load(wrong)
        yield f"save {n}", lambda m, wrong=wrong: m["mlm"].save(wrong)
    for n, wrong in enumerate(NO_NAMES):
        yield f"head {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], head=wrong)
        yield f"labels {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], head="classify", labels=wrong)
        yield (
            f"label {n}",
            lambda m, wrong=wrong: bert_jax.load(m["path"], head="classify", labels=["a", wrong]),
        )
        yield f"dtype {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], dtype=wrong)
        yield f"attention {n}", lambda m, wrong=wrong: bert_jax.load(m["path"], attention=wrong)
        yield f"pooling {n}", lambda m, wrong=wrong: m["mlm"].pooled(["w1"], pooling=wrong)
        yield f"pooling of embed {n}", lambda m, wrong=wrong: m["mlm"].embed("w1", pooling=wrong)
        yield f"prompt {n}", lambda m, wrong=wrong: m["mlm"].embed("w1", prompt=wrong)
        yield f"long_texts {n}", lambda m, wrong=wrong: m["classify"].classify("w1", long_texts=wrong)
    yield "labels twice", lambda m: bert_jax.load(m["path"], head="classify", labels=["a", "a"])
    yield "a field", lambda m: bert_jax.load(m["path"], layers=3)
    yield "a misspelt field", lambda m: bert_jax.load(m["path"], dtpye="float32")
    yield "two lengths", lambda m: used(m["answer"].answer(["w1", "w2"], ["w3"]))
    yield "two streams", lambda m: used(m["answer"].answer(iter(["w1", "w2"]), iter(["w3"])))
    yield "no mask", lambda m: m["mlm"].fill_mask("w1")
    yield "no such head", lambda m: m["mlm"].classify("w1")


# No texts at all, lists of words, and values that these calls can take.
RIGHT = {
    "tokenizer 21", "answer 21", "answer of 21", "tag_words 10",
    "tag_words 20",
    "tag_words 21", "seed 4", "seed 5", "precision 1", "max_length 1", "ids 5", "ids 10", "label 1",
}  # fmt: skip


def used(results):
    return list(results) if isinstance(results, Iterator) else results


@pytest.mark.parametrize("name", [name for name, _ in calls()])
def test_a_wrong_argument_is_one_line(models, name):
    call = dict(calls())[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in RIGHT:
            call(models)
            return
        with pytest.raises(BertJaxError) as raised:
            call(models)
    message = str(raised.value)
    assert "\n" not in message and 0 < len(message) < LONGEST
