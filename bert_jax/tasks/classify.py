"""Labels for whole texts, or for pairs of them."""

from dataclasses import dataclass

import numpy as np

from bert_jax.errors import BertJaxError
from bert_jax.streaming import Cutter, results
from bert_jax.tasks.heads import head_program, need


@dataclass(frozen=True)
class Label:
    label: str
    score: float  # its probability


def classify(model, texts, *, scores: bool = False, long: str = "cut"):
    """The best `Label` of a text or pair, or with `scores` the probability of every label.

    A model of several labels at once gives the list of those above one half; a model of one number gives it. Longer
    texts are cut, which is said, or with long="windows" read in windows whose logits are averaged.
    """
    need(model, "classify", "classify")
    labels = model.labels
    cut = Cutter(model.tokenizer, model.config.max_positions, long)
    program = head_program(model.config, "classify", len(labels))
    kind = kind_of(model)

    def of_chunk(chunk):
        windows = cut(chunk)
        logits = iter(model.run([window for found in windows for window in found], program))
        for found in windows:
            mean = np.mean([next(logits) for _ in found], axis=0)
            yield read(mean)

    def read(logits):
        if kind == "number":
            return float(logits[0])
        several = kind == "labels"
        likely = 1 / (1 + np.exp(-logits)) if several else softmax(logits)
        if scores:
            return dict(zip(labels, map(float, likely), strict=True))
        order = np.argsort(-likely)
        ranked = [Label(labels[i], float(likely[i])) for i in order]
        return [label for label in ranked if label.score > 0.5] if several else ranked[0]

    return results(texts, of_chunk)


def kind_of(model) -> str:
    """What a classifier gives: one of its "classes", several "labels" at once, or a "number"."""
    problem, outputs = model.layout.published.get("problem_type") or "", len(model.labels)
    if problem.startswith("multi_label"):
        return "labels"
    if problem == "regression" and outputs > 1:
        raise BertJaxError(
            f"this model gives {outputs} numbers at once; only models of one number are read here"
        )
    return "number" if outputs == 1 else "classes"


def softmax(logits: np.ndarray, axis: int = -1) -> np.ndarray:
    exp = np.exp(logits - logits.max(axis, keepdims=True))
    return exp / exp.sum(axis, keepdims=True)
