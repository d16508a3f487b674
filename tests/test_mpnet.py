"""MPNet, beside the one of `transformers`."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.errors import BertJaxError
from bert_jax.hub.families import sized
from beside_torch import assert_equals_transformers, assert_packs_equal_rows

transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.usefixtures("quick_to_compile")

THREE_HEADS = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40, "vocab_size": 61,
    "max_position_embeddings": 300,
}  # fmt: skip
ONE_HEAD = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 1, "intermediate_size": 20, "vocab_size": 47,
    "max_position_embeddings": 30, "layer_norm_eps": 1e-5, "hidden_act": "relu",
}  # fmt: skip
HEADS = [
    ("MPNetModel", THREE_HEADS, 17),
    ("MPNetForMaskedLM", THREE_HEADS, 150),  # farther than any bucket
    ("MPNetForMaskedLM", ONE_HEAD, 19),
    ("MPNetForSequenceClassification", ONE_HEAD | {"num_labels": 5}, 19),
    ("MPNetForTokenClassification", THREE_HEADS | {"num_labels": 4}, 19),
    ("MPNetForQuestionAnswering", THREE_HEADS, 19),
]


@pytest.mark.slow
@pytest.mark.parametrize(("class_name", "config", "length"), HEADS)
def test_head_equals_transformers_both_ways(class_name, config, length, tmp_path):
    assert_equals_transformers(class_name, config | {"pad_token_id": 1}, tmp_path, length)


def saved(path, class_name="MPNetForMaskedLM", **changes):
    config = transformers.MPNetConfig(**THREE_HEADS | changes)
    getattr(transformers, class_name)(config).save_pretrained(path)


def edit_config(path, **changes):
    config = json.loads((path / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config))


@pytest.mark.slow
def test_packed_texts_equal_separate_ones(tmp_path):
    saved(tmp_path)
    assert_packs_equal_rows(bert_jax.load(tmp_path, tokenizer=False))


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
        ({"max_position_embeddings": 2}, "max_positions must be a whole number of at least 1, not 0"),
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
