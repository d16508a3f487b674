"""Labels for whole texts, or for pairs of them."""

from dataclasses import dataclass

import numpy as np

from bert_jax.data.examples.example import Kind
from bert_jax.errors import BertJaxError
from bert_jax.inference.heads import head_program, need
from bert_jax.inference.streaming import Cutter, results
from bert_jax.predictions.calibration import all_right


@dataclass(frozen=True)
class Label:
    label: str
    score: float  # its probability
    margin: float = 0.0  # over the next likeliest; of several labels at once, over what it must exceed


def classify(model, texts, *, scores: bool = False, long: str = "cut", precision: float | None = None):
    """The best `Label` of a text or pair, or with `scores` the probability of every label.

    A model of several labels at once gives the list of those above their thresholds (one half, if it was not
    calibrated); a model of one number gives it. Longer texts are cut, which is said, or with long="windows" read in
    windows whose logits are averaged. With a wanted `precision`, None where a calibrated model is not that sure.

    >>> [found.label for found in model.classify(["the cat", ("the cat", "the mat")])]
    ['good', 'good']
    """
    kind = kind_of(model)
    enough = None if precision is None else sure(model, precision)

    def read(logits):
        if kind == "number":
            return float(logits[0])
        likely = model.calibration.likely(logits, several=kind == "labels")
        if scores:
            return dict(zip(model.labels, map(float, likely), strict=True))
        found, confidence = chosen(model, likely)
        return found if enough is None or confidence >= enough else None

    found = logits_of(model, texts, long)
    if isinstance(texts, str | tuple):
        return read(found)
    return list(map(read, found)) if isinstance(found, list) else map(read, found)


def logits_of(model, texts, long: str = "cut"):
    """[labels] of each text, before any calibration."""
    need(model, "classify", "classify")
    cut = Cutter(model.tokenizer, model.config.max_positions, long)
    program = head_program(model.config, "classify", len(model.labels))

    def of_chunk(chunk):
        windows = cut(chunk)
        logits = iter(model.run([window for found in windows for window in found], program))
        for found in windows:
            yield np.mean([next(logits) for _ in found], axis=0)

    return results(texts, of_chunk)


def chosen(model, likely: np.ndarray) -> tuple:
    """What is said of a text whose labels are so likely, and how likely it is to be right."""
    order = np.argsort(-likely)
    if kind_of(model) == "classes":
        first, second = likely[order[:2]]
        return Label(model.labels[order[0]], float(first), float(first - second)), float(first)
    above = model.calibration.above(len(likely))
    found = [Label(model.labels[i], float(likely[i]), float(likely[i] - above[i])) for i in order]
    return [label for label in found if label.margin > 0], float(all_right(likely, likely > above))


def sure(model, precision: float) -> float:
    """How likely an answer of a calibrated model must be, for so many of such answers to be right."""
    if "classify" in model.layout.heads and kind_of(model) == "number":
        raise BertJaxError("this model gives a number, of which no precision can be promised")
    return model.calibration.sure(precision)


def kind_of(model) -> Kind:
    """What a classifier gives: one of its "classes", several "labels" at once, or a "number"."""
    problem, outputs = model.layout.published.get("problem_type") or "", len(model.labels)
    if problem.startswith("multi_label"):
        return "labels"
    if problem == "regression" and outputs > 1:
        raise BertJaxError(
            f"this model gives {outputs} numbers at once; only models of one number are read here"
        )
    return "number" if outputs == 1 else "classes"
