"""Fine-tuning whose method folds may choose: a linear probe, contrastive training, or ordinary fine-tuning."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import jax

from bert_jax.core.progress import format_duration
from bert_jax.core.terminal import no_lines, pluralize
from bert_jax.data.batch_source import Fact
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.split import text_key
from bert_jax.finetuning.choose_method import (
    METHOD_NAMES,
    affordable_folds,
    candidate_methods,
    choose_method,
    describe_compared,
)
from bert_jax.finetuning.cross_validation import FoldRuns, Folds
from bert_jax.finetuning.example_splits import DEFAULT_FOLDS
from bert_jax.finetuning.finetune_config import ExamplesConfig, FinetuneConfig, Method
from bert_jax.finetuning.head_task import HeadTask
from bert_jax.finetuning.label_descriptions import NONE
from bert_jax.losses.loss import Loss, pair_error
from bert_jax.models.bert import states_read
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.linear_model import MAX_UNITS
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.step import StepCache
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir

# One fold chooses the method from ONE_FOLD_FROM examples in all, for with fewer it would choose by chance, and below
# ONE_FOLD_BELOW of each class: with 256 and 512 of ten emotions contrastive training was three points ahead of
# fine-tuning, with 1,200 of SST-2's two classes two points behind.
ONE_FOLD_FROM, ONE_FOLD_BELOW = 1_000, 1_000
FinetuneRun = OpenedRun["FinetuneTask", FinetuneConfig]


class FinetuneTask(HeadTask):
    def facts(self, run: FinetuneRun, directory: Workdir) -> Iterator[Fact]:
        yield from super().facts(run, directory)
        methods = candidate_methods(run.config, self)
        if run.config.cross_validates:
            yield "folds", describe_compared(run.config.data.folds, methods)
        elif self.predicts_one_fold(run, directory):
            yield "folds", describe_compared(1, methods)

    def warnings(self, run: FinetuneRun) -> Iterator[str]:
        if self.finish_inputs:
            yield from label_warnings(self.kind, self.train_examples, run.config.data)

    def resume(self, run: FinetuneRun, directory: Workdir) -> FinetuneRun:
        """Return the run with the method with which it was started."""
        if directory.run.exists():
            recorded = directory.read_run()["config"]
            if run.config.label_descriptions != NONE == recorded.get("label_descriptions"):
                run = without_descriptions(run)
            if run.config.method == "auto":
                run = with_method(run, recorded.get("method", "auto"))
        return super().resume(run, directory)

    def models_before(self, run: FinetuneRun, directory: Workdir) -> Iterator[str]:
        if directory.run.exists() or not (folds := self.open_folds(run, directory)):
            return
        first, *others = candidate_methods(run.config, self)
        probed = first == "linear_probe"
        methods = others if probed else [first]
        candidates = [FoldRuns(folds, method, directory.path) for method in methods]
        budget = run.config.budget_seconds(len(self.train_examples), self.layout.config)
        for candidate in affordable_folds(candidates, budget, len(folds.predicted), at_least=not probed):
            candidate.seconds.append(candidate.next_seconds)
        unsure = ""
        for candidate in candidates:
            count, name = len(candidate.seconds), METHOD_NAMES[candidate.method]
            took = format_duration(max(candidate.spent_seconds, 1))
            if count:
                yield f"before them {unsure}{pluralize(count, 'fold model')} with {name}, about {took}"
            unsure = "up to "

    def prepare(self, run: FinetuneRun, directory: Workdir) -> FinetuneRun:
        """Return the run with the method that its folds choose, or with the one that they chose before."""
        if jax.process_count() > 1:
            return run
        resumed = self.resume(run, directory)  # before the folds, in case it refuses
        # With more steps, the folds are predicted anew, but by the method of the run.
        run = replace(resumed if directory.raises_steps(resumed.config) else run, cache=StepCache())
        if not (folds := self.open_folds(run, directory)):
            return resumed
        method, out_of_fold = choose_method(folds, directory.path)
        with no_lines():  # what the run was opened with is said already
            if self.descriptions and not folds.descriptions:
                run = without_descriptions(run)
            return replace(with_method(run, method), out_of_fold=out_of_fold)

    def open_folds(self, run: FinetuneRun, directory: Workdir) -> Folds | None:
        """Return the folds that choose the method of a run; None if it is not theirs to choose."""
        if run.config.cross_validates:
            return Folds(run)
        if not self.predicts_one_fold(run, directory):
            return None
        data = replace(run.given.data, folds=DEFAULT_FOLDS)
        return Folds(run.reopen(replace(run.given, data=data)), predicted=[0])

    def predicts_one_fold(self, run: FinetuneRun, directory: Workdir) -> bool:
        return self.needs_one_fold(run) and not directory.run.exists()

    def needs_one_fold(self, run: FinetuneRun) -> bool:
        """Whether one fold must choose the method of a run that holds out a validation set.

        Only runs on single texts need it, and only if there are not too many: there contrastive training may be better
        than fine-tuning.
        """
        examples = self.train_examples
        few = ONE_FOLD_FROM <= len(examples) < ONE_FOLD_BELOW * len(self.kind.labels)
        single = self.kind.supports_contrastive and few and isinstance(examples[0].text, str)
        return single and run.given.auto_method and jax.process_count() == 1


def with_method(run: FinetuneRun, method: Method) -> FinetuneRun:
    """Return the run with this method; contrastive training has its own task and learning rate."""
    if run.config.method == method:
        return run
    if method == "contrastive":
        return run.reopen(replace(run.given, method="contrastive"))
    return replace(run, config=run.config.with_method(method))


def without_descriptions(run: FinetuneRun) -> FinetuneRun:
    return run.reopen(replace(run.given, label_descriptions=NONE))


VECTORS = "vectors"


class ContrastiveTask(FinetuneTask):
    """Contrastive fine-tuning (SetFit): the encoder learns to place texts of one class close together and texts of
    different classes apart; then the head is fitted as a probe. A few texts make many pairs, so few labels are enough.
    """

    whole_batch: ClassVar[bool] = True

    probe_link = None  # the head is fitted as a probe at the end instead

    def outputs(self, params: dict, batch: dict, constants: dict | None = None, key=None) -> dict:
        """Return what the head reads of each text: [B, D], or [B, P, D] if texts are packed."""
        outputs = super().outputs(params, batch, constants, key)
        return {VECTORS: states_read(HEADS[self.head], outputs, batch)}

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return {"contrast_loss": pair_error(outputs[VECTORS], batch["labels"], batch["label_weights"])}

    scores, predictions = Task.scores, Task.predictions  # none: the head is fitted at the end

    def final_params(self, params: dict, data: Epochs) -> dict:
        return self.fit_head(params, data, "softmax", MAX_UNITS)


MAX_LISTED = 5  # at most this many labels, or groups of labels, are named in a notice


def label_warnings(kind: Kind, examples: Sequence[Example], data: ExamplesConfig) -> Iterator[str]:
    """Name labels that differ only in case, labels with few examples, and duplicate texts."""
    if advice := kind.label_hint(examples, data.columns):
        yield advice
    counts = kind.targets.count_labels(examples)
    known = {label: counts[label] for label in kind.labels}
    yield from case_variant_warnings(known)
    if data.folds:
        alone = [labels[0] for labels in group_case_variants(known).values() if len(labels) == 1]
        yield from rare_label_warnings({label: known[label] for label in alone}, data.folds)
    yield from duplicate_warnings(examples)


def case_variant_warnings(counts: Mapping[str, int]) -> Iterator[str]:
    """
    >>> next(case_variant_warnings({"Bug Report": 89, "BUG REPORT": 3, "Question": 20}))
    'labels that differ only in case stay separate: "Bug Report" (89), "BUG REPORT" (3); write them alike to merge them'
    """
    several = [
        format_counts(group, counts) for group in group_case_variants(counts).values() if len(group) > 1
    ]
    if several:
        listed = "; ".join(several[:MAX_LISTED]) + f"; and {len(several) - MAX_LISTED} more" * (
            len(several) > MAX_LISTED
        )
        yield f"labels that differ only in case stay separate: {listed}; write them alike to merge them"


def group_case_variants(labels: Iterable[str]) -> dict[str, list[str]]:
    """Group labels that differ only in case or spaces."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(" ".join(label.casefold().split()), []).append(label)
    return groups


