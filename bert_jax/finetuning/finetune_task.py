"""Fine-tuning whose method folds may choose: a linear probe, contrastive training, or ordinary fine-tuning."""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar, cast

import jax

from bert_jax.data.batch_source import BatchSource, Fact
from bert_jax.data.examples.epochs import Epochs
from bert_jax.finetuning.choose_method import (
    candidate_methods,
    choose_method,
    describe_compared,
    tries_one_method,
)
from bert_jax.finetuning.cross_validation import Folds
from bert_jax.finetuning.example_splits import DEFAULT_FOLDS
from bert_jax.finetuning.finetune_config import FinetuneConfig, Method
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.finetuning.label_warnings import label_warnings
from bert_jax.finetuning.linear_probe import fit_head_as_probe
from bert_jax.losses.loss import Loss, pair_error
from bert_jax.models.bert import states_read
from bert_jax.models.heads import HEADS
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.step import StepCache
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir

# One fold chooses the method from ONE_FOLD_FROM examples in all, for with fewer it would choose by chance, and below
# ONE_FOLD_BELOW of each class: with 256 and 512 of ten emotions contrastive training was three points ahead of
# fine-tuning, with 1,200 of SST-2's two classes two points behind.
ONE_FOLD_FROM, ONE_FOLD_BELOW = 1_000, 1_000


class FinetuneTask(HeadTask):
    def facts(self, run: OpenedRun[FinetuneConfig], directory: Workdir) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        config, examples = run.config, len(self.train_examples)
        methods = candidate_methods(config, self, examples)
        if config.cross_validates:
            yield "folds", describe_compared(config.data.folds, methods, tries_one_method(self, examples))
        elif self.predicts_one_fold(run, directory):
            yield "folds", describe_compared(1, methods, only_best=False)

    def warnings(self, run: OpenedRun[FinetuneConfig]) -> Iterator[str]:
        if self.finish_inputs:
            yield from label_warnings(self.kind, self.train_examples, run.config.data)

    def resume(self, run: OpenedRun[FinetuneConfig], directory: Workdir) -> OpenedRun[FinetuneConfig]:
        """Return the run with the method with which it was started."""
        if directory.run.exists() and run.config.method == "auto":
            run = with_method(run, directory.read_run()["config"].get("method", "auto"))
        return super().resume(run, directory)

    def runs_before(
        self, run: OpenedRun[FinetuneConfig], directory: Workdir
    ) -> Iterator[tuple[OpenedRun, int]]:
        config, given, all_folds = run.config, run.given, run.config.cross_validates
        if directory.run.exists() or not (all_folds or self.needs_one_fold(run)):
            return
        folds, examples = config.data.folds if all_folds else DEFAULT_FOLDS, len(self.train_examples)
        methods = [method for method in candidate_methods(config, self, examples) if method != "linear_probe"]
        for method in methods[: 1 if tries_one_method(self, examples, all_folds) else None]:
            data = replace(given.data, folds=folds, fold_index=0, out_of_scope="")
            fold = replace(given, method=method, steps=config.steps, report=False, data=data)
            yield run.reopen(fold), folds if all_folds else 1

    def prepare(self, run: OpenedRun[FinetuneConfig], directory: Workdir) -> OpenedRun[FinetuneConfig]:
        """Return the run with the method that its folds choose, or with the one that they chose before."""
        if jax.process_count() > 1:
            return run
        resumed = self.resume(run, directory)  # before the folds, in case it refuses
        # With more steps, the folds are predicted anew, but by the method of the run.
        run = replace(resumed if directory.raises_steps(resumed.config) else run, cache=StepCache())
        if run.config.cross_validates:
            folds = Folds(run)
        elif self.predicts_one_fold(run, directory):
            data = replace(run.given.data, folds=DEFAULT_FOLDS)
            folds = Folds(run.reopen(replace(run.given, data=data)), predicted=[0])
        else:
            return resumed
        chosen = choose_method(folds, directory.path)
        return replace(with_method(run, chosen.method), out_of_fold=chosen if folds.covers_all else None)

    def predicts_one_fold(self, run: OpenedRun[FinetuneConfig], directory: Workdir) -> bool:
        return self.needs_one_fold(run) and not directory.run.exists()

    def needs_one_fold(self, run: OpenedRun[FinetuneConfig]) -> bool:
        """Whether one fold must choose the method of a run that holds out a validation set.

        Only runs on single texts need it, and only if there are not too many: there contrastive training may be better
        than fine-tuning.
        """
        examples = self.train_examples
        few = ONE_FOLD_FROM <= len(examples) < ONE_FOLD_BELOW * len(self.kind.labels)
        single = self.kind.supports_contrastive and few and isinstance(examples[0].text, str)
        return single and run.given.auto_method and jax.process_count() == 1


def with_method(run: OpenedRun[FinetuneConfig], method: str) -> OpenedRun[FinetuneConfig]:
    """Return the run with this method; contrastive training has its own task and learning rate."""
    if run.config.method == method:
        return run
    if method == "contrastive":
        return run.reopen(replace(run.given, method="contrastive"))
    return replace(run, config=run.config.with_method(cast(Method, method)))


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

    scores, predictions = Task.scores, Task.predictions  # none: the head is fitted at the end

    def final_params(self, params: dict, data: BatchSource) -> dict:
        pieces = cast(Epochs, data).train
        return fit_head_as_probe(params, self.layout, data.tokenizer, pieces, "softmax", self.class_weights)
