"""The scores of a model on a table, without the verb `evaluate`."""

from bert_jax.inference.encoder import Encoder
from bert_jax.report.evaluate_predictions import (
    PredictionEvalConfig,
    PredictionScores,
    run_evaluation,
    score_outcomes,
)


def evaluate_model(model: Encoder, data: str, **settings) -> PredictionScores:
    return score_outcomes(*run_evaluation(model, PredictionEvalConfig(data, **settings)))
