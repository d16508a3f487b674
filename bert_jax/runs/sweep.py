"""Run a config with several seeds and settings in one process, to see how much they change its scores.

sweep.md, sweep.png     the results
SETTING/seed=N/         the directory of each run, with %2F for / and %20 for a space
model/                  the model of the best run of the setting that is best on average
"""

import itertools
import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import jax
import numpy as np

from bert_jax.core.config import parse_literal
from bert_jax.core.errors import BertJaxError, NonFiniteError
from bert_jax.core.files import write_atomically
from bert_jax.core.progress import format_duration
from bert_jax.core.terminal import no_lines, part_of_run, print_line
from bert_jax.hub.model_directory import WRITTEN_FILES, ModelDirectories
from bert_jax.metrics.score_sums import uninformative_metric
from bert_jax.report.plots import ACCENT, INK, draw_training_curves, save_plot
from bert_jax.tasks import read_config
from bert_jax.training.best_evaluation import lower_is_better, rank_key, read_kept_metrics
from bert_jax.training.log import validation_lines
from bert_jax.training.opened_run import open_run, preview_run, print_description
from bert_jax.training.run_config import RunConfig
from bert_jax.training.step import StepCache
from bert_jax.training.stop_signal import StopSignal
from bert_jax.training.workdir import SWEEP_TABLE, Workdir

KEY_ALIASES = {"lr": "optimizer.learning_rate", "batch_size": "data.batch_size"}
# Keys that a sweep does not vary -> why, or what to do instead.
OWN_KEYS = {
    "task": "scores of different tasks cannot be compared; run each on its own",
    "seed": "for several seeds set --config.num_seeds=N",
    "num_seeds": "for several seeds set --config.num_seeds=N",
    "sweep": "write one sweep of all keys, KEY=[VALUE,VALUE];KEY=[VALUE,VALUE]",
    "data.folds": "its runs are compared on a validation set; leave data.folds out of it",
}
MOST_RUNS = 10_000
AS_GIVEN = "as given"  # the setting of runs that differ in their seeds alone
# Differences of scores up to DEGENERATE_GAP never mark a run as degenerate, nor do distances from the median up to
# DEVIATIONS robust standard deviations.
DEGENERATE_GAP, DEVIATIONS = 0.05, 5


@dataclass
class SweepRun:
    setting: str
    seed: int
    path: Path
    module: ModuleType
    config: RunConfig
    metric: str = ""
    value: float = float("nan")  # of the metric, in the evaluation of the kept model
    last: dict = field(default_factory=dict)  # the metrics of the last evaluation
    degenerate_reason: str = ""  # why the run is degenerate; "" if it is not
    rank_key: tuple[float, float] = (-math.inf, -math.inf)  # of the evaluation of the kept model

    @property
    def score(self) -> float:
        """The value, negated if lower values are better."""
        return -self.value if lower_is_better(self.metric) else self.value


def plan_runs(values: dict, overrides: Sequence[str], config: RunConfig, workdir: Path) -> list[SweepRun]:
    """Return all runs with their configs, so that an invalid setting is refused before any run starts."""
    keys, choices = zip(*parse_sweep(config.sweep), strict=True) if config.sweep.strip() else ((), ())
    full_names = [KEY_ALIASES.get(key, key) for key in keys]
    if twice := [key for key in full_names if full_names.count(key) > 1]:
        raise BertJaxError(f"config key sweep names {twice[0]} twice; write all of its values in one list")
    if own := [key for key in keys if key in OWN_KEYS]:
        raise BertJaxError(f"config key sweep cannot vary {own[0]}; {OWN_KEYS[own[0]]}")
    if (count := math.prod(map(len, choices)) * config.num_seeds) > MOST_RUNS:
        raise BertJaxError(f"sweep and num_seeds ask for {count:,} runs; ask for at most {MOST_RUNS:,}")
    kept = [
        override for override in overrides if override.split("=")[0] not in ("num_seeds", "sweep", "seed")
    ]
    runs: dict[str, SweepRun] = {}  # by their configs: 1e-3 and 0.001 are one setting
    for chosen in itertools.product(*choices):
        name = ",".join(f"{key}={value}" for key, value in zip(keys, chosen, strict=True)) or AS_GIVEN
        changed = [f"{key}={value}" for key, value in zip(full_names, chosen, strict=True)]
        for seed in range(config.seed, config.seed + config.num_seeds):
            # A config file may set num_seeds and sweep, too; each run here is a single one.
            single = [*kept, *changed, f"seed={seed}", "num_seeds=1", "sweep=", *config.single_run_overrides]
            module, single_config = read_config(values, single)
            path = workdir / setting_folder(name) / f"seed={seed}"
            runs.setdefault(repr(single_config), SweepRun(name, seed, path, module, single_config))
    return list(runs.values())


