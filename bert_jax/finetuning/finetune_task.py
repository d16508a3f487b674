"""What all fine-tuning tasks share: a head on the encoder of a model directory that learns one kind of prediction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import jax.numpy as jnp

from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.example import Example
from bert_jax.finetuning.linear_probe import fit_head_as_probe
from bert_jax.losses.loss import Loss
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.kind import Kind, TextWindows
from bert_jax.predictions.linear_model import MAX_UNITS, Link
from bert_jax.training.task import BatchSource, Task

MAX_PROBE_EXAMPLES = 10_000  # texts or windows that a probe is fitted to, if fine-tuning follows


@dataclass(frozen=True)
class FinetuneTask(Task):
    """Trains a head and the encoder below it to make one kind of prediction."""

    kind: Kind
    smoothing: float = 0.0
    class_weights: tuple[float, ...] = ()
    # Whether the head starts as a fitted probe, if a probe can learn these predictions.
    probes_head: bool = field(default=False, compare=False)

    @property
    def best_metric(self) -> str:
        return self.kind.best_metric

    @property
    def head(self) -> str:
        return self.layout.heads[-1]

    @property
    def starts_from_probe(self) -> bool:
        """Whether the head is fitted as a probe before the first step."""
        return self.probes_head and self.kind.link is not None

    def initial_params(self, params: dict, data: BatchSource, steps: int) -> dict:
        if not self.starts_from_probe:
            return params
        link = cast(Link, self.kind.link)
        pieces, most = cast(Epochs, data).train, MAX_PROBE_EXAMPLES if steps else MAX_UNITS
        return fit_head_as_probe(params, self.layout, data.tokenizer, pieces, link, self.class_weights, most)

    def losses(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        label_weights = batch["label_weights"]
        if self.class_weights:
            label_weights = label_weights * jnp.asarray(self.class_weights)[batch["labels"]]
        loss = self.kind.loss(outputs[self.head], batch, label_weights, self.smoothing)
        return {f"{self.kind.heads[0]}_loss": loss}

    def scores(self, outputs: dict, batch: dict) -> dict[str, Loss]:
        return self.kind.batch_metrics(outputs[self.head], batch)

    def predictions(self, outputs: dict, batch: dict):
        return outputs[self.head]


@dataclass(frozen=True)
class PredictionEvaluator:
    """Computes metrics of whole validation examples from the logits of their pieces; None stands for those not
    computed."""

    kind: Kind
    examples: Sequence[Example]
    windows: Sequence[TextWindows]

    def merge_logits(self, logits: list) -> list:
        """Return the raw prediction for each example; None if logits are missing for any of its pieces."""
        raws, pieces = [], iter(logits)
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(pieces) for _ in windows.encodings]
            whole = all(part is not None for part in parts)
            raws.append(self.kind.combine_windows(example.text, windows, parts) if whole else None)
        return raws

    def __call__(self, logits: list) -> dict[str, float]:
        judged = [
            (raw, e)
            for raw, e in zip(self.merge_logits(logits), self.examples, strict=True)
            if raw is not None
        ]
        if not judged:
            return {}
        predicted = [self.kind.predict(raw, UNCALIBRATED) for raw, _ in judged]
        return self.kind.score_sums(predicted, [self.kind.truth(example) for _, example in judged]).scores
