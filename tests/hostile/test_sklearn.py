"""Odd arguments of the estimators: each is refused in one line."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from bert_jax.core.errors import BertJaxError
from bert_jax.sklearn import BertClassifier, BertRegressor, TextEmbedder
from tests.support.small_models import write_model

TEXTS, CLASSES = ["the cat", "the mat"] * 4, ["a", "b"] * 4
NO_TEXTS = [None, 3, "the cat", b"cat", {"a": 1}, [3], [None], iter(["the cat"])]
NO_CLASSES = [
    None,
    3,
    "a",
    CLASSES[:3],
    np.zeros((8, 2, 2)),
    [None] * 8,
    ["a"] * 8,
    [0.5, 1.5] * 4,
    [[1, 3]] * 8,
]
NO_NUMBERS = [None, 3, CLASSES, [1.0], np.zeros((8, 2)), [None] * 8, [np.inf] * 8]
NO_MODELS = [None, 3, "", "nowhere", b"x"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    write_model(path)
    return str(path)


def refused(call, *given) -> BertJaxError:
    with pytest.raises(BertJaxError) as error:
        call(*given)
    assert "\n" not in str(error.value)
    return error.value


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [BertClassifier, BertRegressor])
def test_what_cannot_be_learnt_from(estimator, encoder):
    y = CLASSES if estimator is BertClassifier else [1.0, 2.5] * 4
    settings = {"method": "linear_probe", "max_length": 16, "config": {"data": {"folds": 0}}}
    for texts in NO_TEXTS:
        refused(estimator(encoder, **settings).fit, texts, y)
    for targets in NO_CLASSES if estimator is BertClassifier else NO_NUMBERS:
        error = refused(estimator(encoder, **settings).fit, TEXTS, targets)
        assert isinstance(error, ValueError), "what scikit-learn's own estimators raise"
    for init in NO_MODELS:
        refused(estimator(init, **settings).fit, TEXTS, y)
    for wrong in ({"method": "probe"}, {"epochs": "x"}, {"max_length": 0}, {"config": {"lr": "x"}}):
        refused(estimator(encoder, **settings | wrong).fit, TEXTS, y)


@pytest.mark.slow
def test_what_cannot_be_read(encoder):
    embedder = TextEmbedder(encoder, pooling="mean").fit()
    for texts in NO_TEXTS:
        refused(embedder.transform, texts)
    for init in NO_MODELS:
        refused(TextEmbedder(init, pooling="mean").fit)
    for wrong in ({"pooling": "most"}, {"pooling": None}):
        refused(TextEmbedder(encoder, **wrong).fit)
    for wrong in ({"prompt_name": "query"}, {"truncate_dim": 0}):
        refused(TextEmbedder(encoder, pooling="mean", **wrong).fit().transform, TEXTS)
