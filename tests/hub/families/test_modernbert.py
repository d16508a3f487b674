"""ModernBERT's files, old and new."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub import directory as hub
from bert_jax.hub.families import FAMILIES, sized
from bert_jax.models.config import NearConfig, RotaryConfig
from bert_jax.report import model_info
from bert_jax.training import warm_start
from bert_jax.training.task import Task
from tests.support.cases import long_except
from tests.support.packing import assert_packed_equals_separate
from tests.support.released_models import add_tensors, family_layout, write_released

FIELDS = {
    "hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 5, "intermediate_size": 20, "vocab_size": 61,
}  # fmt: skip
# As the files of 2024 say it.
OLD_KEYS = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "classifier_activation": "gelu",
    "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 1,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 2,
    "global_attn_every_n_layers": 2, "global_rope_theta": 1600.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "layer_norm_eps": 1e-05,
    "local_attention": 8, "local_rope_theta": 100.0, "max_position_embeddings": 8192, "mlp_bias": False,
    "mlp_dropout": 0.0, "norm_bias": False, "norm_eps": 1e-05, "pad_token_id": 3, "position_embedding_type": "absolute",
    "reference_compile": True, "repad_logits_with_grad": False, "sep_token_id": 2, "sparse_pred_ignore_index": -100,
    "sparse_prediction": False, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pooling", long_except(["cls", "mean"], ["cls"]))
def test_packed_rows_equal_separate_ones(pooling):
    fields = FIELDS | {"local_attention": 4, "classifier_pooling": pooling}
    assert_packed_equals_separate(family_layout("modernbert", fields, ("mlm", "classify"), ("a", "b", "c")))


@pytest.mark.slow
def test_a_released_directory_opens(tmp_path):
    config = OLD_KEYS | FIELDS | {"architectures": ["ModernBertForMaskedLM"]}
    params = write_released(tmp_path, "modernbert", config, ("mlm",))
    names = set(load_file(tmp_path / "model.safetensors"))
    assert "model.layers.1.attn_norm.weight" in names and "model.layers.0.attn_norm.weight" not in names
    add_tensors(tmp_path, {"decoder.weight": params["encoder"]["embeddings"]["words"]})
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == ("mlm",) and not model.layout.pooler
    assert model.config.near == NearConfig(4, 2) and model.config.rotary == RotaryConfig(1600.0, 100.0)
    assert model.config.pooler.mean and model.config.max_positions == 8192
    facts = model_info.collect(tmp_path)
    assert facts["unread"] == ["decoder.weight"]
    model.save(tmp_path / "again")
    saved = json.loads((tmp_path / "again/config.json").read_text())
    assert saved["layer_types"] == ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    assert saved["rope_parameters"]["sliding_attention"]["rope_theta"] == saved["local_rope_theta"] == 100.0
    assert saved["global_attn_every_n_layers"] == 2 and saved["local_attention"] == 8
    again = bert_jax.load(tmp_path / "again", tokenizer=False)
    assert again.config == model.config
    np.testing.assert_array_equal(
        again.params["encoder"]["layers"]["attention_norm"]["scale"][1:],
        params["encoder"]["layers"]["attention_norm"]["scale"][1:],
    )


@pytest.mark.slow
@pytest.mark.parametrize("head", ["classify", "tag", "answer"])
def test_a_new_head_keeps_the_transform_of_the_masked_lm(tmp_path, head):
    params = write_released(tmp_path, "modernbert", FIELDS, ("mlm",))
    labels = ["a", "b"] * (head != "answer")
    model = bert_jax.load(tmp_path, head=head, labels=labels[:2], tokenizer=False)
    part = model.params["pooler" if head == "classify" else "transform"]
    np.testing.assert_array_equal(part["dense"]["kernel"], params["mlm"]["transform"]["kernel"])
    np.testing.assert_array_equal(part["norm"]["scale"], params["mlm"]["norm"]["scale"])


def test_absent_keys_have_the_published_values():
    config = FAMILIES["modernbert"].read_config({}, "config.json")
    assert config == sized("modernbert-base")[1].replace(vocab_size=50368)
    assert config.near == NearConfig(64, 3) and config.rotary == RotaryConfig(160_000.0, 10_000.0)
    of_null = FAMILIES["modernbert"].read_config(
        {"local_rope_theta": None, "global_rope_theta": 5e4}, "config.json"
    )
    assert of_null.rotary == RotaryConfig(5e4, 5e4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 5}, "heads = 5 does not divide hidden_size = 24; 4 does"),
        ({"num_attention_heads": 8}, "the head size must be even, not 3"),
        ({"num_hidden_layers": 900_000_000}, "the config says 900000000 layers, the weights hold 5"),
        ({"local_attention": -128}, "local_attention = -128 is not a size"),
        ({"local_attention": 1}, "local_attention = 1 leaves each token alone"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0 is not a size"),
        ({"layer_types": ["full_attention"]}, "for each of the 5 layers"),
        ({"layer_types": ["full_attention", "chunked"] * 2 + ["full_attention"]}, "layer_types must name"),
        ({"layer_types": ["sliding_attention"] * 4 + ["full_attention"]}, "only the first and every n-th"),
        ({"layer_types": [None] * 5}, "layer_types must name"),
        ({"global_rope_theta": -1.0}, "rope_theta = -1.0 is not a number of at least 1"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type = 'yarn' is not supported"),
        ({"rope_parameters": {"sliding_attention": 3}}, "rope_parameters.sliding_attention = 3 is not a table"),
        ({"norm_bias": True}, "norm_bias = True is not supported, only False"),
        ({"decoder_bias": False}, "decoder_bias = False is not supported, only True"),
        ({"classifier_pooling": "max"}, "classifier_pooling = 'max' is neither"),
        ({"classifier_activation": "gelo"}, 'classifier_activation = "gelo" is not supported'),
        ({"classifier_activation": ["gelu"]}, "is not supported"),
        ({"hidden_activation": "gelo"}, 'did you mean "gelu"?'),
    ],
)  # fmt: skip
def test_hostile_configs(tmp_path, changes, message):
    write_released(tmp_path, "modernbert", FIELDS | changes, ("mlm",), FIELDS)
    with pytest.raises(BertJaxError) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classify", "tag"])
def test_a_fine_tuning_begins_with_the_transform_of_the_masked_lm(tmp_path, kind):
    params = write_released(tmp_path, "modernbert", FIELDS, ("mlm",))
    layout = hub.survey(tmp_path)[0].with_head(kind, ["a", "b"])
    begun, missing = warm_start.read(str(tmp_path), Task(layout), 0)
    assert missing == [kind]
    part = begun["pooler" if kind == "classify" else "transform"]
    np.testing.assert_array_equal(part["dense"]["kernel"], params["mlm"]["transform"]["kernel"])
