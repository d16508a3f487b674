"""The files beside an exported model: its tokenizer, its configs and what it knows of itself."""

from pathlib import Path

from bert_jax.hub.model_directory import save_model
from bert_jax.inference.encoder import Encoder
from bert_jax.predictions import calibration, out_of_scope, training_origin


def save_beside(directory: Path, model: Encoder) -> None:
    """Write what a model directory holds beside the weights of its encoder."""
    save_model(directory, model.layout, model.params, model.tokenizer, encoder_weights=False)
    calibration.save_calibration(directory, model.calibration)
    training_origin.save_origin(directory, model.origin)
    out_of_scope.save_detector(directory, model.scope)
