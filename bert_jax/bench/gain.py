"""What a pre-training is worth where labels are known.

The same fine-tuning begins from the trained model and from its random initial values, with several seeds, each at the
setting of the sweep that is best for it.

DIRECTORY/untrained/, DIRECTORY/trained/    the fine-tunings
DIRECTORY/gain.json                         what they came to
"""

import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.bench.recipe import Recipe
from bert_jax.errors import BertJaxError
from bert_jax.files import read_json, write_json
from bert_jax.inference.model import load
from bert_jax.inference.outcomes import outcomes, read
from bert_jax.metrics import Sums
from bert_jax.report.intervals import differences
from bert_jax.tasks.finetune_config import FinetuneConfig
from bert_jax.terminal import part_of_run

ARMS = "untrained", "trained"
FACTS = "gain.json"


@dataclass(frozen=True)
class Gain:
    """Of one score on the validation set: means over the seeds."""

    labels: str  # the fine-tuning, as it was given
    score: str
    untrained: float
    trained: float
    standard_error: float  # of the difference: of the seeds, and of the validation set as a sample
    untrained_setting: str  # the best one of the sweep
    trained_setting: str

    @property
    def difference(self) -> float:
        return self.trained - self.untrained

    def __str__(self) -> str:
        error = f"{self.difference:+.3f} ± {self.standard_error:.3f}"
        return f"{self.untrained:.3f} to {self.trained:.3f} ({error})"


def check(labels: Recipe) -> None:
    """Refuse what is no fine-tuning of several seeds that a validation set judges."""
    config = config_of(labels)
    if not config.data.heldout:
        raise BertJaxError(f"{labels.text}: give the validation set, data.heldout=FILE")
    if config.seeds < 2:
        raise BertJaxError(f"{labels.text}: one seed shows no spread; set seeds=3")


def config_of(labels: Recipe) -> FinetuneConfig:
    if not issubclass(labels.module.Config, FinetuneConfig):
        raise BertJaxError(
            f"{labels.spec} is not a fine-tuning; give --labels one, such as configs/classify.py"
        )
    config = labels.config("init=model")  # of any model
    assert isinstance(config, FinetuneConfig)
    return config


def measure(labels: Recipe, models: dict[str, Path], directory: Path, command: str) -> Gain:
    """Fine-tune the model of each arm, once: a second call reads what the first one found."""
    path = directory / FACTS
    if path.exists():
        known = read_json(path, dict[str, Any])
        if known["recipe"] != labels.words:
            raise BertJaxError(
                f"{path} is of {shlex.join(known['recipe'])}; name the same labels in the same order, or another "
                "--workdir"
            )
        return Gain(**known["gain"])
    arms = {}
    for arm in ARMS:
        with part_of_run(arm):
            labels.train(directory / arm, command, f"init={models[arm]}", "report=False")
            arms[arm] = best(labels, directory / arm)
    gain = of_arms(labels, *arms.values())
    write_json(path, {"recipe": labels.words, "gain": asdict(gain)})
    return gain


@dataclass(frozen=True)
class Arm:
    """The runs of one setting, one for each seed."""

    setting: str
    score: str
    sums: list[Sums]

    @property
    def values(self) -> np.ndarray:
        return np.array([sums.scores[self.score] for sums in self.sums])


def best(labels: Recipe, directory: Path) -> Arm:
    """The runs of the setting that is best on average; a setting counts if all its seeds came to a model."""
    config, arms = config_of(labels), []
    data = config.data
    for setting in sorted({path.parent.parent for path in directory.glob("*/seed=*/model")}):
        models = [load(path) for path in sorted(setting.glob("seed=*/model"))]
        if len(models) == config.seeds:
            examples, known = read(models[0], data.heldout, data.columns)
            sums = [outcomes(model, examples, known).sums for model in models]
            arms.append(Arm(setting.name, models[0].kind.best, sums))
    if not arms:
        raise BertJaxError(f"no setting in {directory} gave a model for every seed; try lower learning rates")
    return max(arms, key=lambda arm: arm.values.mean())


def of_arms(labels: Recipe, untrained: Arm, trained: Arm) -> Gain:
    score = trained.score
    # The seeds differ by chance, and so would another validation set, which all seeds share.
    of_seeds = sum(arm.values.var(ddof=1) / len(arm.values) for arm in (untrained, trained))
    of_examples = np.mean(
        [differences(a, b)[score].standard_error for a, b in zip(untrained.sums, trained.sums, strict=True)]
    )
    return Gain(
        labels.text, score, float(untrained.values.mean()), float(trained.values.mean()),
        math.hypot(math.sqrt(of_seeds), of_examples), untrained.setting, trained.setting,
    )  # fmt: skip
