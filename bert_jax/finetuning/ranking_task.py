"""The task of a cross-encoder: the loss reads the logits of all documents of a query together."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp

from bert_jax.data.batch_source import Fact
from bert_jax.data.examples.row_packing import PLACE, Target
from bert_jax.finetuning.gather import gather_by_example
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.losses.loss import Loss
from bert_jax.losses.ranking import RANKING_LOSSES, RankingLoss, RankingLossSettings
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.workdir import Workdir


@dataclass(frozen=True)
class RankingTask(HeadTask):
    kind: Relevance
    loss: RankingLoss = RANKING_LOSSES["binary"]
    settings: RankingLossSettings = RankingLossSettings(1.0)
    max_documents: int = 2  # at most, per query
    whole_batch: ClassVar[bool] = True

    @property
    def targets(self) -> dict[str, Target]:
        taught = {"scores": Target("float32")} if self.loss.uses_teacher_scores else {}
        return self.kind.targets | {PLACE: Target("int32")} | taught

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        yield "loss", self.loss.name

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        return {self.head: super().outputs(params, batch, constants, key)[self.head]}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        logits = gather_by_example(outputs[self.head][..., 0].astype(jnp.float32), batch, self.max_documents)
        lists = {
            name: gather_by_example(batch[name], batch, self.max_documents)
            for name in ("labels", "label_weights", "scores")
            if name in batch
        }
        return {f"{self.loss.name}_loss": self.loss.compute(logits, lists, self.settings)}
