"""What the public functions say to arguments that they cannot take: one line, as tests/hostile/test_python.py asks."""

import inspect
import io
import json
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.hostile.outcomes import LONGEST

NO_PATHS = (None, 3, "", [], b"x", {}, np.zeros(2), io.StringIO(), "nowhere/at/all")
NO_NUMBERS = ("x", float("nan"), float("inf"), -1, 2.5, [1], np.zeros(2), 10**30, True)
NO_TEXTS = (
    None,
    3,
    True,
    b"w1",
    {"w1": 1},
    {"w1"},
    [None],
    [3],
    [b"w1"],
    [["w1"]],
    np.zeros((2, 2)),
    object(),
    len,
)
NO_DOCUMENTS = (
    *NO_TEXTS, [], iter([]), [" "], "", "nowhere.txt", Path("nowhere"), [Path("nowhere")],
    pd.DataFrame({"text": ["a"]}),
    [("a",)], [("a", 3)], [(None, "w1")], [("a", "w1"), ("a", "w2")], [{"text": "w1"}], [{"id": "a"}], [{1: "a"}],
    [{"id": 2.5, "text": "w1"}], [{"id": "a", "text": ["w1"]}], [{"id": "a", "text": "w1", "title": 3}], ["w1", 3],
)  # fmt: skip
DOCUMENTS = [("a", "w1 w2"), ("b", "w2 w3")]
Call = Callable[[Path, Path], Any]  # with the folder of tests/hostile/material.py and an empty one