def rare_label_warnings(counts: Mapping[str, int], folds: int) -> Iterator[str]:
    """
    >>> next(rare_label_warnings({"bug": 89, "praise": 3}, 5))
    'fewer examples than the 5 folds: "praise" (3); their scores say little, so label more of them'
    """
    few = sorted((label for label, count in counts.items() if 0 < count < folds), key=counts.__getitem__)
    if few:
        more = f" and {len(few) - MAX_LISTED} more labels" * (len(few) > MAX_LISTED)
        listed = format_counts(few[:MAX_LISTED], counts) + more
        yield f"fewer examples than the {folds} folds: {listed}; their scores say little, so label more of them"


def duplicate_warnings(examples: Sequence[Example]) -> Iterator[str]:
    """
    >>> next(duplicate_warnings([Example("A", "x", "row 1"), Example("b", "x", "row 2"), Example("a", "x", "row 3")]))
    '1 of 3 training texts is a duplicate; identical texts stay together when the data are split'
    """
    count = len(examples) - len({text_key(example.text) for example in examples})
    if count:
        together = "" if any(example.document for example in examples) else (
            "; identical texts stay together when the data are split"
        )  # fmt: skip
        verb = "is a duplicate" if count == 1 else "are duplicates"
        yield f"{count:,} of {len(examples):,} training texts {verb}{together}"


def format_counts(labels: list[str], counts: Mapping[str, int]) -> str:
    return ", ".join(f'"{label}" ({counts[label]:,})' for label in labels)
