"""`recipes`: compare pre-training recipes that train for the same time.

WORKDIR/recipes.json    the recipes, the minutes, and the number of steps of each
WORKDIR/1/, WORKDIR/2/  the runs, with their fine-tunings
WORKDIR/table.md        the final figures

A short run first times the steps of a recipe. The actual run has as many steps as fit into the minutes, so that its
learning rate reaches 0 at the end. Compiling, evaluating and computing embeddings from the corpora do not count. The
more a recipe masks, the harder its own validation set is. So every model is also evaluated on the validation set of the
first recipe, if it predicts masked words of the same vocabulary. With --labels, each model and its initial values
(without embeddings computed from the corpora) are fine-tuned, too: the loss of masked words alone does not show what
pre-training is worth.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_atomically, write_json
from bert_jax.core.output import locked_directory, remove_path
from bert_jax.core.terminal import part_of_run, print_line
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.hub import model_directory as hub
from bert_jax.report.prediction_page import markdown_table
from bert_jax.runs.run import run_from_config
from bert_jax.tasks.electra import GENERATOR
from bert_jax.tasks.pretrain import Config, CorporaConfig
from bert_jax.text.tokenizer_directory import open_tokenizer
from bert_jax.training.log import read_metrics, validation_lines
from bert_jax.training.workdir import Workdir
from tests.bench.gain import Gain, check_labels, measure_gain
from tests.bench.recipe import Recipe

PLAN, TABLE = "recipes.json", "table.md"
TIMED = 30  # steps to time; the first half compiles and settles, and is ignored
SCORES = "mlm_loss", "mlm_accuracy"


def check(recipe: Recipe) -> None:
    """Refuse a recipe that is not pre-training or has invalid settings: now, not after hours."""
    if not issubclass(recipe.module.Config, CorporaConfig):
        raise BertJaxError(f"{recipe.spec} is not a pre-training config; leave it out")
    recipe.config()


def random_values(recipe: Recipe) -> list[str]:
    """Return the settings with which a run starts from random embeddings, not from ones computed from the corpora."""
    return ["embedding_init=random"] if isinstance(recipe.config(), Config) else []


def count_steps(seconds: float, recipe: Recipe, directory: Path, command: str) -> int:
    recipe.train(directory, command, f"steps={TIMED}", "log.max_eval_batches=1", *random_values(recipe))
    timed = [line for line in read_metrics(Workdir(directory).metrics) if line["kind"] == "train"]
    settling = max(line["step"] for line in timed if line["step"] <= TIMED // 2)
    later = sum(line["time"]["seconds"] for line in timed if line["step"] > settling)
    return max(round(seconds / later * (TIMED - settling)), 1)


@dataclass(frozen=True)
class RecipeScores:
    recipe: str
    steps: int
    tokens: int
    own: dict[str, float]  # scores on the recipe's own validation set
    compared: dict[str, float]  # scores on the validation set of the first recipe
    gains: list[Gain]  # one for each --labels


def compare_recipes(
    recipes: Sequence[Recipe], labels: Sequence[Recipe], minutes: float, workdir: str, command: str
) -> str:
    for recipe in recipes:
        check(recipe)
    for tuning in labels:
        check_labels(tuning)
    path = Path(workdir)
    path.mkdir(parents=True, exist_ok=True)
    with locked_directory(path):
        plan = Plan(path / PLAN, minutes)
        results = []
        for number, recipe in enumerate(recipes, 1):
            directory = path / str(number)
            with part_of_run(f"recipe {number} of {len(recipes)}"):
                steps = plan.steps(number, recipe, directory, command)
                print_line(f"{steps:,} steps in {minutes:g} minutes: {recipe.text}")
                recipe.train(directory, command, f"steps={steps}")
                compared = scores_on_first(directory, recipes[0], command)
                gains = measure_gains(recipe, labels, directory, command)
            lines = read_metrics(Workdir(directory).metrics)
            tokens = sum(line["tokens"] for line in lines if line["kind"] == "train")
            own = validation_lines(Workdir(directory).metrics)[-1]
            results.append(RecipeScores(recipe.text, steps, tokens, chosen_scores(own), compared, gains))
        text = "\n".join(describe(results))
        write_atomically(path / TABLE, text + "\n")
    return text


def chosen_scores(line: dict) -> dict[str, float]:
    return {name: line[name] for name in SCORES if name in line}


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
        steps = count_steps(60 * self.facts["minutes"], recipe, timing, command)
        known.append({"recipe": text, "steps": steps})
        write_json(self.path, self.facts)
        remove_path(timing)
        return steps


def scores_on_first(directory: Path, first: Recipe, command: str) -> dict[str, float]:
    """Evaluate a model's predictions of masked words on the validation set of the first recipe.

    For a run of ELECTRA, evaluate its generator. Return {} if no model of the run predicts masked words, or if its
    vocabulary differs.
    """
    workdir = Workdir(directory / "compared")
    if known := validation_lines(workdir.metrics):
        return chosen_scores(known[-1])
    models = [path for path in (directory / "model", directory / "model" / GENERATOR) if path.exists()]
    layouts = {path: hub.ModelDirectory.open(path).layout for path in models}
    model = next((path for path, layout in layouts.items() if "mlm" in layout.heads), None)
    if model is None or not same_tokens(model, first):
        return {}
    layout = layouts[model]
    values = {"task": "pretrain", "family": layout.family.model_type, "model": layout.config.changed_fields}
    values |= {name: value for name, value in first.values.items() if name in ("data", "log")}
    settings = [text for text in first.settings if text.startswith(("data.", "log."))]
    run_from_config(
        values, [*settings, f"init={model}", "first_step=0", "steps=0"], str(workdir.path), command
    )
    return chosen_scores(validation_lines(workdir.metrics)[-1])


def same_tokens(model: Path, recipe: Recipe) -> bool:
    config = recipe.config()
    assert isinstance(config, CorporaConfig)
    return open_tokenizer(model).fingerprint == Corpus(config.data.corpora[0]).fingerprint


def measure_gains(recipe: Recipe, labels: Sequence[Recipe], directory: Path, command: str) -> list[Gain]:
    """Measure, for each fine-tuning, the gain of the trained model over its initial values."""
    if not labels:
        return []
    untrained = directory / "untrained"
    recipe.train(untrained, command, "steps=0", *random_values(recipe))
    models = {"untrained": untrained / "model", "trained": directory / "model"}
    return [
        measure_gain(tuning, models, directory / "labels" / str(number), command)
        for number, tuning in enumerate(labels, 1)
    ]


def describe(results: Sequence[RecipeScores]) -> list[str]:
    labels = {f"labels {number}": gain for number, gain in enumerate(results[0].gains, 1)}
    header = ["recipe", "steps", "tokens", "own loss", "own accuracy", "loss", "accuracy", *labels]
    rows = [
        (r.recipe, r.steps, r.tokens, *(r.own.get(name, "-") for name in SCORES),
         *(r.compared.get(name, "-") for name in SCORES), *map(str, r.gains))
        for r in results
    ]  # fmt: skip
    lines = [
        *markdown_table(header, rows),
        "",
        "Loss and accuracy of masked words: on the recipe's own validation set (own), and on that of the first recipe.",
    ]
    if not all(scores.compared for scores in results):
        lines += ["-: the model predicts no masked words, or its vocabulary differs from the first recipe's."]
    if labels:
        lines += ["labels: the score without and with pre-training (difference ± its standard error)."]
    return lines + [f"{name}, {gain.score}: {gain.labels}" for name, gain in labels.items()]
