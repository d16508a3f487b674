"""Fine-tuned models and embedders as estimators of scikit-learn, for pipelines, cross-validation and grid searches.

    from bert_jax.sklearn import BertClassifier
    cross_val_score(BertClassifier("path/to/bert", method="linear_probe"), texts, labels)

An estimator is pickled with its model. scikit-learn is imported only here: `pip install bert-jax[sklearn]`.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.inference.classifier import Classifier
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.streaming import ordered_texts
from bert_jax.runs.finetune import finetune
from bert_jax.runs.train import merge_keys
from bert_jax.text.tables import type_name


def list_texts(X) -> list:
    """Return the texts of X as a list; refuse a single text, which would be read character by character."""
    if isinstance(X, str) or not isinstance(texts := ordered_texts(X), Sequence):
        raise BertJaxError(f"X must be a list, an array or a column of texts, not {type_name(X)}")
    return list(texts)


def read_targets(y, dimensions: tuple[int, ...]) -> np.ndarray:
    """Return y as an array; refuse one of other dimensions."""
    targets = np.asarray(y)
    if targets.ndim not in dimensions:
        allowed = " or ".join(map(str, dimensions))
        raise BertJaxError(f"y has {targets.ndim} dimensions; give an array of {allowed}")
    return targets


class FineTuned(BaseEstimator):
    """What the estimators that fine-tune share. `config` holds further keys of configs/classify.py, as a dict."""

    def __init__(
        self,
        init: str = "",
        *,
        method: str = "auto",
        epochs: float | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        random_state: int = 0,
        workdir: str | None = None,
        config: Mapping[str, Any] | None = None,
    ):
        self.init, self.method, self.epochs, self.learning_rate = init, method, epochs, learning_rate
        self.batch_size, self.max_length, self.random_state = batch_size, max_length, random_state
        self.workdir, self.config = workdir, config

    def _train(self, texts, y, **keys) -> Classifier:
        """Fine-tune on texts and their labels, and return the model."""
        if not isinstance(self.init, str | PathLike) or not str(self.init):
            raise BertJaxError(f'name a model directory to start from: {type(self).__name__}("path/to/bert")')
        chosen = {
            "method": self.method,
            "epochs": self.epochs,
            "optimizer.learning_rate": self.learning_rate,
            "data.batch_size": self.batch_size,
            "data.max_length": self.max_length,
            "seed": self.random_state,
            "report": self.workdir is not None,
        }
        given = merge_keys({key: value for key, value in chosen.items() if value is not None}, keys)
        run = finetune(
            self.init, list_texts(texts), y, workdir=self.workdir, **merge_keys(given, self.config or {})
        )
        assert isinstance(run.model, Classifier)
        return run.model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


class BertClassifier(ClassifierMixin, FineTuned):
    """A classifier of texts or of pairs; `y` holds a class for each text, or an indicator array of several labels."""

    def fit(self, X, y) -> Self:
        """Train on texts and their classes, `classes_`; `columns_` are their places among the labels of `model_`."""
        labels = read_targets(y, (1, 2))
        self.multilabel_ = labels.ndim == 2
        try:
            self.classes_ = np.arange(labels.shape[1]) if self.multilabel_ else np.unique(labels)
        except TypeError as error:  # classes that have no order, such as None beside text
            raise BertJaxError(f"y must hold classes of one type: {first_line(error)}") from error
        names = [str(name) for name in self.classes_.tolist()]
        if self.multilabel_:
            named: list = [[names[i] for i in np.flatnonzero(row)] for row in labels]
            keys = {"problem_type": "multi_label_classification"}
        else:
            named, keys = [str(label) for label in labels.tolist()], {}
        self.model_ = self._train(X, named, **keys)
        self.columns_ = [self.model_.labels.index(name) for name in names]
        return self

    def predict(self, X) -> np.ndarray:
        check_is_fitted(self)
        if self.multilabel_:
            predicted: np.ndarray = self.model_.predict(list_texts(X))
            return predicted[:, self.columns_]
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def predict_proba(self, X) -> np.ndarray:
        """Return the probability of each class [N, classes], in the order of `classes_`."""
        check_is_fitted(self)
        probabilities: np.ndarray = self.model_.predict_proba(list_texts(X))
        return probabilities[:, self.columns_]


class BertRegressor(RegressorMixin, FineTuned):
    """Predicts a number for each text or pair."""

    def fit(self, X, y) -> Self:
        try:
            numbers = read_targets(y, (1,)).astype(float).tolist()
        except (TypeError, ValueError) as error:
            raise BertJaxError(f"y must hold a number for each text: {first_line(error)}") from error
        self.model_ = self._train(X, numbers, problem_type="regression")
        return self

    def predict(self, X) -> np.ndarray:
        check_is_fitted(self)
        predicted: np.ndarray = self.model_.predict(list_texts(X))
        return predicted


class TextEmbedder(TransformerMixin, BaseEstimator):
    """Turns texts into vectors, with an embedder or, with `pooling`, any encoder. There is nothing to train."""

    def __init__(self, init: str = "", *, pooling: str | None = None, prompt_name: str | None = None,
                 truncate_dim: int | None = None):  # fmt: skip
        self.init, self.pooling, self.prompt_name, self.truncate_dim = (
            init,
            pooling,
            prompt_name,
            truncate_dim,
        )

    def fit(self, X=None, y=None) -> Self:
        """Open the model."""
        self.model_ = Embedder.load(self.init, pooling=self.pooling)
        return self

    def transform(self, X) -> np.ndarray:
        check_is_fitted(self)
        vectors: np.ndarray = self.model_.encode(
            list_texts(X), self.prompt_name, truncate_dim=self.truncate_dim, show_progress_bar=None
        )
        return vectors

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        check_is_fitted(self)
        width = self.truncate_dim or self.model_.get_embedding_dimension()
        return np.array([f"vector{i}" for i in range(width)], object)
