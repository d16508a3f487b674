"""Classification whose loss counts what the model already knows for less: a task that learns from labels, in a file.

Its head, its facts and its calibration are its own, too.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.batch_source import Fact
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.losses.loss import Loss, weighted_loss
from bert_jax.predictions.calibration import UNCALIBRATED, Calibration
from bert_jax.predictions.calibration_fitting import CalibratedPredictions, cross_fit, document_names
from bert_jax.predictions.kind import KINDS, Outcomes
from bert_jax.predictions.kinds.classes import ClassDecoder, Classes
from bert_jax.predictions.label_matching import label_indices
from bert_jax.tasks import classify


class FocalDecoder(ClassDecoder):
    def calibrate(self, outcomes: Outcomes) -> Calibration:
        logits, truth = np.stack(outcomes.raw_outputs), label_indices(outcomes.truth, self.labels)
        right = logits.argmax(-1) == truth

        def fitted(rows) -> Calibration:
            tried = [Calibration(self.name, self.labels, (float(t),)) for t in np.geomspace(0.2, 5, 65)]
            return min(tried, key=lambda c: abs(confidence(c, rows).mean() - right[rows].mean()))

        def confidence(calibration: Calibration, rows) -> np.ndarray:
            return calibration.probabilities(logits[rows]).max(-1)

        def judge(calibration: Calibration, rows) -> CalibratedPredictions:
            before, after = (confidence(c, rows) for c in (UNCALIBRATED, calibration))
            return CalibratedPredictions(before, after, right[rows], after, right[rows], rows)

        return cross_fit((fitted,), judge, document_names(outcomes.examples))


class Focal(Classes):
    """Classes, read from the mean of the states, whose mean confidence is calibrated to their accuracy."""

    name = "focal"
    heads = ("classify_mean",)
    problem_type = ""  # config.json names the kind
    decoder_class = FocalDecoder

    @classmethod
    def matches_layout(cls, layout) -> bool:
        return False


KINDS["focal"] = Focal


@dataclass(frozen=True)
class Config(classify.Config):
    problem_type: str = "focal"
    gamma: float = 2.0  # how much less what is known counts


@dataclass(frozen=True)
class FocalTask(FinetuneTask):
    gamma: float = field(default=2.0, kw_only=True)

    def facts(self, run, directory) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        yield "gamma", f"{self.gamma:g}"

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logs = jax.nn.log_softmax(outputs[self.head])
        log = jnp.take_along_axis(logs, batch["labels"][..., None], axis=-1)[..., 0]
        return {"focal_loss": weighted_loss(-log * (1 - jnp.exp(log)) ** self.gamma, batch["label_weights"])}


def open(config: Config, directories: ModelDirectories):
    plain, data, config = open_data(config, directories[config.init])
    if config.method == "contrastive":  # which has a loss of its own
        return plain, data, config
    settings = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
    return FocalTask(**settings, gamma=config.gamma), data, config
