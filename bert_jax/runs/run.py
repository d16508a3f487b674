"""A whole run, from the values of a config to a finished model: plain training, training with folds, or a sweep."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import jax

from bert_jax import tasks
from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import refuse_unknown_files
from bert_jax.core.terminal import part_of_run, print_detail, print_line
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.groups import GroupColumns
from bert_jax.finetuning.embed_config import EmbedConfig
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.finetuning.label_warnings import print_label_warnings
from bert_jax.finetuning.rerank_config import RerankConfig
from bert_jax.metrics.uninformative import uninformative_metric
from bert_jax.predictions import training_origin
from bert_jax.predictions.training_origin import TrainingOrigin
from bert_jax.report import model_card
from bert_jax.report.finish_run import FinishedRun, OutOfFoldPredictions
from bert_jax.report.prediction_page import REPORT_FILES as REPORTED
from bert_jax.report.training_curves import draw_training_curves
from bert_jax.runs import sweep
from bert_jax.runs.choose_method import choose_method, make_one_fold, needs_one_fold
from bert_jax.runs.cross_validation import Folds
from bert_jax.runs.sweep import metric_values
from bert_jax.training import warm_start
from bert_jax.training.best_evaluation import read_kept_metrics
from bert_jax.training.chips import peak_flops
from bert_jax.training.log import read_metrics, validation_lines
from bert_jax.training.loop import train
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.step import StepCache
from bert_jax.training.task import BatchSource, Task
from bert_jax.training.workdir import Workdir

OpenedTask = tuple[Task, BatchSource, RunConfig]

LABEL_MORE = "label more examples, look for wrong labels, or start from another --config.init"
TRAIN_OTHERWISE = "try another --config.optimizer.learning_rate, more --config.epochs, another --config.seed"


def run_from_config(
    values: dict, overrides: Sequence[str], workdir: str, command: str
) -> dict[str, float] | None:
    """Run a config. Return the scores of its model, {} if none were measured, or None if told to stop before the end.

    `overrides` change the `values` of the config; `command` is the command that the model's files and report show.
    """
    module, config = tasks.read_config(values, overrides)
    directory = Workdir(workdir)
    if isinstance(config, FinetuneConfig | RerankConfig) and config.report:
        refuse_unknown_files(directory.report, REPORTED)  # before training, which may take days
    if config.num_seeds > 1 or config.sweep:
        return run_sweep(sweep.plan_runs(values, overrides, config, directory.path), directory, command)
    opened = module.open(config)
    print_label_warnings(opened[0], opened[-1])
    cache, out_of_fold = None, None
    if isinstance(config, FinetuneConfig) and jax.process_count() == 1:
        resumed = restore_method(opened, values, overrides, directory)  # before the folds, in case it refuses
        if parts := folds_to_predict(config, opened, values, overrides, directory):
            cache = StepCache()
            chosen = choose_method(
                parts, values, overrides, directory.path, partial(train_single, cache=cache)
            )
            if chosen is None:
                return None
            out_of_fold = chosen if parts.covers_all else None
            opened = with_method(chosen.method, opened, values, overrides)
        else:
            opened = resumed
    task, data, config = opened
    ended = train_single(task, data, config, directory.path, cache)
    if jax.process_index() == 0:
        draw_training(directory)
    if not ended:
        return None
    if jax.process_index() > 0:
        return {}
    finished = finish_model(directory, task, make_origin(task, data, config, command), out_of_fold)
    write_model_card(directory, directory.metrics, task, config, command)
    scores = metric_values(read_kept_metrics(directory.metrics, config.checkpoints.best_metric))
    if not scores and finished:
        scores = finished.scores
    warn_nothing_learnt(
        validation_lines(directory.metrics) or [scores], LABEL_MORE if out_of_fold else TRAIN_OTHERWISE
    )
    return scores


def folds_to_predict(
    asked: FinetuneConfig, opened: OpenedTask, values: dict, overrides: Sequence[str], directory: Workdir
) -> Folds | None:
    """Return the folds to predict before the final run, which also choose its method; None if none are needed."""
    task, data, config = cast(FinetuneTask, opened[0]), opened[1], cast(FinetuneConfig, opened[2])
    if config.cross_validates:
        return Folds(task, data, config)
    if needs_one_fold(asked, task) and not directory.run.exists():
        return make_one_fold(values, overrides)
    return None


def with_method(method: Method, opened: OpenedTask, values: dict, overrides: Sequence[str]) -> OpenedTask:
    """Return the run with a method that folds have chosen; contrast has its own task and learning rate."""
    task, data, config = opened[0], opened[1], cast(FinetuneConfig, opened[2])
    if config.method == method:
        return opened
    if method != "contrastive":
        return task, data, config.with_method(method)
    module, asked = tasks.read_config(values, [*overrides, "method=contrastive"])
    return module.open(asked)


def restore_method(
    opened: OpenedTask, values: dict, overrides: Sequence[str], directory: Workdir
) -> OpenedTask:
    """Return the run with the method that was chosen when it was started, or unchanged if it was not started.

    Refuse the directory of another run. Write nothing if there is no run yet.
    """
    if not directory.run.exists():
        return opened
    config = opened[-1]
    if isinstance(config, FinetuneConfig) and config.method == "auto":
        method = directory.read_run()["config"].get("method", config.method)
        opened = with_method(method, opened, values, overrides)
    task, data, config = opened
    directory.record_or_check(config, data, task)
    return opened


def draw_training(directory: Workdir) -> None:
    """Draw the training curves, unless the run took no steps."""
    if any(line["step"] > 0 for line in read_metrics(directory.metrics)):
        draw_training_curves(directory.metrics, directory.curves)


def run_sweep(runs: Sequence[sweep.SweepRun], directory: Workdir, command: str) -> dict[str, float] | None:
    if not sweep.train_all(runs, partial(train_single, cache=StepCache())):
        return None
    if jax.process_index() > 0:
        return {}
    chosen = sweep.write_results(directory.path, runs)
    with part_of_run("the best run"):
        task, data, config = chosen.module.open(chosen.config)
    finish_model(directory, task, make_origin(task, data, config, command))
    write_model_card(directory, Workdir(chosen.path).metrics, task, config, command)
    return metric_values(read_kept_metrics(Workdir(chosen.path).metrics, config.checkpoints.best_metric))


def train_single(
    task: Task, data: BatchSource, config: RunConfig, workdir: Path, cache: StepCache | None = None
) -> bool:
    begin = make_params_loader(task, data, config)
    peak = peak_flops(jax.devices()[0].device_kind)
    return train(task, data, config, workdir, begin, peak, cache)


def make_params_loader(task: Task, data: BatchSource, config: RunConfig) -> Callable[[], dict] | None:
    """Return a function that returns the parameters to start from; None for plain random initial values."""

    def read_from_directory() -> dict:
        params, missing = warm_start.read_initial_params(config.init, task, config.seed)
        initial = f" with random values for {', '.join(missing)}" if missing else ""
        if isinstance(task, FinetuneTask) and task.starts_from_probe and missing:
            initial = f"; the head {', '.join(missing)} starts as a linear probe"
        step = f", at step {config.first_step:,} of the schedule" if config.first_step > 0 else ""
        if jax.process_index() == 0:
            print_detail(f"starts from {config.init}{initial}{step}")
        return task.initial_params(params, data, config.steps)

    def compute_from_data() -> dict:
        if jax.process_count() > 1:
            raise BertJaxError(
                "only a run of one process can compute initial values from the data; run with --config.steps=0 in one "
                "process, then set --config.init to its model and --config.first_step=0"
            )
        return task.initial_params(
            jax.device_get(jax.jit(lambda: init_random_params(task, config))()), data, config.steps
        )

    if config.init and not config.from_scratch:
        return read_from_directory
    return compute_from_data if task.initializes_from_data else None


def warn_nothing_learnt(measured: Sequence[dict], advice: str) -> None:
    if measured and all(map(uninformative_metric, measured)):
        print_line(f"{uninformative_metric(measured[-1])}; {advice}")


def finish_model(
    workdir: Workdir,
    task: Task,
    origin: TrainingOrigin,
    out_of_fold: OutOfFoldPredictions | None = None,
) -> FinishedRun | None:
    """Write what belongs to a trained model: its origin and, after fine-tuning, calibration, scope and report.

    Return the results of a fine-tuning, None for other tasks.
    """
    training_origin.save_origin(workdir.model, origin)
    if not isinstance(task, FinetuneTask) or not task.finish_inputs:
        return None
    finished_run = FinishedRun(workdir.model, task.finish_inputs, out_of_fold)
    finished_run.calibrate()
    finished_run.fit_scope()
    if task.finish_inputs.report:
        finished_run.write_report(workdir, origin.command)
    return finished_run


def write_model_card(workdir: Workdir, metrics: Path, task: Task, config: RunConfig, command: str) -> None:
    """Write the model's card, if the task has one."""
    if task.model_card:
        model_card.write_card(workdir.model, task, model_card.TrainingRecord(config, metrics, command))


def make_origin(task: Task, data: BatchSource, config: RunConfig, command: str) -> TrainingOrigin:
    """Return the command and the training data of a model; for pre-training the origin is unknown."""
    if not isinstance(config, FinetuneConfig | RerankConfig | EmbedConfig) or not isinstance(data, Epochs):
        return training_origin.UNKNOWN_ORIGIN
    columns = config.data.columns
    of_pairs = columns.pair_columns if isinstance(columns, GroupColumns) else columns
    return TrainingOrigin(
        command,
        len(task.finish_inputs.train if task.finish_inputs else data.train),
        data.identity(),
        of_pairs,
    )
