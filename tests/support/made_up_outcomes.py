"""Outcomes of models that are right more often than not."""

import numpy as np

from bert_jax.data.examples.example import Example
from bert_jax.predictions.kind import KINDS, Outcomes
from bert_jax.predictions.kinds.answers import Answer


def make_outcomes(kind: str, count: int = 60, seed: int = 0, skill: float = 2.0) -> Outcomes:
    """Outcomes of a model that is right more often than not."""
    rng, labels = np.random.default_rng(seed), ("O", "B-X", "I-X")
    texts = [f"text {i}" for i in range(count)]
    match kind:
        case "classes":
            numbers = rng.integers(0, 3, count)
            raws = [rng.normal(0, 1, 3) + skill * np.eye(3)[n] for n in numbers]
            truth = [labels[n] for n in numbers]
        case "labels":
            several = (rng.random((count, 3)) < 0.4).astype(int)
            raws = [rng.normal(0, 1, 3) + skill * (2 * row - 1) for row in several]
            truth = [tuple(labels[n] for n in np.flatnonzero(row)) for row in several]
        case "tags":
            tags = [rng.integers(0, 3, rng.integers(1, 9)) for _ in range(count)]
            raws = [rng.normal(0, 1, (len(t), 3)) + skill * np.eye(3)[t] for t in tags]
            texts, truth = [("w",) * len(t) for t in tags], [tuple(labels[n] for n in t) for t in tags]
        case "answers" | "all answered":
            none = rng.random(count) < 0.4 * (kind == "answers")
            truth = [() if n else ((0, "the cat sat"), (9, "a mat")) for n in none]
            words = rng.choice(["cat", "cat sat", "the mat", "dog"], count)
            gaps = rng.normal(0, 1, count) + np.where(none, 1, -1) if kind == "answers" else [-np.inf] * count
            raws = [
                (Answer(str(w), 0, 1, float(p)), float(g))
                for w, p, g in zip(words, rng.random(count), gaps, strict=True)
            ]
            kind, texts = "answers", [("question", "passage")] * count
        case "number":
            truth = rng.normal(0, 1, count).tolist()
            raws = [np.array([t + rng.normal()]) for t in truth]
    examples = [
        Example(text, label, f"row {i}") for i, (text, label) in enumerate(zip(texts, truth, strict=True))
    ]
    return Outcomes(KINDS[kind](() if kind in ("answers", "number") else labels), examples, raws)


def many_class_outcomes(count: int, classes: int = 60, seed: int = 0) -> Outcomes:
    rng, labels = np.random.default_rng(seed), tuple(map(str, range(classes)))
    numbers = rng.integers(0, classes, count)
    raws = list(rng.normal(0, 1, (count, classes)) + 3 * np.eye(classes)[numbers])
    examples = [Example(f"text {i}", labels[n], f"row {i}") for i, n in enumerate(numbers)]
    return Outcomes(KINDS["classes"](labels), examples, raws)
