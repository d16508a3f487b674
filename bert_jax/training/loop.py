"""The training loop: evaluate, save, take the next batch, run the step.

A run resumes from the newest good checkpoint in its directory. If there is none, it starts from the model directory
`config.init`, or from random initial values if `init` is not set.
"""

import math
import signal
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import jax

from bert_jax.core.errors import BertJaxError, NonFiniteError
from bert_jax.core.terminal import RUN_PREFIX, pluralize, print_line
from bert_jax.data.batch_source import BatchSource
from bert_jax.hub import model_directory as hub
from bert_jax.models.mesh import DATA, FSDP
from bert_jax.training import memory_estimate
from bert_jax.training.adapters import save_trained_models, split_params
from bert_jax.training.best_evaluation import KEPT_MODEL_LINE, EvaluationHistory, describe_kept
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.log import MetricsLog, MetricSums
from bert_jax.training.run_config import RunConfig
from bert_jax.training.sharding import (
    check_batch,
    describe_devices,
    local_data_shard,
    make_mesh,
    mesh_warnings,
    place_batches,
)
from bert_jax.training.start_share import CAUTIOUS, SHARES_LINE, MeasuredShare, choose_share
from bert_jax.training.state import (
    StepConstants,
    TrainState,
    abstract_state,
    average_params,
    count_parameters,
    gather_params,
    get_shardings,
    initial_state,
    make_constants,
    place_on_mesh,
)
from bert_jax.training.step import StepCache
from bert_jax.training.step_timer import Profiler, StepTimer, device_use
from bert_jax.training.stop_signal import RunStopped, StopSignal
from bert_jax.training.task import Task, flops_per_token
from bert_jax.training.workdir import Workdir

R = TypeVar("R")


def train(
    task: Task,
    data: BatchSource,
    config: RunConfig,
    path,
    params: Callable[[], dict] | None = None,
    cache: StepCache | None = None,
    complete: Callable[[Path], R] | None = None,
) -> R | None:
    """Train in the run directory `path`; raise RunStopped if the run was told to stop before its end, and has saved.

    `params` returns the parameters to start from; None: random ones. `cache` holds compiled steps, which the run may
    share with other runs. `complete` adds files to the model's directory before it takes its place; return its result.
    """
    # The directory is closed last, so that no other run starts to write while this one is still writing.
    workdir = Workdir(path)
    with closing(workdir), closing(TrainingLoop(task, data, config, workdir, cache)) as run:
        with StopSignal() as stop:
            if jax.process_index() == 0:
                workdir.claim()
                workdir.record_or_check(config, data, task.layouts)
            run.start_or_resume(params)
            finished = run.run_steps(stop)
            run.checkpoints.finish()
        if not finished:
            run.print_line(f"stopped at step {run.step:,}; run the same command to resume")
            # With several processes, JAX does not say which signal one of them got.
            raise RunStopped(stop.signal or signal.SIGTERM)
        return run.save_final_model(complete)


def already_finished(step: int) -> str:
    return f"this run has already finished, at step {step:,}; name another --workdir for a new one"


def check_finite(measures: dict[str, float], what: str, step: int) -> None:
    for name, value in measures.items():
        if not math.isfinite(value):
            raise NonFiniteError(
                f"{what}: {name} is {value} at step {step}; look at its examples; if they are good, start again with a "
                "lower --config.optimizer.learning_rate"
            )


