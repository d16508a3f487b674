"""An encoder of one layer with initial values, which fine-tunings begin with."""

from pathlib import Path

import jax

from bert_jax.hub import model_directory as hub
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.task import Task
from tests.support.made_up_language import ENTRIES

ENCODER_CONFIG = EncoderConfig(
    vocab_size=len(ENTRIES),
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
)
TOKENIZER = WordPiece.from_vocabulary(ENTRIES)


def save_encoder(directory: Path, config: EncoderConfig = ENCODER_CONFIG) -> Path:
    """A model directory with initial values."""
    layout = hub.Layout(config, heads=("mlm", "nsp"))
    params = jax.jit(lambda: init_random_params(Task(layout), RunConfig()))()
    hub.save_model(directory, layout, jax.device_get(params), TOKENIZER)
    return directory
