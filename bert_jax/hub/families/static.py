"""Static embeddings: a vector for each token, and for a text their mean; an encoder without layers.

model2vec and sentence-transformers' StaticEmbedding publish them. We write what both read: model2vec's files, with
modules.json. A directory with config.json is read as model2vec reads it; one without, as sentence-transformers does.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.family import Family
from bert_jax.hub.parameter_mapping import ParameterMapping
from bert_jax.hub.sentence_transformers import EmbedderSettings, static_folder
from bert_jax.hub.tensors import Tensors
from bert_jax.models.encoder_config import EncoderConfig
from bert_jax.text.static_tokenizer import StaticTokenizer
from bert_jax.text.tokenizer_settings import TokenizerSettings

CONFIG, MODEL_TYPE = "config.json", "model2vec"
ROWS, ROWS_OF_SENTENCE_TRANSFORMERS = "embeddings", "embedding.weight"  # tensors
MAPPING, WEIGHTS = "mapping", "weights"  # of each token: the number of its row, and the factor of that row
OF_TENSORS = ("embedding_dtype", "vocabulary_quantization")  # keys that say how they are published
TRUNCATION = re.compile(rb'"truncation":\s*{[^}]*"max_length":\s*(\d+)')
LONGEST = 10**6  # tokens of a text, where texts are not truncated


def describe_files(directory: Path, published: dict | None) -> dict:
    """Return the keys of static embeddings whose config.json has no model_type, or does not exist; {} for others."""
    is_module = static_folder(directory) is not None
    if not is_module and "normalize" not in (published or {}):
        return {}
    described: dict[str, Any] = {"model_type": MODEL_TYPE}
    file = find_folder(directory) / "tokenizer.json"
    if published is None and file.is_file():  # sentence-transformers truncates as this file says
        truncation = TRUNCATION.search(file.read_bytes())
        described["max_length"] = int(truncation[1]) if truncation else LONGEST
    return described


def find_folder(directory: Path) -> Path:
    """Return the folder with the vectors and the tokenizer."""
    return directory if (directory / CONFIG).is_file() else directory / (static_folder(directory) or "")


def open_tokenizer(directory: Path) -> StaticTokenizer:
    folder, follows_model2vec = find_folder(directory), (directory / CONFIG).is_file()
    return StaticTokenizer.from_directory(
        folder, TokenizerSettings.from_directory(folder), not follows_model2vec
    )


def modernize_config(published: dict, where) -> dict:
    unlimited = "max_length" in published and published["max_length"] is None
    kept = {key: value for key, value in published.items() if key not in OF_TENSORS}
    return kept | {"max_length": LONGEST} if unlimited else kept


def modernize_tensors(tensors: Tensors) -> Tensors:
    """Return the tensors with one row for each token."""
    tensors = tensors.renamed(lambda name: (ROWS if name == ROWS_OF_SENTENCE_TRANSFORMERS else name,))
    folded = [name for name in (WEIGHTS, MAPPING, ROWS) if name in tensors]
    if ROWS not in folded:
        return tensors
    shape = (*tensors.shapes[folded[0]][:1], *tensors.shapes[ROWS][1:])
    others = tensors.renamed(lambda name: () if name in folded else (name,))
    return others.merge(Tensors({ROWS: shape}, {ROWS: partial(fold, tensors)}))


def fold(tensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the row of each token, as float32. Rows of int8 have no scale: only their direction counts."""
    rows = np.asarray(tensors[ROWS], np.float32)
    try:
        rows = rows[tensors[MAPPING]] if MAPPING in tensors else rows
        return rows * np.asarray(tensors[WEIGHTS], np.float32)[:, None] if WEIGHTS in tensors else rows
    except (IndexError, ValueError) as error:
        raise BertJaxError(
            f"the {MAPPING} and {WEIGHTS} of these static embeddings do not fit their {len(rows):,} rows ({error}); "
            "copy model.safetensors again from its source"
        ) from error


def map_rows(directory: Path) -> np.ndarray | None:
    """Map the rows into memory if they are published as they are computed: only those of texts are then loaded."""
    path = find_folder(directory) / "model.safetensors"
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(size))
    facts = tensors.get(ROWS) or tensors[ROWS_OF_SENTENCE_TRANSFORMERS]
    if facts["dtype"] != "F32" or not tensors.keys().isdisjoint((MAPPING, WEIGHTS)):
        return None
    return np.memmap(path, np.float32, "r", 8 + size + facts["data_offsets"][0], tuple(facts["shape"]))


def complete_from_tensors(config: EncoderConfig, tensors: Tensors) -> EncoderConfig:
    shapes = [shape for name, shape in tensors.shapes.items() if name.split(".")[-1] == ROWS]
    if not shapes or len(shapes[0]) != 2 or 0 in shapes[0]:
        raise BertJaxError(
            "model.safetensors of these static embeddings has no table of rows, called "
            f"{ROWS} or {ROWS_OF_SENTENCE_TRANSFORMERS}; copy it again from its source"
        )
    return config.replace(vocab_size=shapes[0][0], hidden_size=shapes[0][1])


def complete_embedder(embedder: EmbedderSettings | None, published: dict) -> EmbedderSettings:
    embedder = embedder or EmbedderSettings(normalize=False)
    normalize = published.get("normalize", embedder.normalize)
    length = published.get("max_length", FIELDS["max_position_embeddings"])
    return replace(embedder, is_static=True, normalize=bool(normalize), max_length=length)


FIELDS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 256,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.0,
}
FAMILY = Family(
    model_type="static",
    published_type=MODEL_TYPE,
    class_name="Static",
    prefix="static",
    fields=FIELDS,
    keys={"hidden_size": "hidden_dim", "max_position_embeddings": "max_length"},
    constants={
        "num_hidden_layers": 0,
        "num_attention_heads": 1,
        "type_vocab_size": 0,
        "positions": "none",
        "embedding_norm": False,
    },
    supported={},
    encoder=lambda config: [ParameterMapping("encoder/embeddings/words", (ROWS,), per_entry=True)],
    pooler=[],
    heads={},
    modernize_config=modernize_config,
    modernize_tensors=modernize_tensors,
    complete_from_tensors=complete_from_tensors,
    complete_embedder=complete_embedder,
    embedder_keys=lambda embedder: {"normalize": embedder.normalize},
    find_folder=find_folder,
    open_tokenizer=open_tokenizer,
    encoder_in_transformers=False,
)
