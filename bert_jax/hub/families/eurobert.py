"""EuroBERT: the layers of Llama for both directions. They have RMSNorm before each part, rotary positions, a gated
feed-forward and, in the larger models, several heads for queries to one for keys and values."""

from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import bert
from bert_jax.hub.family import LABEL_HEADS, Family, size_of
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    gated,
    grouped_qkv,
    layer_norm,
    linear,
)
from bert_jax.hub.rope import check_head_dim, rope_table, theta_of
from bert_jax.models.encoder_config import EncoderConfig, PoolerConfig, RotaryConfig, layer_sizes

THETA = 10_000.0  # of a config that names none, to transformers; the published models have 250,000
PUBLISHED: dict[str, Any] = {"rotary": RotaryConfig(250_000.0)}
FIELDS = bert.fields_without("type_vocab_size", "tie_word_embeddings") | {
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.0,
    "hidden_act": "silu",
}
KEYS = {
    "layer_norm_eps": "rms_norm_eps",
    "hidden_dropout_prob": "hidden_dropout",  # the published files have this key, which transformers does not read
    "attention_probs_dropout_prob": "attention_dropout",
    "head_dropout": "classifier_dropout",
}
# What the classifier reads -> our pooler. "late" averages the logits of all tokens: the same as those of the mean of
# what the dense layer makes of each token, for the classifier is linear.
POOLERS = {
    "bos": PoolerConfig("gelu"),
    "mean": PoolerConfig("gelu", mean=True),
    "late": PoolerConfig("gelu", mean=True, late=True),
}


def key_value_heads(published: dict) -> int:
    heads = size_of(published, "num_attention_heads", 12)
    shared = size_of(published, "num_key_value_heads", heads)
    return 0 if shared == heads else shared


def rotary(published: dict) -> RotaryConfig:
    check_head_dim(published)
    # The published files have the older keys.
    if published.get("rope_scaling") is not None:
        raise BertJaxError(f"rope_scaling = {published['rope_scaling']!r:.60} is not supported")
    old = published.get("rope_theta")
    default = THETA if old is None else theta_of(rope_table(old), THETA, "rope_theta")
    return RotaryConfig(theta_of(published.get("rope_parameters"), default, "rope_parameters"))


def pooler(published: dict) -> PoolerConfig:
    # `clf_pooling` is the key of the published files.
    pooling = published.get("classifier_pooling") or published.get("clf_pooling") or "late"
    if pooling not in list(POOLERS):
        raise BertJaxError(
            f"classifier_pooling = {pooling!r:.60} is not supported, only {', '.join(POOLERS)}"
        )
    return POOLERS[pooling]


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    pooling = next((name for name, pooler in POOLERS.items() if pooler == config.pooler), None)
    if pooling is None:
        raise BertJaxError(
            f"EuroBERT has no pooler of these settings: {config.pooler}; leave model.pooler out"
        )
    return {
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.head_size,
        "rope_parameters": rope_table(config.rotary.theta),
        "rope_theta": config.rotary.theta,
        "classifier_pooling": pooling,
        "clf_pooling": pooling,
        "tie_word_embeddings": False,
    }


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "layers.{i}."
    qkv = [f"{tensor}self_attn.{part}_proj" for part in "qkv"]
    return [
        ParameterMapping("encoder/embeddings/words", ("embed_tokens.weight",), per_entry=True),
        *layer_norm(path + "attention_norm", tensor + "input_layernorm", False),
        *grouped_qkv(config, path + "attention", qkv),
        *attention_output(config, path + "attention/out", tensor + "self_attn.o_proj"),
        *layer_norm(path + "feed_forward_norm", tensor + "post_attention_layernorm", False),
        gated(config, path + "feed_forward/gated", [tensor + "mlp.gate_proj", tensor + "mlp.up_proj"]),
        *linear(path + "feed_forward/out", tensor + "mlp.down_proj", False),
        *layer_norm("encoder/final_norm", "norm", False),
    ]


FAMILY = Family(
    model_type="eurobert",
    class_name="EuroBert",
    prefix="model",
    fields=FIELDS,
    keys=KEYS,
    constants={
        "block": "local_and_global", "positions": "none", "type_vocab_size": 0, "rms_norm": True, "norm_bias": False,
        "embedding_norm": False, "bias": False, "gated": True, "mlm_transform": False, "tie_word_embeddings": False,
    },
    derived={"num_key_value_heads": key_value_heads, "rotary": rotary, "pooler": pooler},
    derived_keys=derived_keys,
    # Absent keys would mean the ids of the published vocabulary, which another vocabulary may not have. There, padding
    # has the id of the end of a text: only the mask tells them apart.
    explicit=dict.fromkeys([f"{role}_token_id" for role in ("pad", "bos", "eos")]),
    supported={
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "tie_word_embeddings": (False,),
        "is_decoder": (False,),
        "quantization_config": (),
    },
    encoder=encoder,
    pooler=[],
    heads=LABEL_HEADS | {
        "mlm": [ParameterMapping("mlm/decoder", ("lm_head.weight",), per_entry=True)],
        "classify": [*linear("pooler/dense", "dense"), *linear("classify/dense", "classifier")],
    },
    sizes={
        "eurobert-210m": PUBLISHED,
        "eurobert-610m": PUBLISHED | layer_sizes(26, 1152, 18, 4096, num_key_value_heads=6),
        "eurobert-2.1b": PUBLISHED | layer_sizes(32, 2304, 18, 6144, num_key_value_heads=6),
    },
    not_in_transformers=("answer",),
    known_extra_tensors=(r"rotary_emb\.inv_freq$",),
)  # fmt: skip
