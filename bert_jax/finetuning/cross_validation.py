"""Training examples in folds: each fold is predicted by a model that did not learn from it.

WORKDIR/folds/METHOD/K/              the run that leaves out fold K
WORKDIR/folds/METHOD/K/logits.npz    the logits of its model for fold K, and the seconds that they took; its model and
                                     checkpoints are then removed
WORKDIR/folds/METHOD/K/similarities.npy    of the texts of fold K to the texts that its model learnt from
"""

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from scipy.special import logsumexp

from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import atomic_file
from bert_jax.core.terminal import no_lines, part_of_run, print_line
from bert_jax.data.examples.split import assign_folds
from bert_jax.finetuning.encoded_windows import PredictionEvaluator, make_encoded_windows
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.finetuning.label_descriptions import NONE
from bert_jax.finetuning.linear_probe import HeadInputs
from bert_jax.hub import model_directory as hub
from bert_jax.inference.computations import HeadLogits, PooledStates
from bert_jax.inference.load import load
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.learning_curve import NUM_PARTS, LearningCurve, forecast_learning_curve
from bert_jax.predictions.linear_model import Link
from bert_jax.predictions.out_of_scope import OutOfScopeDetector, draw_text_indices
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.training import warm_start
from bert_jax.training.log import format_duration
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.processes import print_once
from bert_jax.training.sharding import make_mesh
from bert_jax.training.stop_signal import StopSignal
from bert_jax.training.task import save_models
from bert_jax.training.time_estimate import measure_steps
from bert_jax.training.workdir import Workdir

MIN_CURVE_EXAMPLES = 40  # for a learning curve: with fewer, a quarter of them teaches nothing
SIMILARITIES = "similarities.npy"
METHOD_LABELS: dict[Method, str] = {"contrastive": "contrastive", "finetune": "fine-tuning"}