def setting_folder(setting: str) -> str:
    """Return the name of a setting's folder, which no other setting has.

    >>> setting_folder("init=a/b c"), setting_folder("as given")
    ('init=a%2Fb%20c', 'as_given')
    """
    if setting == AS_GIVEN:
        return "as_given"
    return setting.replace("%", "%25").replace("/", "%2F").replace(" ", "%20")


def parse_sweep(text: str) -> list[tuple[str, list]]:
    """Parse the keys of a sweep and their values.

    >>> parse_sweep("lr=[2e-5,3e-5];batch_size=[16]")
    [('lr', [2e-05, 3e-05]), ('batch_size', [16])]
    >>> parse_sweep("data.lengths=[(128,), (128, 512)]")
    [('data.lengths', [(128,), (128, 512)])]
    """
    choices = []
    for part in list(filter(str.strip, text.split(";"))) or [text]:
        key, _, values = part.partition("=")
        values = values.strip()
        if not key.strip() or values[:1] != "[" or values[-1:] != "]" or not values[1:-1].strip():
            raise BertJaxError(
                f'config key sweep: "{part}" is not KEY=[VALUE,VALUE]; write lr=[2e-5,3e-5];batch_size=[16,32]'
            )
        choices.append((key.strip(), [parse_literal(value.strip()) for value in split_values(values[1:-1])]))
    return choices


def refuse_other_runs(directory: Workdir, runs: Sequence[SweepRun]) -> None:
    """Raise if the results would replace those of a single run, or of a sweep with runs that this one lacks."""
    directory.refuse_replacing(directory.model, WRITTEN_FILES)
    if directory.run.exists():
        raise BertJaxError(f"{directory.path} holds a single run, not a sweep; name another --workdir")
    if (directory.path / SWEEP_TABLE).exists():
        written = {path.parent for path in directory.path.glob("*/seed=*/run.json")}
        if others := sorted(written - {run.path for run in runs}):
            raise BertJaxError(
                f"{directory.path} holds a sweep with a run that this one lacks, "
                f"{others[0].relative_to(directory.path)}; keep it in the sweep, or name another --workdir"
            )


def split_values(text: str) -> list[str]:
    """Split a text at commas that are not within brackets."""
    values, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            values.append("")
        else:
            values[-1] += character
    return values


def open_settings(runs: Sequence[SweepRun], directories: ModelDirectories) -> None:
    """Open a run of each setting but the first, so that one that cannot begin is refused before any trains. What they
    print they print again as they begin. Settings that differ only in their optimizer open alike."""
    first = runs[0]
    seed, optimizer = first.config.seed, first.config.optimizer
    distinct = {repr(replace(run.config, seed=seed, optimizer=optimizer)): run for run in reversed(runs)}
    for run in distinct.values():
        if run is not first:
            with no_lines():
                preview_run(run.module, run.config, directories)


def train_all(runs: Sequence[SweepRun], directories: ModelDirectories) -> None:
    open_settings(runs, directories)
    cache = StepCache()
    for number, run in enumerate(runs, 1):
        begun, name = time.monotonic(), f"run {number} of {len(runs)}, {run.setting}, seed {run.seed}"
        with part_of_run(name) if number > 1 else nullcontext():  # the first run describes the data for all
            opened = open_run(run.module.open, run.config, cache, directories)
            print_description(opened, Workdir(run.path))
        best_metric = opened.config.checkpoints.best_metric
        run.metric = best_metric or opened.task.best_metric
        try:
            with part_of_run(name, len(runs) - number):
                opened.train(run.path)
        except NonFiniteError as error:
            run.degenerate_reason = f"stopped, {str(error).partition(';')[0]}"
        metrics = run.path / "metrics.jsonl"
        if kept := read_kept_metrics(metrics, best_metric):
            run.value, run.rank_key = kept[run.metric], rank_key(run.metric, kept)
            run.last = metric_values(validation_lines(metrics)[-1])
        if jax.process_index() == 0:
            result = run.degenerate_reason or f"{run.metric} {run.value:.4f}"
            print_line(f"{name}: {result}, {format_duration(time.monotonic() - begun)}")
        if number < len(runs):
            StopSignal.end_runs()
    mark_degenerate(runs)


def metric_values(line: dict) -> dict[str, float]:
    return {name: value for name, value in line.items() if name not in ("step", "kind", "time")}


