"""Pre-training: the masked words of a row, and whether its two halves follow one another."""

import math
from dataclasses import dataclass, field

import jax.numpy as jnp

from bert_jax.data.config import DataConfig
from bert_jax.hub.directory import Layout
from bert_jax.losses import Loss, cross_entropy, weigh
from bert_jax.models.config import EncoderConfig
from bert_jax.tasks.config import RunConfig
from bert_jax.tasks.contract import Features, Task


@dataclass(frozen=True)
class Config(RunConfig):
    model: EncoderConfig = field(default_factory=EncoderConfig)
    data: DataConfig = field(default_factory=DataConfig)


@dataclass(frozen=True)
class Pretraining(Task):
    """Masked words and, where rows are pairs, the second half of the pair."""

    data: DataConfig = DataConfig()

    @classmethod
    def of(cls, config: Config) -> "Pretraining":
        paired = config.data.examples != "full_sentences"
        heads = ("mlm", "nsp") if paired else ("mlm",)
        return cls(Layout(config.model, heads=heads, pooler=paired), config.data)

    def features(self, rows: int, length: int) -> Features:
        return self.data.features(rows, length)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        losses = {"mlm_loss": cross_entropy(outputs["mlm"], batch["targets"], batch["target_weight"])}
        if "nsp" in outputs:
            losses["nsp_loss"] = cross_entropy(outputs["nsp"], batch["labels"], batch["weight"])
        return losses

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        scores = {"mlm_accuracy": accuracy(outputs["mlm"], batch["targets"], batch["target_weight"])}
        if "nsp" in outputs:
            scores["nsp_accuracy"] = accuracy(outputs["nsp"], batch["labels"], batch["weight"])
        return scores

    def summary(self, means: dict[str, float]) -> dict[str, float]:
        return means | {"mlm_perplexity": math.exp(min(means["mlm_loss"], 700))}


def accuracy(logits, labels, weight) -> Loss:
    return weigh((logits.argmax(-1) == labels).astype(jnp.float32), weight)
