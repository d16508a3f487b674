"""MPNet, beside the one of `transformers`."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import sized
from tests.support.packing import assert_packed_equals_separate
from tests.support.parity import FINE_TUNED_HEADS, assert_equals_transformers

transformers = pytest.importorskip("transformers")


THREE_HEADS = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 300,
}  # fmt: skip
ONE_HEAD = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 1, "intermediate_size": 20, "vocab_size": 47,
    "max_position_embeddings": 30, "layer_norm_eps": 1e-5, "hidden_act": "relu",
}  # fmt: skip
CLASSES = {"Model": (), "ForMaskedLM": ("mlm",), **FINE_TUNED_HEADS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "classes", "length"),
    [
        pytest.param(THREE_HEADS, CLASSES, 19, id="three heads", marks=pytest.mark.long),
        pytest.param(ONE_HEAD, CLASSES, 19, id="one head"),
        pytest.param(THREE_HEADS, {"ForMaskedLM": ("mlm",)}, 150, id="farther than any bucket"),
    ],
)
def test_equals_transformers(config, classes, length, tmp_path):
    assert_equals_transformers("MPNet", classes, config | {"pad_token_id": 1}, tmp_path, length)


def saved(path, class_name="MPNetForMaskedLM", **changes):
    config = transformers.MPNetConfig(**THREE_HEADS | changes)
    getattr(transformers, class_name)(config).save_pretrained(path)


def edit_config(path, **changes):
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.slow
def test_packed_texts_equal_separate_ones(tmp_path):
    saved(tmp_path)
    assert_packed_equals_separate(bert_jax.load(tmp_path, tokenizer=False).layout)


def test_a_published_embedder_opens(tmp_path):
    """all-mpnet-base-v2: an encoder without prefix, its pooler, and the architecture of what it was made from."""
    saved(tmp_path, "MPNetModel")
    edit_config(tmp_path, architectures=["MPNetForMaskedLM"])
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"embeddings.position_ids": np.arange(300)[None]}, tmp_path / "model.safetensors")
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == () and model.layout.pooler and model.config.max_positions == 298


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"relative_attention_num_buckets": 64}, "relative_attention_num_buckets = 64 is not supported, only 32"),
        ({"pad_token_id": 0}, "pad_token_id = 0 is not supported, only 1"),
        ({"num_attention_heads": 5}, "heads = 5 does not divide hidden_size"),
        ({"max_position_embeddings": 2}, "max_positions must be between 1 and 1,000,000,000, not 0"),
    ],
)  # fmt: skip
def test_hostile_configs_are_refused_in_one_line(changes, message, tmp_path):
    saved(tmp_path)
    edit_config(tmp_path, **changes)
    with pytest.raises(BertJaxError, match=message) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert "\n" not in str(error.value)


def test_the_published_size():
    family, config = sized("mpnet-base")
    assert family == "mpnet" and (config.hidden_size, config.max_positions, config.norm_epsilon) == (
        768,
        512,
        1e-5,
    )
    assert config.relative.buckets == 32 and not config.segment_types
