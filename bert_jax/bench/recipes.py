"""`bert-jax bench pretrain --beside`: compare pre-training recipes that train for the same time.

WORKDIR/recipes.json    the recipes, the minutes, and the number of steps of each
WORKDIR/1/, WORKDIR/2/  the runs, with their fine-tunings
WORKDIR/recipes.png     losses and accuracies over time
WORKDIR/table.md        the final figures

A short run first times the steps of a recipe. The actual run has as many steps as fit into the minutes, so that its
learning rate reaches 0 at the end. Compiling, evaluating and computing embeddings from the corpora do not count. The
more a recipe masks, the harder its own validation set is. So every model is also evaluated on the validation set of the
first recipe, if it predicts masked words of the same vocabulary. With --labels, each model and its initial values
(without embeddings computed from the corpora) are fine-tuned, too: the loss of masked words alone does not show what
pre-training is worth.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from bert_jax.bench import gain
from bert_jax.bench.gain import Gain
from bert_jax.bench.recipe import Recipe
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, to_json, write_atomically, write_json
from bert_jax.core.output import holding, remove, replacing
from bert_jax.core.terminal import part_of_run, say
from bert_jax.data.corpus.directory import Corpus
from bert_jax.hub import directory as hub
from bert_jax.report.plots import STROKES
from bert_jax.report.prediction_page import table
from bert_jax.runs.run import run
from bert_jax.tasks.electra import GENERATOR
from bert_jax.tasks.pretrain import Config, CorporaConfig
from bert_jax.text.directory import open_tokenizer
from bert_jax.training.log import heldout, read
from bert_jax.training.workdir import Workdir

PLAN, PICTURE, TABLE = "recipes.json", "recipes.png", "table.md"
TIMED = 30  # steps to time; the first half compiles and settles, and is ignored
DRAWN = {"mlm_loss": "loss", "mlm_accuracy": "accuracy"}


def check(recipe: Recipe) -> None:
    """Refuse a recipe that is not pre-training or has invalid settings: now, not after hours."""
    if not issubclass(recipe.module.Config, CorporaConfig):
        raise BertJaxError(f"{recipe.spec} is not a pre-training config; leave it out")
    recipe.config()


def random_values(recipe: Recipe) -> list[str]:
    """Return the settings with which a run starts from random embeddings, not from ones computed from the corpora."""
    return ["embeddings=random"] if isinstance(recipe.config(), Config) else []


def steps_in(seconds: float, recipe: Recipe, directory: Path, command: str) -> int:
    recipe.train(directory, command, f"steps={TIMED}", "log.max_eval_batches=1", *random_values(recipe))
    timed = [line for line in read(Workdir(directory).metrics) if line["kind"] == "train"]
    settling = max(line["step"] for line in timed if line["step"] <= TIMED // 2)
    later = sum(line["time"]["seconds"] for line in timed if line["step"] > settling)
    return max(round(seconds / later * (TIMED - settling)), 1)


@dataclass(frozen=True)
class Result:
    recipe: str
    steps: int
    tokens: int
    curves: dict[str, list[tuple[float, float]]]  # metric -> (seconds, value on the validation set)
    compared: dict[str, float]  # metrics on the validation set of the first recipe
    gains: list[Gain]  # one for each --labels

    @property
    def own(self) -> dict[str, float]:
        return {name: points[-1][1] for name, points in self.curves.items() if points}


def compare(
    recipes: Sequence[Recipe],
    labels: Sequence[Recipe],
    minutes: float,
    workdir: str,
    command: str,
    as_json: bool,
) -> str:
    for recipe in recipes:
        check(recipe)
    for tuning in labels:
        gain.check(tuning)
    path = Path(workdir)
    path.mkdir(parents=True, exist_ok=True)
    with holding(path):
        plan = Plan(path / PLAN, minutes)
        results = []
        for number, recipe in enumerate(recipes, 1):
            directory = path / str(number)
            with part_of_run(f"recipe {number} of {len(recipes)}"):
                steps = plan.steps(number, recipe, directory, command)
                say(f"{steps:,} steps in {minutes:g} minutes: {recipe.text}")
                recipe.train(directory, command, f"steps={steps}")
                compared = scores_on_first(directory, recipes[0], command)
                gains = gains_of(recipe, labels, directory, command)
            results.append(result(recipe, steps, directory, compared, gains))
            draw(results, path / PICTURE)
        lines = "\n".join(in_lines(results))
        write_atomically(path / TABLE, lines + "\n")
    say(f"the picture is {path / PICTURE}")
    return to_json([asdict(outcome) for outcome in results]) if as_json else lines


class Plan:
    """The number of steps of each recipe. It is determined once and then read from WORKDIR/recipes.json."""

    def __init__(self, path: Path, minutes: float):
        self.path = path
        self.facts: dict[str, Any] = (
            read_json(path, dict[str, Any]) if path.exists() else {"minutes": minutes, "recipes": []}
        )
        if self.facts["minutes"] != minutes:
            raise BertJaxError(
                f"{path} holds recipes of {self.facts['minutes']:g} minutes; change --minutes or --workdir"
            )

    def steps(self, number: int, recipe: Recipe, directory: Path, command: str) -> int:
        known, text = self.facts["recipes"], recipe.words
        if number <= len(known):
            if known[number - 1]["recipe"] != text:
                raise BertJaxError(
                    f"{self.path}: recipe {number} is {shlex.join(known[number - 1]['recipe'])}; name the recipes in "
                    "the same order, or another --workdir"
                )
            return known[number - 1]["steps"]
        timing = directory.with_name(f"{directory.name}.timing")
        steps = steps_in(60 * self.facts["minutes"], recipe, timing, command)
        known.append({"recipe": text, "steps": steps})
        write_json(self.path, self.facts)
        remove(timing)
        return steps


def scores_on_first(directory: Path, first: Recipe, command: str) -> dict[str, float]:
    """Evaluate a model's predictions of masked words on the validation set of the first recipe.

    For a run of ELECTRA, evaluate its generator. Return {} if no model of the run predicts masked words, or if its
    vocabulary differs.
    """
    workdir = Workdir(directory / "compared")
    if known := heldout(workdir.metrics):
        return {name: known[-1][name] for name in DRAWN}
    models = [path for path in (directory / "model", directory / "model" / GENERATOR) if path.exists()]
    layouts = {path: hub.survey(str(path))[0] for path in models}
    model = next((path for path, layout in layouts.items() if "mlm" in layout.heads), None)
    if model is None or not same_tokens(model, first):
        return {}
    layout = layouts[model]
    values = {"task": "pretrain", "family": layout.family.model_type, "model": layout.config.settings}
    values |= {name: value for name, value in first.values.items() if name in ("data", "log")}
    settings = [text for text in first.settings if text.startswith(("data.", "log."))]
    run(values, [*settings, f"init={model}", "first_step=0", "steps=0"], str(workdir.path), command)
    last = heldout(workdir.metrics)[-1]
    return {name: last[name] for name in DRAWN}


def same_tokens(model: Path, recipe: Recipe) -> bool:
    config = recipe.config()
    assert isinstance(config, CorporaConfig)
    return open_tokenizer(model).fingerprint == Corpus(config.data.corpora[0]).fingerprint


def gains_of(recipe: Recipe, labels: Sequence[Recipe], directory: Path, command: str) -> list[Gain]:
    """Measure, for each fine-tuning, the gain of the trained model over its initial values."""
    if not labels:
        return []
    untrained = directory / "untrained"
    recipe.train(untrained, command, "steps=0", *random_values(recipe))
    models = {"untrained": untrained / "model", "trained": directory / "model"}
    return [
        gain.measure(tuning, models, directory / "labels" / str(number), command)
        for number, tuning in enumerate(labels, 1)
    ]


def result(
    recipe: Recipe, steps: int, directory: Path, compared: dict[str, float], gains: list[Gain]
) -> Result:
    seconds, tokens, lines = 0.0, 0, read(Workdir(directory).metrics)
    curves: dict[str, list[tuple[float, float]]] = {name: [] for name in DRAWN}
    speeds = [
        line["time"]["tokens_per_second"] for line in lines if "tokens_per_second" in line.get("time", {})
    ]
    for line in lines:
        if line["kind"] == "train":
            tokens += line["tokens"]
            # Use the speed of the steps, because the seconds of a process's first line include compiling. If this line
            # covers a single step, it has no speed; then the median of the other lines is used.
            seconds += line["tokens"] / line["time"].get("tokens_per_second", median(speeds or [math.inf]))
        elif line["kind"] == "heldout":
            for name in DRAWN.keys() & line.keys():
                curves[name].append((seconds, line[name]))
    return Result(recipe.text, steps, tokens, curves, compared, gains)


def in_lines(results: Sequence[Result]) -> list[str]:
    labels = {f"labels {number}": of_tuning for number, of_tuning in enumerate(results[0].gains, 1)}
    header = ["recipe", "steps", "tokens", "own loss", "own accuracy", "loss", "accuracy", *labels]
    rows = [
        (r.recipe, r.steps, r.tokens, *(r.own.get(name, "-") for name in DRAWN),
         *(r.compared.get(name, "-") for name in DRAWN), *map(str, r.gains))
        for r in results
    ]  # fmt: skip
    lines = [
        *table(header, rows),
        "",
        "Loss and accuracy of masked words: on the recipe's own validation set (own), and on that of the first recipe.",
    ]
    if not all(outcome.compared for outcome in results):
        lines += ["-: the model predicts no masked words, or its vocabulary differs from the first recipe's."]
    if labels:
        lines += ["labels: the score without and with pre-training (difference ± its standard error)."]
    return lines + [f"{name}, {of_tuning.score}: {of_tuning.labels}" for name, of_tuning in labels.items()]


def draw(results: Sequence[Result], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = len(DRAWN) + bool(results[0].gains)
    figure = Figure(figsize=(4.5 * panels, 4 + 0.2 * len(results)), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(1, panels)
    for axes, (name, title) in zip(all_axes, DRAWN.items(), strict=False):
        for outcome, (colour, stroke) in zip(results, cycle(STROKES), strict=False):
            points = outcome.curves[name]
            minutes, values = [seconds / 60 for seconds, _ in points], [value for _, value in points]
            axes.plot(
                minutes, values, color=colour, ls=stroke, marker="o", ms=3, lw=1.3, label=outcome.recipe
            )
        axes.set_title(f"{title} of masked words", fontsize=10)
        axes.set_xlabel("minutes of training", fontsize=9)
    if results[0].gains:
        draw_gains(results, all_axes[-1])
    for axes in all_axes:
        axes.tick_params(labelsize=8)
        axes.grid(color="0.9")
    handles, labels = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", fontsize=8, frameon=False)
    with replacing(path) as new:
        figure.savefig(new, format="png", dpi=110)


def draw_gains(results: Sequence[Result], axes) -> None:
    """Plot the gains, with error bars of two standard errors."""
    for number, (outcome, (colour, _)) in enumerate(zip(results, cycle(STROKES), strict=False)):
        shift = (number - (len(results) - 1) / 2) * 0.6 / len(results)
        for index, of_tuning in enumerate(outcome.gains):
            axes.errorbar(
                index + shift, of_tuning.difference, 2 * of_tuning.standard_error, color=colour, marker="o",
                ms=4, capsize=2,
            )  # fmt: skip
    axes.axhline(0, color="0.5", lw=0.8)
    axes.set_xticks(
        range(len(results[0].gains)),
        [f"labels {number}:\n{of_tuning.score}" for number, of_tuning in enumerate(results[0].gains, 1)],
    )
    axes.set_title("gain over the initial values", fontsize=10)
