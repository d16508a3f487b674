"""Measure what pre-training is worth, by fine-tuning on labels.

The same fine-tuning starts from the trained model and from its random initial values, with several seeds. Each of the
two is measured at the setting of the sweep that is best for it.

DIRECTORY/untrained/, DIRECTORY/trained/    the fine-tunings
DIRECTORY/gain.json                         the result
"""

import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.core.terminal import part_of_run
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.inference.load import load
from bert_jax.inference.text_outcomes import predict_outcomes, read_examples
from bert_jax.metrics.intervals import difference_intervals
from bert_jax.metrics.score_sums import ScoreSums
from tests.bench.recipe import Recipe

CONDITIONS = "untrained", "trained"
FACTS = "gain.json"


@dataclass(frozen=True)
class Gain:
    """The mean scores over the seeds on the validation set, without and with pre-training."""

    labels: str  # the fine-tuning recipe, as the user wrote it
    score: str
    untrained: float
    trained: float
    standard_error: float  # of the difference: from the seeds, and from the sample of validation examples
    untrained_setting: str  # the best setting of the sweep
    trained_setting: str

    @property
    def difference(self) -> float:
        return self.trained - self.untrained

    def __str__(self) -> str:
        error = f"{self.difference:+.3f} ± {self.standard_error:.3f}"
        return f"{self.untrained:.3f} to {self.trained:.3f} ({error})"


def check_labels(labels: Recipe) -> None:
    """Refuse a recipe that is not a fine-tuning, has no validation set, or has a single seed."""
    config = config_of(labels)
    if not config.data.validation:
        raise BertJaxError(f"{labels.text}: name a validation set, data.validation=FILE")
    if config.num_seeds < 2:
        raise BertJaxError(f"{labels.text}: one seed shows no spread; set num_seeds=3")


def config_of(labels: Recipe) -> FinetuneConfig:
    if not issubclass(labels.module.Config, FinetuneConfig):
        raise BertJaxError(
            f"{labels.spec} is not a fine-tuning config; give --labels one, such as configs/classify.py"
        )
    config = labels.config("init=model")  # any name: the models come later
    assert isinstance(config, FinetuneConfig)
    return config


def measure_gain(labels: Recipe, models: dict[str, Path], directory: Path, command: str) -> Gain:
    """Fine-tune the model of each condition. If DIRECTORY/gain.json exists, read the result from it instead."""
    path = directory / FACTS
    if path.exists():
        known = read_json(path, dict[str, Any])
        if known["recipe"] != labels.words:
            raise BertJaxError(
                f"{path} is the result of {shlex.join(known['recipe'])}; give the same --labels in the same order, or "
                "another --workdir"
            )
        return Gain(**known["gain"])
    best = {}
    for condition in CONDITIONS:
        with part_of_run(condition):
            labels.train(directory / condition, command, f"init={models[condition]}", "report=False")
            best[condition] = best_setting(labels, directory / condition)
    gain = compute_gain(labels, *best.values())
    write_json(path, {"recipe": labels.words, "gain": asdict(gain)})
    return gain


@dataclass(frozen=True)
class SettingScores:
    """The runs of one setting, one for each seed."""

    setting: str
    score: str
    sums: list[ScoreSums]

    @property
    def values(self) -> np.ndarray:
        return np.array([sums.scores[self.score] for sums in self.sums])


def best_setting(labels: Recipe, directory: Path) -> SettingScores:
    """Return the runs of the setting with the best mean score. A setting counts if every seed has a model."""
    config, settings = config_of(labels), []
    data = config.data
    for setting in sorted({path.parent.parent for path in directory.glob("*/seed=*/model")}):
        models = [load(path) for path in sorted(setting.glob("seed=*/model"))]
        if len(models) == config.num_seeds:
            examples, known = read_examples(models[0], data.validation, data.columns)
            sums = [predict_outcomes(model, examples, known).score_sums for model in models]
            settings.append(SettingScores(setting.name, models[0].kind.best_metric, sums))
    if not settings:
        raise BertJaxError(f"no setting in {directory} gave a model for every seed; try lower learning rates")
    return max(settings, key=lambda scores: scores.values.mean())


def compute_gain(labels: Recipe, untrained: SettingScores, trained: SettingScores) -> Gain:
    score = trained.score
    # Two sources of chance: the seeds, and the choice of validation examples, which all seeds share.
    from_seeds = sum(scores.values.var(ddof=1) / len(scores.values) for scores in (untrained, trained))
    from_examples = np.mean(
        [
            difference_intervals(a, b)[score].standard_error
            for a, b in zip(untrained.sums, trained.sums, strict=True)
        ]
    )
    return Gain(
        labels.text, score, float(untrained.values.mean()), float(trained.values.mean()),
        math.hypot(math.sqrt(from_seeds), from_examples), untrained.setting, trained.setting,
    )  # fmt: skip
