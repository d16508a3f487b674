"""A served tagger."""

from typing import ClassVar

from bert_jax.serve.predictor import ServedPredictor


class ServedModel(ServedPredictor):
    kind: ClassVar = "tagger"
    reads_whole = True
