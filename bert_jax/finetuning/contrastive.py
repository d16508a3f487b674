"""Contrastive fine-tuning (SetFit): the encoder learns to place texts of one class close together and texts of
different classes apart; then the head is fitted as a probe. A few texts make many pairs, so few labels are enough."""

from typing import ClassVar, cast

from bert_jax.data.batch_source import BatchSource
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.finetune_task import FinetuneTask
from bert_jax.finetuning.linear_probe import fit_head_as_probe
from bert_jax.losses.loss import Loss, pair_error
from bert_jax.models.bert import states_read
from bert_jax.models.heads import HEADS

VECTORS = "vectors"


class ContrastiveTask(FinetuneTask):
    whole_batch: ClassVar[bool] = True

    @property
    def starts_from_probe(self) -> bool:
        return False  # the head is fitted as a probe at the end instead

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Return what the head reads of each text: [B, D], or [B, P, D] if texts are packed."""
        outputs = super().outputs(params, batch, constants, key)
        return {VECTORS: states_read(HEADS[self.head], outputs, batch)}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return {"contrast_loss": pair_error(outputs[VECTORS], batch["labels"], batch["label_weights"])}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return {}

    def predictions(self, outputs: dict, batch: dict):
        return None

    def final_params(self, params: dict, data: BatchSource) -> dict:
        pieces = cast(Epochs, data).train
        return fit_head_as_probe(params, self.layout, data.tokenizer, pieces, "softmax", self.class_weights)
