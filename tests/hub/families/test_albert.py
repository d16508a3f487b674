"""ALBERT's files."""

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import FAMILIES
from bert_jax.report import model_info
from tests.support.packing import assert_packed_equals_separate
from tests.support.released_models import add_tensors, family_layout, write_released

FIELDS = {
    "embedding_size": 8, "hidden_size": 24, "num_hidden_layers": 4, "num_hidden_groups": 2, "num_attention_heads": 3,
    "intermediate_size": 40, "vocab_size": 61,
}  # fmt: skip
# The keys that Google's directories have beside the sizes.
KEYS = {
    "attention_probs_dropout_prob": 0, "bos_token_id": 2, "classifier_dropout_prob": 0.1, "down_scale_factor": 1,
    "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0, "initializer_range": 0.02,
    "inner_group_num": 1, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "net_structure_type": 0,
    "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2,
}  # fmt: skip


@pytest.mark.slow
def test_a_released_directory_opens(tmp_path):
    config = KEYS | FIELDS | {"architectures": ["AlbertForMaskedLM"]}
    params = write_released(tmp_path, "albert", config, ("mlm",), pooler=True)
    copies = {
        "predictions.decoder.weight": params["encoder"]["embeddings"]["words"],
        "predictions.decoder.bias": params["mlm"]["bias"],
    }
    add_tensors(tmp_path, copies | {"albert.embeddings.position_ids": np.arange(512)[None]})
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == ("mlm",) and model.layout.pooler
    assert (model.config.groups, model.config.activation, model.config.dropout) == (2, "gelu_tanh", 0)
    assert model_info.collect(tmp_path)["unread"] == ["albert.embeddings.position_ids", *sorted(copies)]


@pytest.mark.slow
def test_a_directory_of_pre_training_has_both_heads(tmp_path):
    write_released(tmp_path, "albert", FIELDS | {"architectures": ["AlbertForPreTraining"]}, ("mlm", "sop"))
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == ("mlm", "sop") and model.layout.architecture == "ForPreTraining"


def test_absent_keys_mean_albert_xxlarge():
    config = FAMILIES["albert"].read_config({}, "config.json")
    sizes = (config.embedding_size, config.hidden_size, config.heads, config.feed_forward, config.groups)
    assert sizes == (128, 4096, 64, 16384, 1) and config.vocab_size == 30000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_groups": 3}, "layer_groups = 3 does not divide layers = 4; 2 does"),
        ({"num_hidden_groups": 0}, "num_hidden_groups = 0 is not a size"),
        ({"num_hidden_groups": 5}, "layer_groups = 5 does not divide layers = 4; 4 does"),
        ({"num_hidden_groups": 4}, "the config says 4 layers, the weights hold 2"),
        ({"inner_group_num": 2}, "inner_group_num = 2 is not supported, only 1"),
        ({"embedding_size": None}, "[61, 8] where the config asks for [61, 128]"),
        ({"embedding_size": -8}, "embedding_size = -8 is not a size"),
        ({"num_attention_heads": 5}, "heads = 5 does not divide hidden_size = 24; 4 does"),
    ],
)  # fmt: skip
def test_absurd_configs(tmp_path, changes, message):
    write_released(tmp_path, "albert", FIELDS | changes, ("mlm",), FIELDS)
    with pytest.raises(BertJaxError) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
def test_packed_rows_equal_separate_ones():
    layout = family_layout("albert", FIELDS, ("mlm", "sop", "classify"), ("a", "b", "c"))
    assert_packed_equals_separate(layout)
