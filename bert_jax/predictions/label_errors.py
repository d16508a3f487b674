"""Labels that are probably wrong: a model that did not train on them predicts another and finds them improbable.

The probability of the label itself orders them. Compared with its class's average, or with the probability of the
predicted label, it found fewer of the labels that were flipped on purpose where there are many classes or tags.
"""

from dataclasses import dataclass

from bert_jax.data.examples.example import Example


@dataclass(frozen=True)
class LabelError:
    example: Example
    label: str  # of the text, or the most doubtful of its labels or words
    predicted: str
    doubt: float  # the higher, the more probably the label is wrong
    probability: float | None = None  # of the label; a number has none
