"""A served model that finds the answers to questions in texts."""

from typing import ClassVar

from bert_jax.serve.predictor import ServedPredictor


class ServedModel(ServedPredictor):
    kind: ClassVar = "question-answerer"
    reads_whole = True
