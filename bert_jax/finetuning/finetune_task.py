"""Fine-tuning whose method folds may choose: a linear probe, contrastive training, or ordinary fine-tuning."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from bert_jax.data.batch_source import Fact
from bert_jax.finetuning.choose_method import (
    candidate_methods,
    describe_folds,
    needs_one_fold,
    prepare_method,
    resume_method,
    tries_one_method,
)
from bert_jax.finetuning.example_counts import DEFAULT_FOLDS
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
