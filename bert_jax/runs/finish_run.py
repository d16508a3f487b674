"""The last steps of a finished run: calibrate its model, learn its scope and write its report."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import atomic_directory
from bert_jax.core.terminal import print_line
from bert_jax.data.examples.example import Example
from bert_jax.inference.load import load
from bert_jax.inference.text_outcomes import mean_state_vectors, predict_outcomes
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions import out_of_scope as scopes
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.learning_curve import OutOfFoldPredictions
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from bert_jax.report.out_of_scope_detection import compare_with_known
from bert_jax.report.prediction_page import REPORT_FILES, ReportContext, write_report
from bert_jax.training.task import FinishInputs
from bert_jax.training.workdir import Workdir


class FinishedRun:
    """The model of a finished run, and its results on examples that it was not trained on."""

    def __init__(self, directory, results: FinishInputs, out_of_fold: OutOfFoldPredictions | None = None):
        self.directory, self.results, self.out_of_fold = directory, results, out_of_fold
        self.model = load(directory)

    @cached_property
    def outcomes(self) -> Outcomes:
        """The outcomes on the validation set or, if there is none, out of fold on the training examples."""
        if self.results.validation or self.out_of_fold is None:
            return predict_outcomes(
                self.model,
                self.results.validation,
                long_texts=self.results.long_texts,
                compares=self.measures_out_of_scope,
            )
        return replace(self.out_of_fold.outcomes, calibration=self.model.calibration)

    @property
    def scores(self) -> dict[str, float]:
        """The scores on the validation set or, if there is none, out of fold; {} if there are neither."""
        if self.results.validation:
            return self.outcomes.score_sums.scores
        return self.out_of_fold.outcomes.score_sums.scores if self.out_of_fold else {}

    @property
    def scored(self) -> str:
        """Say what the scores were measured on."""
        if self.out_of_fold and not self.results.validation:
            return "results on the training set, each example predicted by a model that was not trained on it"
        return "results on the validation set"

    @property
    def measures_out_of_scope(self) -> bool:
        return bool(self.results.out_of_scope) and self.model.scope.is_fitted

    def calibrate(self) -> None:
        """Calibrate the model on the out-of-fold predictions or, if there are none, on the calibration set."""
        self.model.calibration = calibrations.UNCALIBRATED
        if self.results.calibration or self.out_of_fold:
            if self.out_of_fold:
                given = self.out_of_fold.outcomes
            else:
                given = predict_outcomes(
                    self.model, self.results.calibration, long_texts=self.results.long_texts
                )
            try:
                self.model.calibration = given.kind.calibrate(given)
            except BertJaxError as error:
                print_line(f"not calibrated, so probabilities stay as they are: {error}")
        calibrations.save_calibration(self.directory, self.model.calibration)
        if self.model.calibration.is_fitted:  # never for a model that predicts numbers
            print_line(self.model.calibration.describe())

    def fit_scope(self) -> None:
        """Learn which texts are out of the model's scope: they are less similar to the training texts than known texts
        that it was not trained on (the validation and calibration sets, or the training texts out of fold)."""
        self.model.scope = scopes.NO_DETECTOR
        if self.model.kind.detects_out_of_scope:
            self.model.scope = self.make_scope()
        scopes.save_detector(self.directory, self.model.scope)

    def make_scope(self) -> OutOfScopeDetector:
        results, out_of_fold = self.results, self.out_of_fold
        kept = [*results.validation, *results.calibration]
        count = len(results.train) if out_of_fold else len(kept)
        if count < scopes.FEWEST:
            print_line(
                f"out-of-scope detection needs {scopes.FEWEST} validation texts, got {count}; label more texts"
            )
            return scopes.NO_DETECTOR
        scope = OutOfScopeDetector.from_vectors(self.sample_vectors(results.train))
        known = (
            out_of_fold.outcomes.similarities if out_of_fold else scope.similarity(self.sample_vectors(kept))
        )
        print_line(
            f"out-of-scope detection is calibrated on {count:,} validation texts: `predict --out-of-scope`"
        )
        return OutOfScopeDetector.from_vectors(scope.vectors, known)

    def sample_vectors(self, examples: Sequence[Example]) -> np.ndarray:
        texts = [examples[i].text for i in scopes.draw_text_indices(len(examples))]
        return mean_state_vectors(self.model, texts, self.results.long_texts)

    def write_report(self, workdir: Workdir, command: str) -> None:
        results, out_of_fold = self.results, self.out_of_fold
        unseen = "The model was not trained on these examples."
        if out_of_fold and not results.validation:
            unseen = "The predictions are out of fold: no model was trained on examples that it predicted."
        parts = {
            "validation": results.validation,
            "training": results.train,
            "calibration": results.calibration,
        }
        out_of_scope = None
        if self.measures_out_of_scope:
            out_of_scope = replace(
                compare_with_known(self.model, self.outcomes, results.out_of_scope, results.long_texts),
                learnt=True,
            )
        about = ReportContext(
            f"{workdir.path}: {self.scored}",
            command,
            {name: examples for name, examples in parts.items() if examples},
            workdir.curves,
            out_of_fold.curve if out_of_fold else None,
            out_of_scope,
            unseen,
            results.max_length if results.long_texts == "truncate" else 0,
        )
        with atomic_directory(workdir.report, REPORT_FILES) as new:
            write_report(new, self.outcomes, self.model, about)
        print_line(f"the report is {workdir.report / 'report.md'}")
