import os
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.inference.batching import BatchShapes, make_batches
from bert_jax.inference.engines.jax import ACCELERATOR_SHAPES, CPU_SHAPES
from bert_jax.text.encoding import Encoding
from tests.support.small_models import write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path)
    return bert_jax.load(path)


@pytest.mark.slow
def test_hidden_states_are_those_of_each_text_alone_in_order(model):
    texts = ["the cat sat", "", ("the mat", "the cat"), "the " * 12, "cats .", "the cat sat on the mat ."]
    together = model.hidden_states(texts)
    assert [states.shape for states in together] == [(5, 8), (2, 8), (7, 8), (14, 8), (5, 8), (9, 8)]
    for text, states in zip(texts, together, strict=True):
        np.testing.assert_allclose(states, model.hidden_states([text])[0], atol=1e-5)


@pytest.mark.slow
def test_vectors_of_an_encoder(model):
    texts = ["the cat sat", "on", "the mat . . . ."]
    states = model.hidden_states(texts)
    mean = np.stack([s.mean(0) for s in states])
    np.testing.assert_allclose(model.encode(texts), mean, atol=1e-5)
    np.testing.assert_allclose(
        np.linalg.norm(model.encode(texts, normalize_embeddings=True), axis=1), 1, rtol=1e-5
    )
    np.testing.assert_allclose(model.encode(texts, pooling="cls"), [s[0] for s in states], atol=1e-5)
    assert np.abs(model.encode(texts, pooling="pooler")).max() <= 1
    assert model.encode([]).shape == (0, 8)
    with pytest.raises(BertJaxError, match='did you mean "mean"'):
        model.encode(texts, pooling="meen")


@pytest.mark.slow
def test_every_method_gives_one_result_a_list_or_an_iterator(tmp_path):
    """As its input is one text, a list, an array, a column of a data frame, or a generator, which is read lazily."""
    for head in ("mlm", "classify", "answer", "tag"):
        labels = ("good", "bad") if head in ("classify", "tag") else ()
        write_model(tmp_path / head, heads=(head,), labels=labels)
    masked, classifier, answerer, tagger = (
        bert_jax.load(tmp_path / head) for head in ("mlm", "classify", "answer", "tag")
    )
    embedder = bert_jax.Embedder.load(tmp_path / "mlm", pooling="mean")
    shown = ["the cat sat", "the mat", "on", "cats ."]
    for name, call in {
        "tokenize": masked.tokenize, "hidden_states": masked.hidden_states, "attentions": masked.attentions,
        "vectors": masked.encode, "encode": embedder.encode, "encode_query": embedder.encode_query,
        "classify": classifier.classify, "predict": classifier.predict, "predict_proba": classifier.predict_proba,
        "tag": tagger.tag, "pseudo_log_likelihood": masked.pseudo_log_likelihood,
        "answer": lambda texts: answerer.answer("the cat", texts),
        "asked": lambda texts: answerer.answer(texts, "the cat"),
        "tag_words": lambda texts: tagger.tag_words(
            texts.split() if isinstance(texts, str) else like(texts, str.split)
        ),
        "fill_mask": lambda texts: masked.fill_mask(
            f"{texts} [MASK]" if isinstance(texts, str) else like(texts, "{} [MASK]".format)
        ),
    }.items():  # fmt: skip
        expected = [call(text) for text in shown]
        read = []
        lazily = call(read.append(text) or text for text in shown)
        assert isinstance(lazily, Iterator) and not read, name
        inputs = [shown, np.array(shown), pd.Series(shown, index=[4, 3, 2, 1])]
        for results in (*map(call, inputs), list(lazily)):
            assert len(results) == len(shown), name
            for result, of_one in zip(results, expected, strict=True):
                same(result, of_one)


def same(result, of_one) -> None:
    if isinstance(result, np.ndarray):
        np.testing.assert_allclose(result, of_one, atol=1e-5)
    else:
        assert repr_of(result) == repr_of(of_one)


def repr_of(result) -> str:
    """With numbers as far as batches of other sizes give them alike."""
    return re.sub(r"\d+\.\d+(e-\d+)?", lambda number: f"{float(number[0]):.3f}", repr(result))


def like(texts, change):
    """The texts changed, in the same form."""
    if isinstance(texts, list):
        return list(map(change, texts))
    if isinstance(texts, np.ndarray):
        return np.array([*map(change, texts), None], object)[:-1]
    return texts.map(change) if isinstance(texts, pd.Series) else map(change, texts)


@pytest.mark.slow
def test_bfloat16_rounds_what_is_computed_and_not_what_is_saved(tmp_path, model):
    model.save(tmp_path / "model")
    rounded = bert_jax.load(tmp_path / "model", dtype="bfloat16")
    vectors, exact = (
        m.encode(["the cat sat on the mat"], normalize_embeddings=True) for m in (rounded, model)
    )
    assert 1e-6 < np.abs(vectors - exact).max() < 0.02
    rounded.save(tmp_path / "saved")
    saved = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("model", "saved")]
    assert saved[0] == saved[1]


@pytest.mark.parametrize(
    ("allowed", "rungs", "padding"),
    [(CPU_SHAPES, 39, 0.15), (ACCELERATOR_SHAPES, 16, 0.4), (BatchShapes(1024), 512, 0.02)],
)
def test_batches_hold_every_text_once_in_few_shapes_with_little_padding(allowed, rungs, padding):
    assert len({allowed.padded_length(length, 512) for length in range(1, 513)}) == rungs
    lengths = np.random.RandomState(0).geometric(0.02, 3000).clip(2, 512)
    encodings = [Encoding([5] * n, [0] * n, [(0, 0)] * n) for n in lengths]
    seen, shapes, area = [], set(), 0
    for rows, batch in make_batches(encodings, 512, 0, allowed):
        seen += [i for row in rows for i in row]
        shapes.add(batch["input_ids"].shape)
        area += batch["input_ids"].size
        held = batch["attention_mask"].sum(1)[: len(rows)]
        assert held.tolist() == [sum(lengths[i] for i in row) for row in rows]
    assert sorted(seen) == list(range(3000))
    assert area < (1 + padding) * lengths.sum()
    assert all(rows in allowed.row_counts(length) for rows, length in shapes)
    # A shape for each rung of lengths, and one for the last batch, which is not full.
    assert len(shapes) <= rungs + 1


@pytest.mark.slow
def test_inference_loads_neither_tensorflow_nor_torch(tmp_path):
    write_model(tmp_path)
    program = (
        "import sys, bert_jax; bert_jax.load(sys.argv[1]).encode(['the cat']);"
        "sys.exit(', '.join({'tensorflow', 'torch'} & set(sys.modules)) or 0)"
    )
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    ran = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
