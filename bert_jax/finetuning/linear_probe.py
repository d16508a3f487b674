"""Fit a new head as a probe: the best linear function of the frozen encoder's output for the training examples."""

from collections.abc import Sequence

import numpy as np

from bert_jax.core.progress import Progress
from bert_jax.data.examples.row_packing import EncodedWindow
from bert_jax.hub.layout import Layout
from bert_jax.inference.computations import HeadLogits
from bert_jax.inference.engines.jax import JaxEngine
from bert_jax.inference.runner import Runner
from bert_jax.models.heads import HEADS
from bert_jax.predictions.linear_model import LinearModel, Link, Units, fit_linear_model
from bert_jax.text.tokenizer import Tokenizer


class HeadInputs:
    """Computes what a model's head reads of each window, `states`: [D], or [L, D] if it reads each token; and the
    `vectors` by which texts are compared."""

    def __init__(
        self, layout: Layout, params: dict, tokenizer: Tokenizer, encoded_windows: Sequence[EncodedWindow]
    ):
        self.layout, self.encoded_windows = layout, encoded_windows
        self.head = layout.heads[-1]
        width = HEADS[self.head].width(layout.config)
        # With an identity matrix, the logits of a head are what it reads.
        identity = {"dense": {"kernel": np.eye(width, dtype=np.float32), "bias": np.zeros(width, np.float32)}}
        runner = Runner(layout, JaxEngine(layout.config, params | {self.head: identity}), tokenizer)
        wanted = HeadLogits(self.head, width, with_vectors=True)
        with Progress("texts", len(encoded_windows), "linear probe") as progress:
            outputs = runner.run([window.encoding for window in encoded_windows], wanted, progress=progress)
        self.states, self.vectors = map(list, zip(*outputs, strict=True))

    def fit_probe(
        self, link: Link, class_weights: Sequence[float] = (), kept: Sequence[int] = (), strongest: int = 0
    ) -> LinearModel:
        """Fit a probe to all windows, or to those with indices `kept`; for `strongest` see `fit`."""
        return fit_linear_model(
            self.training_units(link, class_weights, kept or range(len(self.encoded_windows))),
            link,
            strongest,
        )

    def fit_head(
        self, link: Link, class_weights: Sequence[float] = (), kept: Sequence[int] = (), strongest: int = 0
    ) -> dict:
        """Return the parameters of the head that is fitted as a probe, by the name of the head."""
        probe = self.fit_probe(link, class_weights, kept, strongest)
        dense = {"kernel": probe.kernel.astype(np.float32), "bias": probe.bias.astype(np.float32)}
        return {self.head: {"dense": dense}}

    def training_units(self, link: Link, class_weights: Sequence[float], kept: Sequence[int]) -> Units:
        parts = []
        for i in kept:
            window, states = self.encoded_windows[i], self.states[i]
            labels, label_weights = (np.asarray(window.targets[name]) for name in ("labels", "label_weights"))
            if HEADS[self.head].each_token:
                trained = np.flatnonzero(label_weights)
                states, labels, label_weights = states[trained], labels[trained], label_weights[trained]
            else:
                states, labels, label_weights = states[None], labels[None], label_weights[None]
            parts.append((states, labels, label_weights, np.full(len(states), window.example)))
        x, y, label_weights, group = map(np.concatenate, zip(*parts, strict=True))
        if link == "softmax":
            numbers = y.astype(int)
            y = np.eye(len(self.layout.labels))[numbers]
            if class_weights:
                label_weights = label_weights * np.asarray(class_weights)[numbers]
        return Units(x.astype(np.float64), y.reshape(len(y), -1).astype(np.float64), label_weights, group)


def fit_head_as_probe(
    params: dict,
    layout: Layout,
    tokenizer: Tokenizer,
    encoded_windows: Sequence[EncodedWindow],
    link: Link,
    class_weights: Sequence[float] = (),
) -> dict:
    """Return the parameters with the head fitted to the windows."""
    return params | HeadInputs(layout, params, tokenizer, encoded_windows).fit_head(link, class_weights)
