"""A head on the encoder of a model directory, and the encoder below it, learn one kind of prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import jax.numpy as jnp

from bert_jax.core.terminal import pluralize
from bert_jax.data.batch_source import Fact
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.data.examples.split import document_keys
from bert_jax.data.randomness import sample_indices
from bert_jax.finetuning.inspect_examples import format_examples
from bert_jax.finetuning.linear_probe import fit_head_as_probe
from bert_jax.losses.loss import Loss
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.linear_model import MAX_UNITS, Link
from bert_jax.training.opened_run import OpenedRun
from bert_jax.training.task import Task
from bert_jax.training.workdir import Workdir

MAX_PROBE_EXAMPLES = 10_000  # texts or windows that a probe is fitted to, if fine-tuning follows
MAX_LABELS = 8  # labels described with their counts


@dataclass(frozen=True)
class HeadTask(Task[Epochs]):
    """Trains a head and the encoder below it to make one kind of prediction."""

    kind: Kind
    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    # Whether the head starts as a fitted probe, if a probe can learn these predictions.
    probes_head: bool = field(default=False, compare=False)
    # Descriptions of the labels, from which a probe learns, too.
    descriptions: tuple[EncodedWindow, ...] = field(default=(), compare=False)

    @property
    def best_metric(self) -> str:
        return self.kind.best_metric

    @property
    def head(self) -> str:
        return self.layout.heads[-1]

    @property
    def train_examples(self) -> Sequence[Example]:
        return self.finish_inputs.train if self.finish_inputs else ()

    @property
    def probe_link(self) -> Link | None:
        """The link of the probe that the head is fitted as before the first step; None if it is not."""
        return self.kind.link if self.probes_head else None

    def initial_params(self, params: dict, data: Epochs, steps: int) -> dict:
        if not (link := self.probe_link):
            return params
        return self.fit_head(params, data, link, MAX_PROBE_EXAMPLES if steps else MAX_UNITS)

    def fit_head(self, params: dict, data: Epochs, link: Link, most: int) -> dict:
        """Return the parameters with the head fitted to `most` windows at most, and to the descriptions of labels."""
        sample = [data.train[i] for i in sample_indices("pieces of a probe", len(data.train), most)]
        sample += self.descriptions
        return fit_head_as_probe(params, self.layout, data.tokenizer, sample, link, self.class_weights)

    def describe_new_params(self, names: Sequence[str]) -> str:
        if self.probe_link and names:
            return f"; the head {', '.join(names)} starts as a linear probe"
        return super().describe_new_params(names)

    def facts(self, run: OpenedRun, directory: Workdir) -> Iterator[Fact]:
        if examples := self.train_examples:
            yield count_documents(examples)
            counts = self.kind.targets.count_labels(examples)
            shown = [f"{label} {count:,}" for label, count in counts.most_common(MAX_LABELS)]
            if counts:
                yield "labels", f"{len(counts):,}: {', '.join(shown)}{', ...' * (len(counts) > MAX_LABELS)}"

    def show_step(self, data: Epochs, step: int, rows: int) -> str:
        return format_examples(self.kind, data, step, rows)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        label_weights = batch["label_weights"]
        if self.class_weights:
            label_weights = label_weights * jnp.asarray(self.class_weights)[batch["labels"]]
        loss = self.kind.targets.loss(outputs[self.head], batch, label_weights, self.smoothing)
        return {f"{self.kind.heads[0]}_loss": loss}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return self.kind.targets.batch_metrics(outputs[self.head], batch)

    def predictions(self, outputs: dict, batch: dict):
        return outputs[self.head]


def count_documents(examples: Sequence[Example]) -> Fact:
    """Return a fact: the number of different documents among the examples, or of texts if they name no documents.

    >>> count_documents([Example("a", "x", "row 1"), Example("b", "x", "row 2"), Example("a", "x", "row 3")])
    ('texts', '2 different ones among 3 examples')
    """
    documents = len(set(document_keys(examples)))
    name = "documents" if any(example.document for example in examples) else "texts"
    return name, f"{documents:,} different ones among {pluralize(len(examples), 'example')}"
