"""A whole run, from the values of a config to a finished model: open, prepare, run, finish.

`finished.json` in its directory says what the finished model was made from, so that the same command, repeated, does
not make it again.
"""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict

import jax
import numpy as np

from bert_jax import __version__, tasks
from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.core.output import atomic_directory
from bert_jax.core.terminal import part_of_run, print_line
from bert_jax.data.examples.example import Example
from bert_jax.hub.model_directory import WRITTEN_FILES, ModelDirectories, atomic_model_directory
from bert_jax.inference.load import load
from bert_jax.inference.text_outcomes import mean_state_vectors, predict_outcomes
from bert_jax.metrics.score_sums import uninformative_metric
from bert_jax.predictions import calibration as calibrations
from bert_jax.predictions import out_of_scope as scopes
from bert_jax.predictions import training_origin
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.learning_curve import OutOfFoldPredictions
from bert_jax.predictions.out_of_scope import OutOfScopeDetector
from bert_jax.predictions.training_origin import TrainingOrigin
from bert_jax.report import model_card
from bert_jax.report.out_of_scope_detection import compare_with_known
from bert_jax.report.plots import draw_training_curves
from bert_jax.report.prediction_page import REPORT_FILES, ReportContext, write_report
from bert_jax.runs.sweep import (
    SweepRun,
    metric_values,
    plan_runs,
    refuse_other_runs,
    train_all,
    write_results,
)
from bert_jax.training.best_evaluation import read_kept_metrics
from bert_jax.training.checkpoint import CheckpointFolder
from bert_jax.training.log import read_metrics, validation_lines
from bert_jax.training.loop import already_finished
from bert_jax.training.opened_run import OpenedRun, open_run, print_description
from bert_jax.training.processes import print_once
from bert_jax.training.stop_signal import RunStopped
from bert_jax.training.task import FinishInputs
from bert_jax.training.workdir import Workdir, flatten_config, round_trip_json

LABEL_MORE = "label more examples, look for wrong labels, or start from another --config.init"
TRAIN_OTHERWISE = "try another --config.optimizer.learning_rate, more --config.epochs, another --config.seed"


def run_from_config(values: dict, overrides: Sequence[str], workdir: str, command: str) -> dict[str, float]:
    """Run a config. Return the scores of its model, {} if none were measured.

    `overrides` change the `values` of the config; `command` is the command that the model's files and report show.
    """
    directories = ModelDirectories()
    module, config = tasks.read_config(values, overrides, directories)
    directory = Workdir(workdir)
    if config.writes_report:
        directory.refuse_replacing(directory.report, REPORT_FILES)
    if config.num_seeds > 1 or config.sweep:
        return run_sweep(plan_runs(values, overrides, config, directory.path), directory, command)
    opened = open_run(module.open, config, directories=directories)
    print_description(opened, directory)
    if completion := find_completion(opened, directory):
        print_once(already_finished(completion["step"]))
        return completion["scores"]
    run = opened.task.prepare(opened, directory)
    try:
        finished = run.train(directory.path, partial(complete_model, run, directory.metrics, command))
    except RunStopped:
        draw_training(directory)
        raise
    draw_training(directory)
    if jax.process_index() > 0:
        return {}
    scores = report_results(run, directory, directory.metrics, command, finished)
    record_completion(opened, directory, scores)
    measured = validation_lines(directory.metrics) or [scores]
    if all(map(uninformative_metric, measured)):
        advice = LABEL_MORE if run.out_of_fold else TRAIN_OTHERWISE
        print_line(f"{uninformative_metric(measured[-1])}; {advice}")
    return scores


def run_sweep(runs: Sequence[SweepRun], directory: Workdir, command: str) -> dict[str, float]:
    directories = ModelDirectories()
    refuse_other_runs(directory, runs)
    train_all(runs, directories)
    if jax.process_index() > 0:
        return {}
    chosen = write_results(directory.path, runs)
    with part_of_run("the best run"):
        run = open_run(chosen.module.open, chosen.config, directories=directories)
    with atomic_model_directory(directory.model, WRITTEN_FILES) as new:
        shutil.copytree(
            chosen.path / "model", new, ignore=shutil.ignore_patterns(hashes.FILE), dirs_exist_ok=True
        )
        finished = complete_model(run, Workdir(chosen.path).metrics, command, new)
    return report_results(run, directory, Workdir(chosen.path).metrics, command, finished)


def complete_model(run: OpenedRun, metrics: Path, command: str, model: Path) -> "FinishedRun | None":
    """Add what belongs to a trained model: its origin, calibration, out-of-scope detector and card."""
    task, finished = run.task, None
    training_origin.save_origin(model, make_origin(run, command))
    if task.finish_inputs:
        finished = FinishedRun(model, task.finish_inputs, run.out_of_fold)
        finished.calibrate()
        finished.fit_scope()
    if task.model_card:
        record = model_card.TrainingRecord(run.config, metrics, command)
        if finished and finished.scores and run.config.writes_report:
            record = replace(record, outcomes=finished.outcomes, scored=finished.scored)
        model_card.write_card(model, task, record)
    return finished


