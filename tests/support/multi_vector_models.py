"""Small models of token vectors, as bert_jax and as Stanford's ColBERT save them."""

import json
import string

from safetensors.numpy import load_file, save_file

from bert_jax.hub.multi_vector_encoder import MultiVectorSettings
from bert_jax.hub.sentence_transformers import Projection
from tests.support.small_models import SMALL_CONFIG, SMALL_TEXTS, SMALL_VOCABULARY, write_model

TOKEN_TEXTS = [*SMALL_TEXTS, "", "the cat " * 20, "... .", "cat [unused0] \N{SNOWMAN}"]
# PyLate drops unknown tokens, too, where a word that it skips is none of the vocabulary.
WORDS = [
    *SMALL_VOCABULARY,
    "[unused0]",
    "[unused1]",
    *sorted(set(string.punctuation) - set(SMALL_VOCABULARY)),
]
CONFIG = SMALL_CONFIG.replace(vocab_size=len(WORDS))
PROJECTION = Projection(6, bias=False)
NO_PROMPTS = {"query": "", "document": ""}
PLAIN = MultiVectorSettings(max_length=12, projection=PROJECTION, prompts=NO_PROMPTS)


def write_multi_vector_model(path, settings=PLAIN):
    return write_model(path, heads=(), pooler=False, multi_vector=settings, words=WORDS, config=CONFIG)


def write_stanford(path, metadata):
    write_multi_vector_model(path, PLAIN)
    tensors = {f"bert.{name}": array for name, array in load_file(path / "model.safetensors").items()}
    tensors |= load_file(path / "1_Dense/model.safetensors")
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((path / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (path / "config.json").write_text(json.dumps(config))
    for name in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json"):
        (path / name).unlink()
    if metadata is not None:
        (path / "artifact.metadata").write_text(json.dumps(metadata))