class Folds:
    """The training examples of a run in folds; `predicted` are the indices of the folds to predict, None for all."""

    def __init__(self, run: OpenedRun[HeadTask, FinetuneConfig], predicted: Sequence[int] | None = None):
        self.run, self.task, self.data, self.config = run, run.task, run.data, run.config
        task, data, config = self.task, self.data, self.config
        self.predicted = range(config.data.folds) if predicted is None else predicted
        examples, compares = task.train_examples, HEADS[task.head].compares
        # As `predict` reads them.
        most = task.layout.config.max_position_embeddings
        encoding_options = EncodingOptions(most, config.data.long_texts, separate_texts=compares)
        windows = task.kind.reader.encode(
            data.tokenizer, [example.text for example in examples], encoding_options
        )
        self.evaluator = PredictionEvaluator(task.kind, examples, windows)
        self.encoded_windows = make_encoded_windows(task.kind.targets, examples, windows)
        self.example_of_window = [window.example for window in self.encoded_windows]
        self.fold_of_example = assign_folds(examples, config.data.folds)
        self.fold_of_window = self.fold_of_example[self.example_of_window]
        self.is_first = np.diff(self.example_of_window, prepend=-1) > 0  # window of its example
        self.class_of_window: np.ndarray | None = None
        if task.kind.supports_contrastive:
            classes = [task.kind.labels.index(task.kind.targets.truth(example)) for example in examples]
            self.class_of_window = np.array(classes)[self.example_of_window]
        self.curve: LearningCurve | None = None  # of probes
        self.descriptions = task.descriptions  # of labels; () if probes predict better without

    @property
    def covers_all(self) -> bool:
        """Whether all folds are predicted."""
        return len(self.predicted) == self.config.data.folds

    def make_outcomes(self, logits: list) -> Outcomes:
        """Return the outcomes of the examples whose windows have logits."""
        merged = zip(self.evaluator.examples, self.evaluator.merge_logits(logits), strict=True)
        examples, raws = zip(*((example, raw) for example, raw in merged if raw is not None), strict=True)
        return Outcomes(self.task.kind, list(examples), list(raws))

    def prior_shift(self, learnt: np.ndarray) -> np.ndarray:
        """Return what to add to the logits of a model trained on the windows `learnt`: [classes], or 0.

        With it the logits are those of a model that knows the class shares of all examples.

        If a fold has more examples of a class, fewer of them are left to learn from, which biases the model against the
        class. On 16 balanced pairs of MRPC (five draws) a probe has an accuracy of 50% without the shift and of 64%
        with it; on other pairs it has 62%.
        """
        if self.class_of_window is None or self.task.class_weights:
            return np.zeros((), np.float32)
        classes, count = self.class_of_window, len(self.task.kind.labels)
        return log_class_shares(classes, count) - log_class_shares(classes[learnt], count)

    def predict_with_probes(self, workdir: Path | None = None) -> Outcomes:
        """Predict by regressions on the frozen encoder's features, which need no training run.

        The model of a regression on all examples becomes that of `workdir`, until a better one replaces it.
        """
        task, link = self.task, self.task.kind.link
        assert link is not None  # or the config refuses the method
        init, seed = self.config.init, self.config.seed
        params, _ = warm_start.read_initial_params(self.run.directories, init, task, seed)
        encoded_windows = [*self.encoded_windows, *self.descriptions]
        features = HeadInputs(task.layout, params, self.data.tokenizer, encoded_windows)
        all_windows = np.ones(len(self.encoded_windows), bool)
        outcomes, penalties = self.predict_with_probe(features, link, all_windows)
        if described := self.descriptions:
            self.descriptions = ()
            plain, plain_penalties = self.predict_with_probe(features, link, all_windows)
            losses = [class_loss(outcomes), class_loss(plain)]
            if helps := losses[0] < losses[1]:
                self.descriptions = described
            else:
                outcomes, penalties = plain, plain_penalties
            print_once(
                f"with descriptions of the {len(described)} labels as further examples, the probe's log loss out of "
                f"fold is {losses[0]:.3f}, without {losses[1]:.3f}, so they are {'kept' if helps else 'left out'}"
            )
        if workdir:
            self.save_probe(params, features, link, penalties, Workdir(workdir))
        if not self.covers_all:
            return outcomes
        if len(self.evaluator.examples) >= MIN_CURVE_EXAMPLES:
            self.curve = self.make_learning_curve(features, link, outcomes, penalties)
        vectors = np.stack(features.vectors[: len(self.encoded_windows)])[self.is_first]
        near = np.zeros(len(vectors), np.float32)
        for fold in self.predicted:
            inside = self.fold_of_example == fold
            scope = OutOfScopeDetector.from_vectors(vectors[self.sample_learnt(fold)])
            near[inside] = scope.similarity(vectors[inside])
        return replace(outcomes, similarities=near)

    def save_probe(
        self, params: dict, features: HeadInputs, link: Link, penalties: int, directory: Workdir
    ) -> None:
        """Save the model whose head is a regression on all examples."""
        directory.refuse_replacing(directory.model, hub.WRITTEN_FILES)
        directory.folds.mkdir(parents=True, exist_ok=True)  # from here on the model is the run's to replace
        known = range(len(self.encoded_windows) + len(self.descriptions))
        fitted = params | features.fit_head(link, self.task.class_weights, known, penalties)
        with hub.atomic_model_directory(directory.model, hub.WRITTEN_FILES) as new:
            save_models(new, self.task, fitted, self.data.tokenizer)
        print_once(f"a model with the probe is in {directory.model}; a better one will replace it")

    def make_learning_curve(
        self, features: HeadInputs, link: Link, outcomes: Outcomes, penalties: int
    ) -> LearningCurve:
        """Return the learning curve of a probe: its scores with a quarter, a half and all of the examples."""
        part = assign_folds(self.evaluator.examples, NUM_PARTS)[self.example_of_window]
        quarters = [part == n for n in range(NUM_PARTS)]
        halves = [part < NUM_PARTS // 2, part >= NUM_PARTS // 2]
        fewer = [
            [self.predict_with_probe(features, link, learnt, penalties)[0].score_sums for learnt in parts]
            for parts in (quarters, halves)
        ]
        count = len(self.evaluator.examples)
        judged = {count // NUM_PARTS: fewer[0], count // 2: fewer[1], count: [outcomes.score_sums]}
        return forecast_learning_curve(self.task.kind.best_metric, judged)

    def predict_with_probe(
        self, features: HeadInputs, link: Link, learnt: np.ndarray, strongest: int = 0
    ) -> tuple[Outcomes, int]:
        """Predict each fold by a regression on the windows of the other folds that are in `learnt`, a mask.

        `strongest` is a number of penalties, counted from the strongest; each regression uses the last of them. With 0,
        each regression chooses its own number. Return the outcomes and the largest of these numbers.
        """
        logits: list = [None] * len(self.encoded_windows)
        most = 0
        for fold in self.predicted:
            kept = (self.fold_of_window != fold) & learnt
            indices = np.flatnonzero(kept).tolist()
            indices += range(len(self.encoded_windows), len(self.encoded_windows) + len(self.descriptions))
            probe = features.fit_probe(link, self.task.class_weights, indices, strongest)
            most, shift = max(most, probe.penalties), self.prior_shift(kept)
            for i in np.flatnonzero(self.fold_of_window == fold):
                logits[i] = probe(features.states[i]) + shift
        return self.make_outcomes(logits), most

    def sample_learnt(self, fold: int) -> np.ndarray:
        """Return indices of a sample of the examples that a fold's model learnt from, for similarities to them."""
        others = np.flatnonzero(self.fold_of_example != fold)
        return others[draw_text_indices(len(others))]


class FoldRuns:
    """The runs of a method, each of which leaves out a fold, and what their models predict for it."""

    def __init__(self, parts: Folds, method: Method, workdir: Path):
        self.parts, self.method, self.directory = parts, method, Workdir(workdir).folds / method
        given, config = parts.run.given, parts.config
        # Steps and learning rate are set as for all examples, so that one compiled step serves all folds.
        given = replace(
            given, method=method, report=False,
            label_descriptions=given.label_descriptions if parts.descriptions else NONE,
        )  # fmt: skip
        width, count = parts.task.layout.config.hidden_size, len(parts.encoded_windows)
        rate = given.choose_learning_rate(width, count)
        self.given = replace(
            given, steps=given.num_steps(count), optimizer=replace(given.optimizer, learning_rate=rate)
        )
        self.folds = config.data.folds
        self.logits: list = [None] * count
        self.seconds: list[float] = []  # that each fold took
        self.estimating = 0.0  # seconds that their estimate took, which compiles the step

    @cached_property
    def estimated_seconds(self) -> float:
        """Seconds of the first fold, by a few steps of it; infinity if these would take long."""
        if not self.given.steps or self.path(self.parts.predicted[0]).exists():
            return 0.0
        begun = time.monotonic()
        with no_lines():
            run = self.open(self.parts.predicted[0])
            measured = measure_steps(run, make_mesh(run.config.mesh))
        self.estimating = time.monotonic() - begun
        return measured.all_steps if measured else math.inf

    @property
    def spent_seconds(self) -> float:
        return self.estimating + sum(self.seconds)

    @property
    def next_seconds(self) -> float:
        """Seconds that the next fold is expected to take."""
        return self.seconds[-1] if self.seconds else self.estimated_seconds

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes of the folds that are predicted."""
        outcomes = self.parts.make_outcomes(self.logits)
        if not self.parts.covers_all or not self.parts.task.kind.detects_out_of_scope:
            return outcomes
        near = np.zeros(len(self.parts.fold_of_example), np.float32)
        folds = self.parts.predicted[: len(self.seconds)]
        for fold in folds:
            path = self.path(fold).with_name(SIMILARITIES)
            with report_damage(path):
                near[self.parts.fold_of_example == fold] = np.load(path)
        return replace(outcomes, similarities=near[np.isin(self.parts.fold_of_example, folds)])

    def path(self, fold: int) -> Path:
        return self.directory / str(fold) / "logits.npz"

    def open(self, fold: int) -> OpenedRun[HeadTask, FinetuneConfig]:
        data = replace(self.given.data, folds=self.folds, fold_index=fold, out_of_scope="")
        return self.parts.run.reopen(replace(self.given, data=data))

    def predict_next(self) -> None:
        """Train the model that leaves out the next fold, and predict the fold."""
        parts, fold = self.parts, self.parts.predicted[len(self.seconds)]
        path, directory = self.path(fold), Workdir(self.directory / str(fold))
        with part_of_run(f"fold {fold + 1} of {self.folds}, {METHOD_LABELS[self.method]}"):
            run = self.open(fold)
            # It refuses another config's directory. A model of fewer steps is trained anew.
            if path.exists() and directory.check_run(run.config, run.data) < run.config.steps:
                shutil.rmtree(directory.path)
            if not path.exists():
                begun = time.monotonic()
                run.train(directory.path)
                self.save_predictions(directory, fold, begun)
                print_line(f"trained in {format_duration(time.monotonic() - begun)}")
                StopSignal.end_runs()
        for done in (directory.checkpoints, directory.model):
            shutil.rmtree(done, ignore_errors=True)
        shift = parts.prior_shift(parts.fold_of_window != fold)
        logits, seconds = read_predictions(path)
        for i, saved in zip(np.flatnonzero(parts.fold_of_window == fold), logits, strict=True):
            self.logits[i] = saved + shift
        self.seconds.append(seconds)

    def save_predictions(self, directory: Workdir, fold: int, begun: float) -> None:
        """Write the logits of a fold's model for the fold, and its similarities if they are needed."""
        parts, model, path = self.parts, load(directory.model), self.path(fold)
        predicted = np.flatnonzero(parts.fold_of_window == fold)
        wanted = HeadLogits(parts.task.head, len(model.labels), with_vectors=True)
        outputs = model.run([parts.encoded_windows[i].encoding for i in predicted], wanted)
        logits, vectors = zip(*outputs, strict=True)
        if model.kind.detects_out_of_scope and parts.covers_all:
            learnt = np.flatnonzero(parts.is_first)[parts.sample_learnt(fold)]
            states = PooledStates("mean", normalize=True)
            known = np.stack(model.run([parts.encoded_windows[i].encoding for i in learnt], states))
            scope = OutOfScopeDetector.from_vectors(known)
            near = scope.similarity(np.stack(vectors)[parts.is_first[predicted]])
            with atomic_file(path.with_name(SIMILARITIES)) as new, open(new, "wb") as file:
                np.save(file, near)
        with atomic_file(path) as new, open(new, "wb") as file:
            np.savez(file, *logits, seconds=time.monotonic() - begun)


def class_loss(outcomes: Outcomes) -> float:
    """Return the mean of minus the log of the probability of the right class."""
    logits = np.stack(outcomes.raw_outputs).astype(np.float64)
    right = [outcomes.kind.labels.index(label) for label in outcomes.truth]
    return float((logsumexp(logits, axis=1) - logits[np.arange(len(right)), right]).mean())


def log_class_shares(classes: np.ndarray, count: int) -> np.ndarray:
    """Return the log of the share of each of `count` classes, [count]; half a text is added to each class."""
    counts = np.bincount(classes, minlength=count) + 0.5
    return np.log(counts / counts.sum()).astype(np.float32)


def read_predictions(path: Path) -> tuple[list[np.ndarray], float]:
    """Return the logits of a fold's model, and the seconds that it took."""
    with report_damage(path), np.load(path) as saved:
        return [saved[name] for name in saved if name != "seconds"], float(saved["seconds"])


@contextmanager
def report_damage(path: Path) -> Iterator[None]:
    """Turn an error in reading a file into a message that says how to go on."""
    try:
        yield
    except (
        BadZipFile,
        EOFError,
        KeyError,
        OSError,
        TypeError,
        ValueError,
    ) as error:  # a TypeError for an array alone
        raise BertJaxError(
            f"{path} is damaged; delete {path.parent}, and run the same command again"
        ) from error
