"""ELECTRA's files: the discriminator, the generator, and what is fine-tuned from them."""

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import FAMILIES
from bert_jax.report import model_info
from tests.support.packing import assert_packed_equals_separate
from tests.support.released_models import add_tensors, family_layout, write_released

FIELDS = {
    "embedding_size": 8, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "vocab_size": 61,
}  # fmt: skip
# The keys that Google's directories have beside the sizes.
KEYS = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
    "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "pad_token_id": 0, "summary_activation": "gelu",
    "summary_last_dropout": 0.1, "summary_type": "first", "summary_use_proj": True, "type_vocab_size": 2,
}  # fmt: skip


@pytest.mark.slow
def test_a_released_discriminator_opens(tmp_path):
    config = KEYS | FIELDS | {"architectures": ["ElectraForPreTraining"]}
    write_released(tmp_path, "electra", config, ("replaced",))
    add_tensors(tmp_path, {"electra.embeddings.position_ids": np.arange(512)[None]})
    model = bert_jax.load(tmp_path, tokenizer=False)
    assert model.layout.heads == ("replaced",) and model.config.embedding_size == 8
    assert model_info.collect(tmp_path)["unread"] == ["electra.embeddings.position_ids"]
    with pytest.raises(BertJaxError, match="transformers calls it ElectraForMaskedLM"):
        model.need(("mlm",), "fill_mask")
    classifier = bert_jax.load(tmp_path, head="classify", labels=["a", "b"], tokenizer=False)
    assert classifier.config.pooler.activation == "gelu" and classifier.config.pooler.dropout
    classifier.save(tmp_path / "classifier")
    assert bert_jax.load(tmp_path / "classifier", tokenizer=False).layout.heads == ("classify",)


@pytest.mark.slow
def test_a_released_generator_opens(tmp_path):
    config = KEYS | FIELDS | {"architectures": ["ElectraForMaskedLM"]}
    params = write_released(tmp_path, "electra", config, ("mlm",))
    add_tensors(tmp_path, {"generator_lm_head.weight": params["encoder"]["embeddings"]["words"]})
    assert bert_jax.load(tmp_path, tokenizer=False).layout.heads == ("mlm",)
    assert "not read    generator_lm_head.weight" in model_info.describe(tmp_path)


def test_a_file_of_both_heads_opens_with_both(tmp_path):
    write_released(tmp_path, "electra", FIELDS, ("mlm", "replaced"))
    assert bert_jax.load(tmp_path, tokenizer=False).layout.heads == ("mlm", "replaced")


def test_absent_keys_mean_electra_small():
    config = FAMILIES["electra"].read_config({}, "config.json")
    sizes = (config.embedding_size, config.hidden_size, config.layers, config.heads, config.feed_forward)
    assert sizes == (128, 256, 12, 4, 1024)
    assert FAMILIES["electra"].read_config({"hidden_size": 128}, "config.json").embedding_size == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embedding_size": 0}, "embedding_size = 0 is not a size that a model can have"),
        ({"embedding_size": None}, "[61, 8] where the config asks for [61, 128]"),
        ({"embedding_size": 24}, "left over: electra.embeddings_project"),
        ({"hidden_size": "wide"}, "hidden_size = 'wide' is not a size"),
        ({"num_attention_heads": 5}, "heads = 5 does not divide hidden_size = 24; 4 does"),
        ({"is_decoder": True}, "is_decoder = True is not supported, only False"),
    ],
)  # fmt: skip
def test_absurd_configs(tmp_path, changes, message):
    write_released(tmp_path, "electra", FIELDS | changes, ("replaced",), FIELDS)
    with pytest.raises(BertJaxError) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.long
def test_packed_rows_equal_separate_ones():
    layout = family_layout("electra", FIELDS, ("mlm", "replaced", "classify"), ("a", "b", "c"))
    assert_packed_equals_separate(layout)
