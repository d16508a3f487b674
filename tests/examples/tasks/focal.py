"""Classification whose loss counts what the model already knows for less: a task that learns from labels, in a file."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from bert_jax.data.batch_source import Fact
from bert_jax.finetuning.finetune_data import open_data
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.hub.model_directory import ModelDirectories
from bert_jax.losses.loss import Loss, weighted_loss
from bert_jax.tasks import classify


@dataclass(frozen=True)
class Config(classify.Config):
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