def report_results(
    run: OpenedRun, directory: Workdir, metrics: Path, command: str, finished: "FinishedRun | None"
) -> dict[str, float]:
    """Write the report of a run whose model is complete; return the scores of the model."""
    if finished and run.config.writes_report:
        finished.write_report(directory, command)
    scores = metric_values(read_kept_metrics(metrics, run.config.checkpoints.best_metric))
    return scores or (finished.scores if finished else {})


def draw_training(directory: Workdir) -> None:
    """Draw the training curves, unless the run took no steps."""
    if jax.process_index() == 0 and any(line["step"] > 0 for line in read_metrics(directory.metrics)):
        draw_training_curves(directory.metrics, directory.curves)


def make_origin(run: OpenedRun, command: str) -> TrainingOrigin:
    """Return the command and the training data of a model; the origin is unknown if it learnt from no examples."""
    columns, inputs = run.config.example_columns, run.task.finish_inputs
    if columns is None:
        return training_origin.UNKNOWN_ORIGIN
    examples = len(inputs.train) if inputs else run.data.num_examples
    return TrainingOrigin(command, examples, run.data.identity(), columns)


class RunCompletion(TypedDict):
    inputs: dict[str, Any]
    step: int  # the last one
    scores: dict[str, float]


def completion_inputs(run: OpenedRun) -> dict[str, Any]:
    """Return all that decides what a run writes; `run` is as it was opened, before a method was chosen."""
    finishing = run.task.finish_inputs
    texts = [example.text for example in finishing.out_of_scope] if finishing else []
    return round_trip_json(
        {
            "version": __version__,
            "config": dict(flatten_config(run.config)),
            "data": run.data.identity(),
            "out_of_scope": hashes.json_digest(texts),
        }
    )


def record_completion(run: OpenedRun, directory: Workdir, scores: dict[str, float]) -> None:
    if not all(map(math.isfinite, scores.values())):  # which JSON cannot hold
        return
    steps = CheckpointFolder(directory.checkpoints).steps()
    completion = RunCompletion(inputs=completion_inputs(run), step=max(steps, default=0), scores=scores)
    write_json(directory.finished, hashes.seal(completion))


def find_completion(run: OpenedRun, directory: Workdir) -> RunCompletion | None:
    """Return the record of a finished run whose outputs are all there; None if something is to be done."""
    try:
        completion: RunCompletion = read_json(directory.finished, RunCompletion)
        is_same = hashes.is_sealed(completion) and completion["inputs"] == completion_inputs(run)
        is_whole = is_same and all(hashes.is_whole(directory.model / name) for name in run.task.layouts)
    except (BertJaxError, FileNotFoundError):  # it is made anew
        return None
    return completion if is_whole and (directory.page.exists() or not run.config.writes_report) else None


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
            predicted, examples = len(self.out_of_fold.outcomes.examples), len(self.results.train)
            which = "" if predicted == examples else f"{predicted:,} of {examples:,} examples of "
            return f"results on {which}the training set, each example predicted by a model that was not trained on it"
        return "results on the validation set"

    @property
    def measures_out_of_scope(self) -> bool:
        return bool(self.results.out_of_scope) and self.model.scope.is_fitted

    def calibrate(self) -> None:
        """Calibrate the model on the out-of-fold predictions or, if there are none, on the calibration set."""
        given = self.out_of_fold.outcomes if self.out_of_fold else None
        if given is None and self.results.calibration:
            given = predict_outcomes(self.model, self.results.calibration, long_texts=self.results.long_texts)
        if given is not None:
            try:
                self.model.calibration = given.kind.decoder.calibrate(given)
            except BertJaxError as error:
                print_line(f"not calibrated, so probabilities stay as they are: {error}")
        calibrations.save_calibration(self.directory, self.model.calibration)
        if self.model.calibration.is_fitted:  # never for a model that predicts numbers
            print_line(self.model.calibration.describe())

    def fit_scope(self) -> None:
        """Learn which texts are out of the model's scope: they are less similar to the training texts than known texts
        that it was not trained on (the validation and calibration sets, or the training texts out of fold)."""
        detects = self.model.kind.detects_out_of_scope
        self.model.scope = self.make_scope() if detects else scopes.NO_DETECTOR
        scopes.save_detector(self.directory, self.model.scope)

    def make_scope(self) -> OutOfScopeDetector:
        results, out_of_fold = self.results, self.out_of_fold
        kept = [*results.validation, *results.calibration]
        count = len(out_of_fold.outcomes.examples if out_of_fold else kept)
        if count < scopes.FEWEST:
            has_enough = out_of_fold and len(results.train) >= scopes.FEWEST
            advice = "give the folds more time, --config.minutes=M" if has_enough else "label more texts"
            print_line(
                f"out-of-scope detection needs {scopes.FEWEST} validation texts, got {count}; {advice}"
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