@pytest.fixture
def empty(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def calls() -> Iterator[tuple[str, Call]]:
    yield from training_calls()
    yield from task_calls()
    yield from index_calls()
    yield from evaluation_calls()
    yield from text_calls()
    yield from mining_calls()


def training_calls() -> Iterator[tuple[str, Call]]:
    for n, wrong in enumerate(
        (3, 2.5, True, b"classify", [], object(), "no such config", Path("nowhere.py"), {"task": 3})
    ):
        yield f"train {n}", lambda _, to, wrong=wrong: bert_jax.train(wrong, workdir=to / "run")
    for n, wrong in enumerate(NO_PATHS[1:-1]):
        yield (
            f"train into {n}",
            lambda small, _, wrong=wrong: bert_jax.train(
                "classify", workdir=wrong, init=small / "masked", data={"train": small / "labelled.jsonl"}
            ),
        )
        yield (
            f"finetune {n}",
            lambda _, to, wrong=wrong: bert_jax.finetune(wrong, ["w1"], ["a"], workdir=to / "run"),
        )
        yield (
            f"finetune into {n}",
            lambda small, _, wrong=wrong: bert_jax.finetune(
                small / "masked", ["w1", "w2"], ["a", "b"], workdir=wrong
            ),
        )
    yield "train with a misspelt argument", lambda *_: bert_jax.train("classify", work_dir="run")
    yield "train with a misspelt key", lambda *_: bert_jax.train("classify", epocs=3)
    for n, wrong in enumerate((None, 3, "ab", b"a", {"a": 1}, [], [None], np.zeros((2, 2)))):
        yield (
            f"finetune on {n}",
            lambda small, to, wrong=wrong: bert_jax.finetune(
                small / "masked", wrong, ["a"], workdir=to / "run"
            ),
        )


@cache
def opened_task(small: Path) -> bert_jax.TrainingTask:
    data = {"train": small / "labelled.jsonl", "max_length": 32, "folds": 0}
    return bert_jax.open_task("classify", init=small / "masked", data=data, epochs=1, head_init="pretrained")


def losses(task: bert_jax.TrainingTask, params: Any) -> dict:
    return task.losses(params, next(task.batches()))


def task_calls() -> Iterator[tuple[str, Call]]:
    for n, wrong in enumerate((3, 2.5, True, b"classify", [], object(), "no such config", {"task": 3}, {})):
        yield f"open_task {n}", lambda *_, wrong=wrong: bert_jax.open_task(wrong)
    yield "open_task with a misspelt argument", lambda *_: bert_jax.open_task("classify", confg="classify")
    yield "open_task with a workdir", lambda *_: bert_jax.open_task("classify", workdir="run")
    for n, wrong in enumerate(NO_NUMBERS):
        yield f"start of batches {n}", lambda small, _, wrong=wrong: opened_task(small).batches(wrong)
        yield f"stop of batches {n}", lambda small, _, wrong=wrong: opened_task(small).batches(0, wrong)
    for n, wrong in enumerate((None, 3, [], {}, {"encoder": 1}, "params", np.zeros(2))):
        yield (
            f"params {n}",
            lambda small, _, wrong=wrong: losses(opened_task(small), wrong),
        )
        yield f"batch {n}", lambda small, _, wrong=wrong: opened_task(small).losses({}, wrong)
        yield (
            f"params to save {n}",
            lambda small, to, wrong=wrong: opened_task(small).save(to / "model", wrong),
        )
    for n, wrong in enumerate(NO_PATHS[:-1]):
        yield (
            f"save to {n}",
            lambda small, _, wrong=wrong: opened_task(small).save(wrong, opened_task(small).initial_params()),
        )


def index_calls() -> Iterator[tuple[str, Call]]:
    def opened(to: Path) -> bert_jax.Index:
        return bert_jax.Index.build(DOCUMENTS, to / "index")

    for n, wrong in enumerate(NO_DOCUMENTS):
        yield f"build of {n}", lambda _, to, wrong=wrong: bert_jax.Index.build(wrong, to / "new")
        yield f"add {n}", lambda _, to, wrong=wrong: opened(to).add(wrong)
    for n, wrong in enumerate(NO_PATHS):
        yield f"open_vectors {n}", lambda *_, wrong=wrong: bert_jax.open_vectors(wrong)
        yield f"open {n}", lambda *_, wrong=wrong: bert_jax.Index.open(wrong)
        if wrong is not None:
            yield (
                f"model {n}",
                lambda _, to, wrong=wrong: bert_jax.Index.build(DOCUMENTS, to / "new", model=wrong),
            )
            yield f"open with {n}", lambda _, to, wrong=wrong: bert_jax.Index.open(opened(to).path, wrong)
            yield f"reranker {n}", lambda _, to, wrong=wrong: opened(to).search("w1", reranker=wrong)
        yield f"engine {n}", lambda _, to, wrong=wrong: bert_jax.Index.open(opened(to).path, engine=wrong)
        yield f"build in {n}", lambda *_, wrong=wrong: bert_jax.Index.build(DOCUMENTS, wrong)
    for n, wrong in enumerate((3, None, "yes", [True])):
        yield f"replace {n}", lambda _, to, wrong=wrong: opened(to).add(DOCUMENTS, replace=wrong)
    yield "build twice", lambda _, to: [opened(to), opened(to)]
    for n, wrong in enumerate(NO_NUMBERS):
        for name in ("passage_tokens", "overlap"):
            yield (
                f"{name} {n}",
                lambda _, to, name=name, wrong=wrong: bert_jax.Index.build(
                    DOCUMENTS, to / "new", **{name: wrong}
                ),
            )
        for name in ("top_k", "rerank_top"):
            yield (
                f"{name} {n}",
                lambda _, to, name=name, wrong=wrong: opened(to).search("w1", **{name: wrong}),
            )
    for n, wrong in enumerate((3, "fast", [], b"hnsw", True, "binary")):
        for name in ("quantize", "approximate", "language"):
            yield (
                f"{name} {n}",
                lambda _, to, name=name, wrong=wrong: bert_jax.Index.build(
                    DOCUMENTS, to / "new", **{name: wrong}
                ),
            )
    for n, wrong in enumerate((3, None, [], b"text", "body")):
        for name in ("text", "id", "title"):
            yield (
                f"column {name} {n}",
                lambda small, to, name=name, wrong=wrong: bert_jax.Index.build(
                    small / "labelled.jsonl", to / "new", **{name: wrong}
                ),
            )
    for n, wrong in enumerate(NO_TEXTS):
        yield f"search for {n}", lambda _, to, wrong=wrong: opened(to).search(wrong)
        yield f"remove {n}", lambda _, to, wrong=wrong: opened(to).remove(wrong)
    for n, wrong in enumerate((3, "keywords", ["vectors"], [3], ["x"], b"x", {}, len)):
        yield f"retrievers {n}", lambda _, to, wrong=wrong: opened(to).search("w1", retrievers=wrong)
    for n, wrong in enumerate(
        (3, "keywords", ["keywords"], {"x": 1}, {"keywords": "x"}, {"keywords": -1}, {3: 3})
    ):
        yield f"weights {n}", lambda _, to, wrong=wrong: opened(to).search("w1", weights=wrong)
    yield "remove what is not there", lambda _, to: opened(to).remove("c")


def evaluation_calls() -> Iterator[tuple[str, Call]]:
    def evaluated(small: Path, **changes: Any) -> Any:
        given = {"model": small / "classifier", "data": small / "labelled.jsonl"} | changes
        return bert_jax.evaluate(given.pop("model"), given.pop("data"), **given)

    for n, wrong in enumerate(NO_PATHS):
        for name in ("model", "data", "out_of_scope", "report"):
            if wrong is not None or name in ("model", "data"):
                yield (
                    f"{name} of evaluate {n}",
                    lambda small, _, wrong={name: wrong}: evaluated(small, **wrong),
                )
        yield (
            f"compare {n}",
            lambda small, _, wrong=wrong: bert_jax.compare(
                small / "classifier", wrong, small / "labelled.jsonl"
            ),
        )
        yield (
            f"compare on {n}",
            lambda small, _, wrong=wrong: bert_jax.compare(small / "classifier", small / "classifier", wrong),
        )
    for n, wrong in enumerate((3, None, [], b"text", {}, "body")):
        for name in ("text", "text_pair", "label", "label_separator", "split", "long_texts", "skip_bad"):
            yield (
                f"{name} of evaluate {n}",
                lambda small, _, wrong={name: wrong}: evaluated(small, **wrong),
            )
    for n, wrong in enumerate(NO_NUMBERS):
        yield (
            f"dimensions of evaluate {n}",
            lambda small, _, wrong=wrong: bert_jax.evaluate(
                small / "masked", small / "labelled.jsonl", dimensions=wrong
            ),
        )

    def searched(to: Path, **changes: Any) -> Any:
        given = {"index": bert_jax.Index.build(DOCUMENTS, to / "index"), "data": to} | changes
        return bert_jax.evaluate_index(given.pop("index"), given.pop("data"), **given)

    for n, wrong in enumerate(NO_PATHS):
        for name in ("index", "data", "reranker", "report"):
            if wrong is not None or name in ("index", "data"):
                yield (
                    f"{name} of evaluate_index {n}",
                    lambda _, to, wrong={name: wrong}: searched(judged(to), **wrong),
                )
    for n, wrong in enumerate((3, None, [], b"text", {}, "dev")):
        yield f"split of evaluate_index {n}", lambda _, to, wrong=wrong: searched(judged(to), split=wrong)
    for n, wrong in enumerate((*NO_NUMBERS, 3)):
        yield (
            f"rerank_top of evaluate_index {n}",
            lambda small, to, wrong=wrong: searched(judged(to), rerank_top=wrong),
        )
    yield (
        "bm25 without documents",
        lambda small, _: bert_jax.compare("bm25", small / "masked", small / "labelled.jsonl"),
    )


def judged(folder: Path) -> Path:
    """Write the DOCUMENTS with a query and its judgement into the folder."""
    for name, rows in (("corpus", DOCUMENTS), ("queries", [("q", "w1")])):
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows)
        )
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    return folder


