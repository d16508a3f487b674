"""Fine-tuning whose method folds may choose: a linear probe, contrastive training, or ordinary fine-tuning."""

from collections.abc import Iterator
from typing import cast

from bert_jax.data.batch_source import Fact
from bert_jax.finetuning.choose_method import describe_folds, prepare_method, resume_method
from bert_jax.finetuning.finetune_config import FinetuneConfig
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.finetuning.label_warnings import label_warnings
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

    def prepare(self, run: OpenedRun, directory: Workdir) -> OpenedRun:
        return prepare_method(run, directory)
