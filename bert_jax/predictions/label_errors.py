"""Labels that are probably wrong: a model that did not train on them finds them improbable and predicts another.

They are ordered by the probability of the label itself. Comparing it with the mean of its class, or with the
probability of the predicted label, found fewer labels that had been flipped on purpose, if there are many classes or
tags.
"""

from dataclasses import dataclass

from bert_jax.data.examples.example import Example


@dataclass(frozen=True)
class LabelError:
    example: Example
    label: str  # the label of the text, or the most doubtful of its labels or of its words' tags
    predicted: str
    error_score: float  # the higher, the more likely the label is wrong
    probability: float | None = None  # the probability of the label; None for a number
