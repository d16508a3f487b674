"""Fine-tuned models and embedders as estimators of scikit-learn, for pipelines, cross-validation and grid searches.

    from bert_jax.sklearn import BertClassifier
    cross_val_score(BertClassifier("path/to/bert", method="linear_probe"), texts, labels)

An estimator is pickled with its model. scikit-learn is imported only here: `pip install '.[sklearn]'`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted

from bert_jax.core.errors import BertJaxError, first_line
from bert_jax.core.terminal import no_lines
from bert_jax.core.typed_json import type_name
from bert_jax.inference.classifier import Classifier
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.streaming import ordered_texts
from bert_jax.runs.finetune import finetune
from bert_jax.runs.train import merge_keys


class InvalidDataError(BertJaxError, ValueError):
    """Texts or targets that an estimator refuses; scikit-learn expects a ValueError."""


def list_texts(X) -> list:
    """Return the texts of X as a list; refuse a single text, which would be read character by character."""
    if isinstance(X, str) or not isinstance(texts := ordered_texts(X), Sequence):
        raise InvalidDataError(f"X must be a list, an array or a column of texts, not {type_name(X)}")
    return list(texts)


def check_targets(y, read: Callable[[Any], Any]) -> Any:
    """Return what `read`, which checks as scikit-learn does, makes of y."""
    try:
        return read(y)
    except (TypeError, ValueError) as error:
        raise InvalidDataError(f"y cannot be learnt: {first_line(error)}") from error


def read_classes(y) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels, one class for each text or an indicator array, and the classes."""
    labels = np.asarray(y)
    if labels.ndim == 2 and type_of_target(labels) == "multilabel-indicator":
        return labels, np.arange(labels.shape[1])
    labels = column_or_1d(labels, warn=True)
    check_classification_targets(labels)
    return labels, np.unique(labels)


def read_numbers(y) -> np.ndarray:
    numbers: np.ndarray = column_or_1d(y, dtype=float, warn=True)
    assert_all_finite(numbers, input_name="y")
    return numbers


class TextEstimator(BaseEstimator):
    """What scikit-learn knows of all estimators here: X holds texts."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


class FineTuned(TextEstimator):
    """What the estimators that fine-tune share. `config` holds further keys of configs/classify.py, as a dict. `fit`
    prints the lines of `bert_jax.train` with `verbose=1`, and else nothing."""

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
        verbose: int = 0,
    ):
        self.init, self.method, self.epochs, self.learning_rate = init, method, epochs, learning_rate
        self.batch_size, self.max_length, self.random_state = batch_size, max_length, random_state
        self.workdir, self.config, self.verbose = workdir, config, verbose

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
        try:
            with nullcontext() if self.verbose else no_lines():
                run = finetune(
                    self.init,
                    list_texts(texts),
                    y,
                    workdir=self.workdir,
                    **merge_keys(given, self.config or {}),
                )
        except BertJaxError as error:
            raise InvalidDataError(error) from error
        assert isinstance(run.model, Classifier)
        return run.model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


class BertClassifier(ClassifierMixin, FineTuned):
    """A classifier of texts or of pairs; `y` holds a class for each text, or an indicator array of several labels."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def fit(self, X, y) -> Self:
        """Train on texts and their classes, `classes_`; `columns_` are their places among the labels of `model_`."""
        labels, self.classes_ = check_targets(y, read_classes)
        self.multilabel_ = labels.ndim == 2
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
        numbers = check_targets(y, read_numbers).tolist()
        self.model_ = self._train(X, numbers, problem_type="regression")
        return self

    def predict(self, X) -> np.ndarray:
        check_is_fitted(self)
        predicted: np.ndarray = self.model_.predict(list_texts(X))
        return predicted


class TextEmbedder(TransformerMixin, TextEstimator):
    """Turns texts into vectors, with an embedder or, with `pooling`, any encoder. There is nothing to train."""

    def __init__(self, init: str = "", *, pooling: str | None = None, prompt_name: str | None = None,
                 truncate_dim: int | None = None):  # fmt: skip
        self.init, self.pooling = init, pooling
        self.prompt_name, self.truncate_dim = prompt_name, truncate_dim

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # vectors are float32
        return tags

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