def text_calls() -> Iterator[tuple[str, Call]]:
    def prepared(small: Path, to: Path, **changes: Any) -> Any:
        given = {
            "input": small / "text.txt",
            "tokenizer": small / "vocabulary",
            "output": to / "new",
        } | changes
        return bert_jax.prepare(**{"processes": 1} | given)

    def learnt(small: Path, to: Path, **changes: Any) -> Any:
        return bert_jax.train_tokenizer(
            **{"input": small / "text.txt", "output": to / "new", "size": 900} | changes
        )

    for n, wrong in enumerate(NO_PATHS):
        for name in ("input", "tokenizer", "output"):
            yield (
                f"{name} of prepare {n}",
                lambda small, to, wrong={name: wrong}: prepared(small, to, **wrong),
            )
        for name in ("input", "output", "extend"):
            if wrong is not None or name != "extend":
                yield (
                    f"{name} of train_tokenizer {n}",
                    lambda s, to, wrong={name: wrong}: learnt(s, to, **wrong),
                )
    for n, wrong in enumerate((3, None, [], b"text", {}, "")):
        for name in ("layout", "column", "language"):
            yield (
                f"{name} of prepare {n}",
                lambda small, to, wrong={name: wrong}: prepared(small, to, **wrong),
            )
        for name in ("layout", "column", "kind"):
            yield (
                f"{name} of train_tokenizer {n}",
                lambda s, to, wrong={name: wrong}: learnt(s, to, **wrong),
            )
    for n, wrong in enumerate((*NO_NUMBERS, 0)):
        for name in ("processes", "validation_ratio"):
            yield (
                f"{name} of prepare {n}",
                lambda small, to, wrong={name: wrong}: prepared(small, to, **wrong),
            )
        yield f"size of train_tokenizer {n}", lambda small, to, wrong=wrong: learnt(small, to, size=wrong)
    yield "too small a size of train_tokenizer", lambda small, to: learnt(small, to, size=3)


