"""A served classifier: of one class, several labels, or a number."""

from typing import ClassVar

from bert_jax.serve.predictor import ServedPredictor


class ServedModel(ServedPredictor):
    kind: ClassVar = "classifier"
