"""Fine-tuning whose method folds may choose: a linear probe, contrastive training, or ordinary fine-tuning."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, cast

from bert_jax.data.batch_source import BatchSource, Fact
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.choose_method import (
    candidate_methods,
    describe_folds,
    needs_one_fold,
    prepare_method,
    resume_method,
    tries_one_method,
)
from bert_jax.finetuning.example_splits import DEFAULT_FOLDS
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.finetuning.label_warnings import label_warnings
from bert_jax.finetuning.linear_probe import fit_head_as_probe
from bert_jax.losses.loss import Loss, pair_error
from bert_jax.models.bert import states_read
from bert_jax.models.heads import HEADS
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.workdir import Workdir


class FinetuneTask(HeadTask):
    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        if folds := describe_folds(run, directory):
            yield "folds", folds

    def warnings(self, run: OpenedRun) -> Iterator[str]:
        if self.finish_inputs:
            data = cast(FinetuneConfig, run.config).data
            yield from label_warnings(self.kind, self.finish_inputs.train, data)

    def resume(self, run: OpenedRun, directory: Workdir) -> OpenedRun:
        return resume_method(run, directory)

    def runs_before(self, run: OpenedRun, directory: Workdir) -> Iterator[tuple[OpenedRun, int]]:
        config, given = cast(FinetuneConfig, run.config), cast(FinetuneConfig, run.given)
        all_folds = config.cross_validates
        if directory.run.exists() or not (all_folds or needs_one_fold(run)):
            return
        folds = config.data.folds if all_folds else DEFAULT_FOLDS
        examples = len(self.finish_inputs.train) if self.finish_inputs else 0
        methods = [method for method in candidate_methods(config, self, examples) if method != "linear_probe"]
        for method in methods[: 1 if tries_one_method(self, examples, all_folds) else None]:
            data = replace(given.data, folds=folds, fold_index=0, out_of_scope="")
            fold = replace(given, method=method, steps=config.steps, report=False, data=data)
            yield run.reopen(fold), folds if all_folds else 1

    def prepare(self, run: OpenedRun, directory: Workdir) -> OpenedRun:
        return prepare_method(run, directory)


VECTORS = "vectors"


class ContrastiveTask(FinetuneTask):
    """Contrastive fine-tuning (SetFit): the encoder learns to place texts of one class close together and texts of
    different classes apart; then the head is fitted as a probe. A few texts make many pairs, so few labels are enough.
    """

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
