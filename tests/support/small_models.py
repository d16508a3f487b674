"""Model directories of every family and head over a vocabulary of twelve words."""

import json

import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.core.errors import BertJaxError
from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.inference.load import load
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.wordpiece import WordPiece

SMALL_TEXTS = [
    "the cat sat",
    "on the mat .",
    "cats",
    "the the the cat",
    "mat mat sat on",
    ". on .",
    "sat",
    "cat mat",
]
SMALL_VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "cat",
    "sat",
    "##s",
    "on",
    "mat",
    ".",
]
SMALL_CONFIG = EncoderConfig(
    vocab_size=len(SMALL_VOCABULARY),
    hidden_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=16,
    tie_word_embeddings=True,
)


def write_model(
    path,
    config=SMALL_CONFIG,
    heads=("mlm", "nsp"),
    labels=(),
    family="bert",
    words=SMALL_VOCABULARY,
    **changes,
):
    layout = Layout(config, FAMILIES[family], heads, labels, **changes)
    random = np.random.RandomState(0)
    params = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in layout.shapes().items()
    }
    for name in {"encoder/embeddings/words", "mlm/bias", "mlm/decoder"} & set(params):
        params[name][config.vocab_size :] = 0  # rows of padding come back as zeros
    params = unflatten_dict(params, sep="/")
    hub.save_model(path, layout, params, WordPiece.from_vocabulary(words) if words else None)
    return layout, params


def edit_config(path, **changes):
    file = path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def trees_equal(a, b) -> bool:
    flat = lambda tree: flatten_dict(tree, sep="/")  # noqa: E731
    a, b = flat(a), flat(b)
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def load_error(path, **arguments) -> str:
    with pytest.raises(BertJaxError) as error:
        load(path, **arguments)
    assert "\n" not in str(error.value)
    return str(error.value)