def mark_degenerate(runs: Sequence[SweepRun]) -> None:
    """Mark runs that learnt nothing, that ended far from their best score, or that are far worse than the median."""
    scores = np.array([run.score for run in runs])
    median, shown = np.nanmedian(scores), np.nanmedian([run.value for run in runs])
    spread = 1.4826 * np.nanmedian(np.abs(scores - median))
    for run in runs:
        if run.degenerate_reason or not run.last:
            run.degenerate_reason = run.degenerate_reason or "it was never evaluated"
        elif nothing := uninformative_metric(run.last):
            run.degenerate_reason = nothing
        elif abs(run.value - run.last[run.metric]) > max(DEGENERATE_GAP, 0.1 * abs(run.value)):
            run.degenerate_reason = f"its last evaluation, {run.last[run.metric]:.4f}, is far from its best"
        elif median - run.score > max(DEVIATIONS * spread, DEGENERATE_GAP * max(abs(median), 1)):
            run.degenerate_reason = f"far from the others, whose median is {shown:.4f}"


def write_results(workdir: Path, runs: Sequence[SweepRun]) -> SweepRun:
    """Write the results, and the curves of the best run where those of a single run would be. Return the best run."""
    kept = [run for run in runs if run.last and (run.path / "model").is_dir()]
    sound = [run for run in kept if not run.degenerate_reason] or kept
    if not sound:
        raise BertJaxError(f"no run in {workdir} gave a result; start again with a lower learning rate")
    settings = list(dict.fromkeys(run.setting for run in runs))
    rank_keys = {
        s: [run.rank_key for run in sound if run.setting == s] or [SweepRun.rank_key] for s in settings
    }
    best_setting = max(settings, key=lambda setting: tuple(np.mean(rank_keys[setting], 0)))
    chosen = max((run for run in sound if run.setting == best_setting), key=lambda run: run.rank_key)
    text = results_table(runs, settings, chosen)
    plot_results(workdir / "sweep.png", runs, settings)
    write_atomically(workdir / SWEEP_TABLE, text + "\n\n![score of each run, by setting](sweep.png)\n")
    print(text, flush=True)
    draw_training_curves(chosen.path / "metrics.jsonl", workdir / "curves.png")
    return chosen


def results_table(runs: Sequence[SweepRun], settings: Sequence[str], chosen: SweepRun) -> str:
    """Return a Markdown table of the settings, with notes on degenerate runs and on the chosen run."""
    lines = [
        f"| setting | mean {chosen.metric} | standard deviation | best | runs in the mean | degenerate, left out |"
    ]
    lines += ["| --- | --: | --: | --: | --: | --: |"]
    for setting in settings:
        setting_runs = [run for run in runs if run.setting == setting]
        values = np.array([run.value for run in setting_runs if not run.degenerate_reason])
        cells = ["", "", ""]
        if len(values):
            best = values.min() if lower_is_better(chosen.metric) else values.max()
            spread = f"{values.std(ddof=1):.4f}" if len(values) > 1 else ""
            cells = [f"{values.mean():.4f}", spread, f"{best:.4f}"]
        lines.append(
            f"| {setting} | {' | '.join(cells)} | {len(values)} | {len(setting_runs) - len(values)} |"
        )
    lines += [""]
    lines += [
        f"- degenerate: {run.setting} seed {run.seed}: {run.degenerate_reason}"
        for run in runs
        if run.degenerate_reason
    ]
    return "\n".join(
        [*lines, f"- best run: {chosen.setting}, seed {chosen.seed}, {chosen.metric} {chosen.value:.4f}"]
    )


def plot_results(path: Path, runs: Sequence[SweepRun], settings: Sequence[str]) -> str:
    def draw(axes):
        for position, setting in enumerate(reversed(settings)):
            here = [run for run in runs if run.setting == setting]
            sound = [run.value for run in here if not run.degenerate_reason]
            bad = [run.value for run in here if run.degenerate_reason]
            axes.plot(bad, [position] * len(bad), "x", color="#d95f02", markersize=9, markeredgewidth=2,
                      label="degenerate, not in the mean")  # fmt: skip
            axes.plot(
                sound, [position] * len(sound), "o", color=ACCENT, alpha=0.6, markersize=7, label="a run"
            )
            if sound:
                mean = {"color": INK, "markersize": 22, "markeredgewidth": 2, "label": "mean"}
                axes.plot(np.mean(sound), position, "|", **mean)
        axes.set_yticks(range(len(settings)), list(reversed(settings)), fontsize=8)
        axes.set_ylim(-0.6, len(settings) - 0.4)
        axes.set_xlabel(runs[0].metric.replace("_", " "), fontsize=9)
        axes.grid(axis="x", color="0.9")
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        axes.legend(handles.values(), handles, fontsize=8, frameon=False, loc="lower center",
                    bbox_to_anchor=(0.5, 1), ncols=3)  # fmt: skip

    return save_plot(path, (6, 1.4 + 0.4 * len(settings)), draw)