class TrainingLoop:
    def __init__(
        self, task: Task, data: BatchSource, config: RunConfig, workdir: Workdir, cache: StepCache | None
    ):
        self.task, self.data, self.config, self.workdir = task, data, config, workdir
        self.mesh = make_mesh(config.mesh)
        check_batch(data.rows_per_step, self.mesh, config.mesh.gradient_accumulation_steps)
        self.abstract = abstract_state(task, config, self.mesh)
        self.checkpoints = Checkpoints(workdir.checkpoints, config.checkpoints, self.print_line)
        self.log: MetricsLog  # set by resume(), like the state and the constants
        self.state: TrainState
        self.constants: StepConstants
        self.started = False
        self.step = self.start_step = 0
        self.window = MetricSums()
        self.validation_metrics: dict = {}
        self.history = EvaluationHistory(config.checkpoints.best_metric, config.patience)
        self.pending: dict | None = None  # the metrics of the last step, still on the devices
        self.start_params: Callable[[], dict] | None = None
        self.profiler = Profiler(config.log.profile, workdir.profile)
        self.pace = StepTimer()
        self.shares_programs = cache is not None
        self.cache = cache or StepCache()

    def print_line(self, text: str) -> None:
        if self.started:
            self.log.print_line(text)
        elif jax.process_index() == 0:
            print_line(text)

    def print_detail(self, text: str) -> None:
        if not RUN_PREFIX.get():
            self.print_line(text)

    def start_or_resume(self, params: Callable[[], dict] | None) -> None:
        self.start_params = params
        self.print_detail(self.description())
        for warning in mesh_warnings(self.config.mesh, self.mesh):
            self.print_detail(warning)
        memory_estimate.require_memory(self.task, self.data, self.config, self.mesh, self.abstract)
        newest = self.checkpoints.newest_step()
        # The parameters beside adapters are in no checkpoint.
        whole = params() if params and (newest is None or self.config.adapter.rank) else None
        if newest is None:
            self.state = initial_state(self.task, self.config, self.mesh, whole)
            self.step = self.config.first_step
        else:
            self.state, position = self.checkpoints.restore(newest, self.abstract)
            self.cache = self.cache.resuming(position.get("kernels", {}))
            self.step, self.window = newest, MetricSums(position["window"])
            self.history.standings = [(step, tuple(value)) for step, value in position["standings"]]
            if self.step == self.config.steps or self.history.is_out_of_patience():
                self.print_detail(already_finished(newest))
            else:
                self.print_line(f"resuming at step {newest:,}")
        self.constants = make_constants(self.task, self.config, self.mesh, whole)
        self.train_step, self.eval_step = self.cache.get_or_make(self.task, self.config, self.mesh)
        # Where the best model is kept, the start may be the best; a run of 0 steps has nothing else.
        measures_start = newest is None and (self.config.checkpoints.best_metric or not self.config.steps)
        self.start_step = -1 if measures_start else self.step
        quiet = jax.process_index() > 0
        self.log = MetricsLog(self.workdir.path, self.workdir.metrics, self.step, self.config.steps, quiet)
        self.started = True

    def description(self) -> str:
        """Describe the run in one line: model size, mesh, how the rows of a step are split, compute dtype, and
        run directory."""
        rows = pluralize(self.data.rows_per_step, "row")
        axes = " x ".join(f"{axis} {size}" for axis, size in self.mesh.shape.items())
        shards = self.mesh.shape[DATA] * self.mesh.shape[FSDP]
        microbatches = self.config.mesh.gradient_accumulation_steps
        if shards * microbatches > 1:
            part = pluralize(self.data.rows_per_step // shards // microbatches, "row")
            rows += f" = {pluralize(shards, 'data shard')} x {pluralize(microbatches, 'microbatch')} x {part}"
        with jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh):
            dtypes = {layout.config.computed_dtype for layout in self.task.layouts.values()}
        parameters = count_parameters(self.abstract.params, self.task, self.config, self.mesh)
        return (
            f"{parameters} on {describe_devices(self.mesh)}"
            f"{f' ({axes})' if self.mesh.size > 1 else ''}; a step computes {rows} in "
            f"{' and '.join(sorted(dtypes))}; the run is written to {self.workdir.path}"
        )

    def run_steps(self, stop: StopSignal) -> bool:
        config, rows = self.config, self.data.rows_per_step
        batches = self.data.batches(self.step, config.steps, *local_data_shard(self.mesh, rows))
        if self.step < config.steps and not self.shares_programs:
            often = f"every {config.log_interval:,} steps" if config.log_interval > 1 else "after each step"
            self.print_detail(f"compiling the step; then metrics {often}")
        with closing(place_batches(batches, self.mesh, rows)) as feed:
            while True:
                new = self.step > self.start_step
                due = self.step == config.steps or self.history.is_out_of_patience()
                at_start = self.step == config.first_step
                if new and (due or at_start or self.step % config.log.evaluate_every == 0):
                    self.evaluate()
                    due = due or self.history.is_out_of_patience()
                asked = not due and stop.should_stop(self.step)
                best = self.step == self.history.best_step()
                if new and (due or asked or best or self.step % config.checkpoints.every == 0):
                    self.save()
                self.validation_metrics = {}  # valid for this step only
                if due or asked:
                    self.profiler.stop(self.state)
                    return due
                self.profiler.update(self.step, self.state)
                begun = time.perf_counter()
                batch = next(feed)
                self.pace.add_input_wait(time.perf_counter() - begun)
                # No implicit transfers to or from the devices: each would wait for the step.
                with jax.transfer_guard("disallow"):
                    self.state, measured = self.train_step(self.state, batch, self.constants)
                self.step += 1
                # Fetch the metrics of the previous step only now, while this step runs.
                before, self.pending = self.pending, measured
                if before is not None:
                    self.record_step(before, self.step - 1)

    def record_step(self, measured: dict, step: int) -> None:
        """Record the metrics of the update that took the run to `step`."""
        measured = jax.device_get(measured)
        self.pace.count_step(int(measured["tokens"]))
        self.log.advance()
        if measured["bad"]:
            self.log.write_line("discarded", step, {"batch": step - 1, "in_a_row": int(measured["bad"])})
            shown = f"`bert-jax inspect --step {step - 1}` shows its batch"
            self.print_line(f"the update of step {step - 1} is not finite and was discarded; {shown}")
            if measured["bad"] >= self.config.max_nonfinite_steps:
                self.pending = None
                self.save()
                self.checkpoints.finish()
                raise NonFiniteError(
                    f"{measured['bad']} updates in a row are not finite, the last at step {step - 1}; the parameters "
                    f"before them are kept in checkpoint {self.step}; {shown}; "
                    "if the batch is good, start again with a lower --config.optimizer.learning_rate"
                )
        else:
            self.window.add(measured)
        if step % self.config.log_interval == 0 or step == self.config.steps:
            timings = self.pace.take_timings(self.config.steps - step)
            shape = self.data.rows_per_step, self.data.row_length(step - 1)
            flops = partial(flops_per_token, self.task, self.config, *shape)
            timings |= device_use(timings.get("tokens_per_second"), flops, self.mesh.size)
            self.log.write_line("train", step, self.window.line_values(measured), timings)
            self.window = MetricSums()

    def record_pending(self) -> None:
        """Record the last step now, without waiting for the next one."""
        if self.pending is not None:
            before, self.pending = self.pending, None
            self.record_step(before, self.step)

    def evaluate(self) -> None:
        self.record_pending()
        begun = time.perf_counter()
        self.validation_metrics, _ = self.compute_metrics()
        check_finite(self.validation_metrics, "validation set", self.step)
        self.history.record(self.step, self.validation_metrics)
        if not self.validation_metrics:
            return
        seconds = time.perf_counter() - begun
        self.log.write_line("validation", self.step, self.validation_metrics, {"seconds": seconds})
        self.pace.exclude_pause(seconds)

    def compute_metrics(self) -> MeasuredShare:
        index, count = local_data_shard(self.mesh, self.data.rows_per_step)
        total = MetricSums()
        batches = self.data.validation_batches(self.data.row_length(max(self.step - 1, 0)), index, count)
        predicted = []
        for n, batch in enumerate(place_batches(batches, self.mesh, self.data.rows_per_step)):
            if n == self.config.log.max_eval_batches > 0:
                break
            measured, rows = jax.device_get(self.eval_step(self.state.params, batch, self.constants))
            pairs = {**measured["losses"], **measured["scores"]}
            sums = {name: float(sum(pair)) for name, pair in pairs.items()}
            check_finite(sums, f"validation batch {n} (counted from 0)", self.step)
            total.add(measured)
            predicted.append(self.task.keep_predictions(rows))
        scored = self.data.score_sums(predicted)
        scores = scored.scores if scored else self.data.metrics(predicted)
        return MeasuredShare(self.task.metrics_from_means(total.means()) | scores, scored)

    def save(self) -> None:
        self.record_pending()
        self.log.sync()
        position: dict = {"window": self.window.sums, "validation": self.validation_metrics}
        position |= {"standings": self.history.standings, "kernels": self.cache.kernels.record()}
        self.checkpoints.save(self.step, self.state, position)

    def save_final_model(self, complete: Callable[[Path], R] | None) -> R | None:
        self.restore_best()
        self.average_with_start()
        trained = gather_params(self.state.params, self.mesh)
        frozen = gather_params(self.constants.frozen, self.mesh)
        del self.state, self.constants  # whose memory `complete` may need
        if jax.process_index() > 0:
            return None
        with hub.atomic_model_directory(self.workdir.model, hub.WRITTEN_FILES) as new:
            save_trained_models(new, self.task, self.config, self.data, trained, frozen)
            del trained, frozen
            completed = complete(new) if complete else None
        self.print_detail(f"the model is in {self.workdir.model}")
        return completed

    def restore_best(self) -> None:
        """Restore the best step that can be read; if the start is the best, the last step is averaged with it."""
        metric, lost = self.config.checkpoints.best_metric, 0
        averages, first = self.config.init_share != 0, self.config.first_step
        while (best := self.history.best_step()) not in (None, self.step, first if averages else None):
            try:
                self.checkpoints.folder.require_step(best)
            except BertJaxError as error:
                self.print_line(f"step {best:,} is the best by {metric}, but {error}")
                self.history.drop(best)
                lost += 1
            else:
                self.state, _ = self.checkpoints.restore(best, self.abstract)
                break
        if best is not None and self.config.steps > self.config.first_step:
            self.print_detail(
                describe_kept(metric, self.history.standings, first, "best" if averages else "kept")
            )
        if lost:
            self.log.write_line(KEPT_MODEL_LINE, best or self.step, {"lost_checkpoints": lost})

    def average_with_start(self) -> None:
        """Average the parameters with those of `init`, if the config says so, by a share that validation approves."""
        share, first = self.config.init_share, self.config.first_step
        if not share or not self.start_params or self.step == first:
            return
        whole, _ = split_params(self.task, self.config, self.start_params())
        start, trained = place_on_mesh(whole, get_shardings(self.abstract).params), self.state.params

        def measure(share: float) -> MeasuredShare:
            self.state = replace(self.state, params=average_params(start, trained, share))
            return self.compute_metrics()

        if self.history.standings:
            best = self.history.best_step()
            step = self.step if best in (None, first) else best
            share, metrics, tried = choose_share(measure, self.config.checkpoints.best_metric, share)
            self.log.write_line(SHARES_LINE, step, tried)
            self.log.write_line(KEPT_MODEL_LINE, first if share == 1 else step, metrics)
        elif share < 0:
            share = CAUTIOUS
        self.state = replace(self.state, params=average_params(start, trained, share))
        self.print_detail(f"averaged with the model before training (init_share={share:g})")

    def close(self) -> None:
        """Wait for background writes (with one process) and close the log, however the run ended."""
        try:
            if jax.process_count() == 1:  # with several processes, this would wait for a lost one
                with suppress(KeyboardInterrupt):  # ends the wait only, not the error that ended the run
                    self.checkpoints.wait()
        finally:
            if self.started:
                self.log.close()
