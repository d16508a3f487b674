"""Predictions for training examples by models that were not trained on them."""

from dataclasses import dataclass

from bert_jax.predictions.kind import Outcomes
from bert_jax.predictions.learning_curve import LearningCurve


@dataclass(frozen=True)
class OutOfFoldPredictions:
    """Predictions for the training examples, each by a model that was not trained on it."""

    method: str  # how these models and the final model were trained
    outcomes: Outcomes
    curve: LearningCurve | None = None
