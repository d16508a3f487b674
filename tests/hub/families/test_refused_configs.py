"""A config.json that no model can have is refused in one line that names what is wrong in it."""

import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from tests.support.families import FAMILY_CONFIGS, write_released

HEADS = {"electra": ("replaced",)}
SMALL = {name: config | {"vocab_size": 61} for name, config in FAMILY_CONFIGS.items()}
SMALL["albert"] |= {"num_hidden_layers": 4, "num_hidden_groups": 2}
SMALL["deberta-v2"] |= {"max_relative_positions": 40, "conv_kernel_size": 0}
# Under the names of the published files, which are older.
PUBLISHED_NOMIC = {
    "activation_function": "swiglu", "n_embd": 24, "n_head": 3, "n_inner": 40, "n_layer": 2, "n_positions": 64,
    "rotary_emb_base": 500, "type_vocab_size": 2, "vocab_size": 64,
}  # fmt: skip
FULL, NEAR = "full_attention", "sliding_attention"
# Family, changes of its config.json, and what of them the refusal names.
ROWS = [
    ("albert", {"num_hidden_groups": 3}, "layer_groups = 3"),
    ("albert", {"num_hidden_groups": 0}, "num_hidden_groups = 0"),
    ("albert", {"num_hidden_groups": 4}, "4 layers"),
    ("albert", {"inner_group_num": 2}, "inner_group_num = 2"),
    ("albert", {"embedding_size": -8}, "embedding_size = -8"),
    ("distilbert", {"n_heads": 5}, "heads = 5"),
    ("distilbert", {"dim": None}, "[61, 768]"),
    ("distilbert", {"dropout": "half"}, '"dropout"'),
    ("electra", {"embedding_size": 0}, "embedding_size = 0"),
    ("electra", {"embedding_size": 32}, "electra.embeddings_project"),
    ("modernbert", {"num_attention_heads": 32}, "even, not 1"),
    ("modernbert", {"local_attention": -128}, "local_attention = -128"),
    ("modernbert", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0"),
    ("modernbert", {"layer_types": [FULL]}, "4 layers"),
    ("modernbert", {"layer_types": [FULL, "chunked", FULL, "chunked"]}, "layer_types"),
    ("modernbert", {"layer_types": [NEAR, NEAR, NEAR, FULL]}, "supported only at layer 0 and at equal distances"),
    ("modernbert", {"global_rope_theta": -1.0}, "rope_theta = -1.0"),
    ("modernbert", {"rope_parameters": {FULL: {"rope_type": "yarn"}}}, "rope_type = 'yarn'"),
    ("modernbert", {"rope_parameters": {NEAR: 3}}, "rope_parameters.sliding_attention = 3"),
    ("modernbert", {"norm_bias": True}, "norm_bias = True"),
    ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling = 'max'"),
    ("modernbert", {"classifier_activation": "gelo"}, 'classifier_activation = "gelo"'),
    ("nomic_bert", {"rotary_emb_base": 0}, "rope_theta = 0"),
    ("nomic_bert", {"rotary_emb_fraction": 0.5}, "rotary_emb_fraction = 0.5"),
    ("nomic_bert", {"activation_function": "gelu"}, "activation_function = 'gelu'"),
    ("nomic_bert", {"prenorm": True}, "prenorm = True"),
    ("nomic_bert", {"moe_every_n_layers": 2}, "moe_every_n_layers = 2"),
    ("nomic_bert", {"rope_parameters": {"rope_type": "dynamic"}}, "rope_type = 'dynamic'"),
    ("nomic_bert", {"n_embd": 21, "n_head": 7}, "even, not 3"),
    ("eurobert", {"num_key_value_heads": 3}, "num_key_value_heads = 3"),
    ("eurobert", {"num_key_value_heads": 1}, "layers.0.self_attn.k_proj.weight"),
    ("eurobert", {"head_dim": 16}, "head_dim = 16"),
    ("eurobert", {"tie_word_embeddings": True}, "tie_word_embeddings = True"),
    ("eurobert", {"rope_scaling": {"factor": 2}}, "rope_scaling"),
    ("jina_bert", {"feed_forward_type": "swiglu"}, "feed_forward_type = 'swiglu'"),
    ("jina_bert", {"feed_forward_type": "original"}, "encoder.layer.0.intermediate.dense.weight"),
    ("mosaic_bert", {"layer_norm_eps": 1e-5}, "layer_norm_eps = 1e-05"),
    ("sinusoidal_bert", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
    ("mpnet", {"relative_attention_num_buckets": 64}, "relative_attention_num_buckets = 64"),
    ("mpnet", {"pad_token_id": 0}, "pad_token_id = 0"),
    ("deberta-v2", {"relative_attention": False}, "relative_attention = False"),
    ("deberta-v2", {"pos_att_type": None}, "pos_att_type"),
    ("deberta-v2", {"pos_att_type": "p2p"}, 'did you mean "p2c"'),
    ("deberta-v2", {"position_buckets": 7}, "even number"),
    ("deberta-v2", {"position_buckets": 400}, "at least 202, not 40"),
    ("deberta-v2", {"position_buckets": 32}, "[64, 32]"),
    ("deberta-v2", {"conv_kernel_size": 2}, "convolution.width"),
    ("deberta-v2", {"conv_kernel_size": 3}, "deberta.encoder.conv.conv.weight"),
    ("deberta-v2", {"attention_head_size": 64}, "attention_head_size = 64"),
    ("deberta-v2", {"pooler_dropout": 0.3}, "pooler_dropout = 0.3"),
    ("deberta-v2", {"share_att_key": False}, "deberta.encoder.layer.0.attention.self.pos_key_proj.weight"),
    ("deberta-v2", {"model_type": "deberta"}, "position_buckets = 16"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "changes", "named"),
    ROWS,
    ids=[f"{name}-{next(iter(changes))}-{n}" for n, (name, changes, _) in enumerate(ROWS)],
)
def test_a_config_that_no_model_can_have_is_refused_in_a_line(family, changes, named, tmp_path):
    small = SMALL[family]
    published = PUBLISHED_NOMIC if family == "nomic_bert" else small
    write_released(tmp_path, family, published | changes, HEADS.get(family, ("mlm",)), small)
    with pytest.raises(BertJaxError) as error:
        bert_jax.load(tmp_path, tokenizer=False)
    assert named in str(error.value) and "\n" not in str(error.value)
