"""scikit-learn's own checks of estimators, those that apply to estimators of texts.

The checks feed rows of numbers. Here each number of a row is a word, so that all that is not about numbers is checked.
"""

from itertools import chain

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is an extra")

from sklearn.exceptions import SkipTestWarning
from sklearn.utils import check_array
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

import bert_jax.sklearn
from bert_jax.sklearn import BertClassifier, BertRegressor, TextEmbedder
from tests.support.made_up_language import ENTRIES

WITH_A_MODEL = [
    "check_classifiers_one_label",
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_pipeline_consistency",
    "check_estimators_pickle",
    "check_classifiers_classes",
    "check_classifiers_train",
    "check_classifiers_multilabel_representation_invariance",
    "check_classifiers_multilabel_output_format_predict",
    "check_classifiers_multilabel_output_format_predict_proba",
    "check_supervised_y_2d",
    "check_regressors_train",
    "check_regressors_int",
    "check_regressors_no_decision_function",
    "check_methods_sample_order_invariance",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
]
DO_NOT_APPLY = {
    "X is an array of numbers: its type, its layout, its size, what it must not hold": [
        "check_array_api_input",
        "check_classifier_data_not_an_array",
        "check_complex_data",
        "check_dtype_object",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimator_sparse_tag",
        "check_estimators_dtypes",
        "check_estimators_empty_data_messages",
        "check_estimators_nan_inf",
        "check_f_contiguous_array_estimator",
        "check_fit1d",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
        "check_n_features_in",
        "check_n_features_in_after_fitting",
        "check_positive_only_tag_during_fit",
        "check_readonly_memmap_input",
        "check_regressor_data_not_an_array",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
    ],
    "there is no such method or parameter: decision_function, partial_fit, sample_weight, max_iter": [
        "check_classifiers_multilabel_output_format_decision_function",
        "check_classifiers_one_label_sample_weights",
        "check_decision_proba_consistency",
        "check_estimators_partial_fit_n_features",
        "check_non_transformer_estimators_n_iter",
        "check_transformer_n_iter",
    ],
    "a model is not trained on one text": ["check_fit2d_1sample"],
    "numbers are float32: other texts in the batch change them by some 1e-7, which a probe's weights multiply": [
        "check_methods_subset_invariance"
    ],
}


def list_rows(X) -> list[str]:
    """A word for each number, of 80 that a column has."""
    rows = check_array(X, dtype=float)
    if rows.shape[1] > 12:
        raise ValueError("rows of more numbers than there are words for")
    places = np.round(rows * 4).astype(int) % 80 + 80 * np.arange(rows.shape[1])
    return [" ".join(ENTRIES[10 + place] for place in row) for row in places]


class OfRows:
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True  # else scikit-learn leaves out nearly all checks
        return tags


class ClassifierOfRows(OfRows, BertClassifier): ...


class RegressorOfRows(OfRows, BertRegressor):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # words of an untrained encoder have no order
        return tags


class EmbedderOfRows(OfRows, TextEmbedder): ...


SETTINGS = {"method": "linear_probe", "max_length": 32, "config": {"data": {"folds": 0}}}
ESTIMATORS = {
    ClassifierOfRows: SETTINGS,
    RegressorOfRows: SETTINGS,
    EmbedderOfRows: {"pooling": "mean"},
}


def check_name(check) -> str:
    return check.func.__name__


@pytest.fixture(params=ESTIMATORS)
def make(request, monkeypatch):
    monkeypatch.setattr(bert_jax.sklearn, "list_texts", list_rows)
    return lambda model: request.param(model, **ESTIMATORS[request.param])


def run_checks(estimator, trains: bool) -> None:
    for _, check in estimator_checks_generator(estimator):
        if (
            check_name(check) not in chain(*DO_NOT_APPLY.values())
            and (check_name(check) in WITH_A_MODEL) == trains
        ):
            check(estimator)


@pytest.mark.parametrize("estimator_class", [BertClassifier, BertRegressor, TextEmbedder])
def test_scikit_learn_leaves_out_checks_of_numbers_by_itself(estimator_class):
    with pytest.warns(SkipTestWarning, match="string=True"):
        assert len(check_estimator(estimator_class("path/to/bert"))) == 1


def test_every_check_that_is_named_is_there():
    checks = [check for made in ESTIMATORS for _, check in estimator_checks_generator(made("path/to/bert"))]
    assert {*WITH_A_MODEL, *chain(*DO_NOT_APPLY.values())} < set(map(check_name, checks))


@pytest.mark.filterwarnings("ignore")
def test_checks_that_need_no_model(make):
    run_checks(make("path/to/bert"), trains=False)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_checks_that_train_or_read(make, encoder_path):
    run_checks(make(str(encoder_path)), trains=True)
