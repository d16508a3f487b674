"""The estimators in scikit-learn's own tools."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.embedder import Embedder
from bert_jax.sklearn import BertClassifier, BertRegressor, TextEmbedder, read_classes, read_numbers
from tests.support.texts import marked_texts

PROBE = {"method": "linear_probe", "max_length": 32, "config": {"data": {"folds": 0}}}


@pytest.fixture(scope="module")
def labelled():
    """Texts and their classes, 3 and 7."""
    texts, labels = zip(*marked_texts(80, 0), strict=True)
    return list(texts), np.where(np.array(labels) == labels[0], 3, 7)


@pytest.mark.ci
def test_a_classifier_is_cloned_searched_and_pickled(encoder_path, labelled, capfd):
    texts, y = labelled
    estimator = BertClassifier(str(encoder_path), **PROBE)
    assert clone(estimator).get_params() == estimator.get_params()
    with pytest.raises(NotFittedError):
        estimator.predict(texts)
    search = GridSearchCV(estimator, {"max_length": [16, 32]}, cv=2).fit(texts, y)
    best = search.best_estimator_
    assert best.classes_.tolist() == [3, 7] and set(search.predict(texts)) <= {3, 7}
    probabilities = best.predict_proba(np.array(texts))
    assert probabilities.shape == (80, 2)
    np.testing.assert_array_equal(best.predict(texts), best.classes_[probabilities.argmax(1)])
    assert best.score(texts, y) == (best.predict(texts) == y).mean()
    assert capfd.readouterr() == ("", ""), "as in scikit-learn"
    same = pickle.loads(pickle.dumps(best))
    np.testing.assert_allclose(same.predict_proba(texts), probabilities, atol=1e-6)


@pytest.mark.ci
def test_several_labels_and_numbers(encoder_path, labelled, capfd):
    texts, y = labelled
    several = np.stack([y == 3, y == 7, np.ones(len(y), bool)], axis=1).astype(int)
    several[::2, 2] = 0
    many = BertClassifier(str(encoder_path), **PROBE).fit(texts, several)
    assert many.predict(texts).shape == many.predict_proba(texts).shape == (80, 3)
    np.testing.assert_array_equal(many.predict(texts), many.model_.predict(texts)[:, many.columns_])
    numbers = BertRegressor(str(encoder_path), verbose=1, **PROBE).fit(texts, y / 2)
    assert "starts as a linear probe" in capfd.readouterr().err
    assert numbers.predict(texts).shape == (80,)
    assert numbers.score(texts, y / 2) > 0


@pytest.mark.slow
def test_vectors_in_a_pipeline(encoder_path, labelled):
    texts, y = labelled
    pipeline = make_pipeline(TextEmbedder(str(encoder_path), pooling="mean"), LogisticRegression())
    assert pipeline.fit(texts, y).predict(texts).shape == (80,)
    vectors = pipeline[0].transform(texts)
    np.testing.assert_array_equal(vectors, Embedder.load(encoder_path, pooling="mean").encode(texts))
    assert len(pipeline[0].get_feature_names_out()) == vectors.shape[1]


def test_an_estimator_without_a_model_is_refused(labelled):
    with pytest.raises(
        BertJaxError, match=r'name a model directory to start from: BertClassifier\("path/to/'
    ):
        BertClassifier().fit(*labelled)


def test_targets_in_one_column_are_read_as_one_for_each_text():
    with pytest.warns(DataConversionWarning):
        labels, classes = read_classes([["b"], ["a"], ["b"]])
    assert labels.tolist() == ["b", "a", "b"] and classes.tolist() == ["a", "b"]
    with pytest.warns(DataConversionWarning):
        assert read_numbers([[1], [2.5]]).tolist() == [1, 2.5]
