"""Encoded windows of labelled examples: their targets and batches, and the way back from windows to examples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from bert_jax.data.examples.example import Example
from bert_jax.data.examples.row_packing import (
    ACCELERATOR_COSTS,
    COSTS,
    INDEX,
    BatchConfig,
    EncodedWindow,
    RowLayout,
)
from bert_jax.finetuning.epochs_config import EpochsConfig
from bert_jax.metrics.score_sums import ScoreSums
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.models.mesh import device_count, platform
from bert_jax.predictions.calibration import UNCALIBRATED
from bert_jax.predictions.example_reader import TextWindows
from bert_jax.predictions.kind import Kind
from bert_jax.predictions.targets import Targets


def make_encoded_windows(
    targets: Targets, examples: Sequence[Example], windows: Sequence[TextWindows]
) -> list[EncodedWindow]:
    return [
        EncodedWindow(encoding, i, values)
        for i, (example, text) in enumerate(zip(examples, windows, strict=True))
        for encoding, values in zip(text.encodings, targets.values(example, text), strict=True)
    ]


@dataclass(frozen=True)
class PredictionEvaluator:
    """Computes metrics of whole validation examples from the logits of their windows; None stands for those not
    computed."""

    kind: Kind
    examples: Sequence[Example]
    windows: Sequence[TextWindows]

    def merge_logits(self, logits: list) -> list:
        """Return the raw prediction for each example; None if logits are missing for any of its windows."""
        raws, remaining = [], iter(logits)
        for example, windows in zip(self.examples, self.windows, strict=True):
            parts = [next(remaining) for _ in windows.encodings]
            whole = all(part is not None for part in parts)
            raws.append(self.kind.decoder.combine_windows(example.text, windows, parts) if whole else None)
        return raws

    def __call__(self, logits: list) -> ScoreSums | None:
        scored_pairs = [
            (raw, e)
            for raw, e in zip(self.merge_logits(logits), self.examples, strict=True)
            if raw is not None
        ]
        if not scored_pairs:
            return None
        targets, predict = self.kind.targets, self.kind.decoder.predict
        predicted = [predict(raw, UNCALIBRATED) for raw, _ in scored_pairs]
        return targets.score_sums(predicted, [targets.truth(example) for _, example in scored_pairs])


def make_batch_config(
    config: EpochsConfig,
    layout: RowLayout,
    longest: int,
    encoder: EncoderConfig,
    group_size: int = 1,
    **more: Any,
) -> BatchConfig:
    """Return the settings of the batches; each of the config's examples consists of `group_size` windows."""
    mesh, backend = config.mesh, platform()
    return BatchConfig(
        layout,
        config.batch_size * group_size,
        max(config.steps, 1),
        config.seed,
        encoder.hidden_size,
        encoder.num_hidden_layers,
        longest,
        # A TPU's lanes, and its attention kernel, take multiples of 128 tokens.
        multiple=128 if backend == "tpu" else 8,
        shards=device_count() // mesh.tensor * mesh.gradient_accumulation_steps,
        costs=COSTS.get(backend, ACCELERATOR_COSTS),
        group_size=group_size,
        **more,
    )


def gather_by_example(values, batch: dict, windows: int):
    """Gather values of windows by example: [B, ...] or [B, P, ...], as in the rows -> [N, windows, ...].

    If the weight is 0, there is no window, and the result has zeros. Examples come in the order of the batch.
    """
    label_weights = batch["label_weights"]
    values = values.reshape(-1, *values.shape[label_weights.ndim :])
    count = -(-len(values) // windows) * windows
    # Indices beyond the end are dropped. They differ from each other, too, as `unique_indices` requires.
    beyond = count + jnp.arange(len(values))
    index = jnp.where(label_weights.reshape(-1) > 0, batch[INDEX].reshape(-1), beyond)
    by_index = jnp.zeros((count, *values.shape[1:]), values.dtype)
    by_index = by_index.at[index].set(values, mode="drop", unique_indices=True)
    return by_index.reshape(-1, windows, *values.shape[1:])