def mining_calls() -> Iterator[tuple[str, Call]]:
    def mined(small: Path, **changes: Any) -> Any:
        given = {"model": small / "masked", "pairs": [("w1 w2", "w2 w1"), ("w3", "w3 w4")]} | changes
        return bert_jax.mine_hard_negatives(
            given.pop("model"), given.pop("pairs"), **{"negatives": 1} | given
        )

    for n, wrong in enumerate(NO_PATHS):
        for name in ("model", "rescore", "output", "cache"):
            if wrong is not None or name == "model":
                yield f"{name} of mine {n}", lambda small, _, wrong={name: wrong}: mined(small, **wrong)
    for n, wrong in enumerate(
        (*NO_TEXTS, [], "", "nowhere", [("w1",)], [("w1", 3)], [("w1", "")], [{"anchor": "w1"}], [{}])
    ):
        yield f"pairs of mine {n}", lambda small, _, wrong=wrong: mined(small, pairs=wrong)
    for n, wrong in enumerate((3, True, b"w1", {"w1": 1}, [None], [3], [], "", "nowhere", object())):
        yield f"corpus of mine {n}", lambda small, _, wrong=wrong: mined(small, corpus=wrong)
    for n, wrong in enumerate(NO_NUMBERS):
        for name in ("negatives", "range_min", "range_max", "margin", "min_score", "max_score"):
            yield f"{name} of mine {n}", lambda small, _, wrong={name: wrong}: mined(small, **wrong)
    for n, wrong in enumerate((3, None, [], b"text", "body")):
        for name in ("text", "text_pair"):
            yield f"{name} of mine {n}", lambda small, _, wrong={name: wrong}: mined(small, **wrong)


CALLS = dict(calls())
# What these calls can take: a model of an index that needs none, no documents to add, a folder that is made, a
# separator, a share, cosines.
RIGHT = {
    "open with 8", "add 13", "add 14", "add 15", "build in 8", "report of evaluate 8",
    "report of evaluate_index 8", "label_separator of evaluate 5",
    "output of prepare 8", "output of train_tokenizer 8", "validation_ratio of prepare 9",
    "cache of mine 8", "min_score of mine 3", "max_score of mine 3",
}  # fmt: skip


# Each flag of a function, with a call that takes it; those of models stand in tests/hostile/test_python.py.
FLAGS: dict[str, Callable[..., Any]] = {
    "verify": lambda small, to, **flag: bert_jax.Index.open(to, **flag),
    "dequantize": lambda small, to, **flag: bert_jax.open_vectors(to, **flag),
    "strict": lambda small, to, **flag: bert_jax.prepare(
        small / "text.txt", small / "vocabulary", to, **flag
    ),
    "cased": lambda small, to, **flag: bert_jax.train_tokenizer(small / "text.txt", to, **flag),
    "skip_bad": lambda small, to, **flag: bert_jax.mine_hard_negatives(to, [("w1", "w2")], **flag),
    "scores": lambda small, to, **flag: bert_jax.mine_hard_negatives(to, [("w1", "w2")], **flag),
}


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_true_or_false(small, empty, name):
    for wrong in ("no", 1, None, np.zeros(2)):
        with pytest.raises(BertJaxError, match=f"^{name} must be True or False, not "):
            FLAGS[name](small, empty, **{name: wrong})


def test_every_flag_is_tried():
    functions = [value for name in bert_jax.__all__ if inspect.isfunction(value := getattr(bert_jax, name))]
    of_index = [bert_jax.Index.open, bert_jax.Index.build, bert_jax.Index.search]
    flags = {
        parameter.name
        for function in (*functions, *of_index)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.annotation is bool
    }
    assert flags - {"tokenizer"} == {*FLAGS}, "tokenizer is of load"


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_one_line(small, empty, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in RIGHT:
            CALLS[name](small, empty)
            return
        with pytest.raises(BertJaxError) as raised:
            CALLS[name](small, empty)
    message = str(raised.value)
    assert "\n" not in message and 0 < len(message) < LONGEST
    assert not (empty / "new").exists(), "a build that was refused leaves nothing"
