"""The families as their files are published: a small config.json of each, and directories in their layout."""

import json

import numpy as np
from flax.traverse_util import unflatten_dict
from safetensors.numpy import load_file, save_file

from bert_jax.hub import model_directory as hub
from bert_jax.hub.families import FAMILIES
from bert_jax.hub.layout import Layout
from bert_jax.models.heads import HEADS

# Wide enough for the entries of the made-up language.
FAMILY_CONFIGS = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64},
    "electra": {
        "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64,
    },
    "albert": {
        "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "classifier_dropout_prob": 0,
    },
    "modernbert": {
        "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 64, "local_attention": 4,
    },
    "nomic_bert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 64,
    },
    "mpnet": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 66,
    },
    "sinusoidal_bert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 64, "position_embedding_type": "sinusoidal",
    },
    "jina_bert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 64, "position_embedding_type": "alibi", "feed_forward_type": "geglu",
    },
    "mosaic_bert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 64, "alibi_starting_size": 16,
    },
    "eurobert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 24, "max_position_embeddings": 64,
    },
    "deberta-v2": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 64, "position_biased_input": False, "relative_attention": True,
        "pos_att_type": "p2c|c2p", "position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 3,
    },
    "deberta": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 64, "position_biased_input": False, "relative_attention": True,
        "pos_att_type": "c2p|p2c",
    },
}  # fmt: skip

# DeBERTa's kinds of relative attention, in small.
_V3 = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 40, "position_biased_input": False, "relative_attention": True, "position_buckets": 8,
    "max_relative_positions": -1, "share_att_key": True, "norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p",
    "type_vocab_size": 0,
}  # fmt: skip
# Projections of their own, every distance by itself and farther than any, segments, positions in the embeddings.
_UNSHARED = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 1, "intermediate_size": 20, "vocab_size": 47,
    "max_position_embeddings": 30, "position_biased_input": True, "relative_attention": True,
    "max_relative_positions": 12, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 3, "conv_kernel_size": 5,
}  # fmt: skip
_V1 = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 40, "position_biased_input": False, "relative_attention": True,
    "max_relative_positions": -1, "pos_att_type": "c2p|p2c", "type_vocab_size": 0,
}  # fmt: skip
DEBERTA_V2_CONFIGS = {
    "convolution": _V3 | {"conv_kernel_size": 3, "conv_act": "gelu", "legacy": False},
    "v3": _V3,
    "projections of its own": _UNSHARED,
    "content to position alone": _UNSHARED | {"pos_att_type": "c2p", "hidden_act": "relu"},
    "position to content alone": _V3 | {"pos_att_type": "p2c"},
}
DEBERTA_CONFIGS = {
    "rows longer than the farthest distance": _V1 | {
        "max_relative_positions": 9, "position_biased_input": True, "type_vocab_size": 2, "hidden_act": "relu",
    },
    "plain": _V1,
    "position to content alone": _V1 | {"pos_att_type": "p2c"},
}  # fmt: skip


def family_layout(name: str, published: dict, heads=(), labels=(), pooler: bool = False) -> Layout:
    family = FAMILIES[name]
    config = family.read_config(published, "config.json")
    pooler |= any(HEADS[head].pooler for head in heads)
    return Layout(config, family, heads, labels, pooler, published)


def write_released(path, name: str, config: dict, heads=(), of_weights: dict | None = None, **more) -> dict:
    """The parameters written; config.json has the keys of `config` alone, and the weights may fit another one."""
    layout = family_layout(name, of_weights or config, heads, **more)
    random = np.random.RandomState(0)
    shapes = layout.shapes()
    flat = {part: np.float32(0.1 * random.standard_normal(shape)) for part, shape in shapes.items()}
    params = unflatten_dict(flat, sep="/")
    hub.save_model(path, layout, params)
    (path / "config.json").write_text(json.dumps({"model_type": FAMILIES[name].config_type} | config))
    return params


def add_tensors(path, more: dict) -> None:
    tensors = load_file(path / "model.safetensors")
    save_file(tensors | more, path / "model.safetensors")
