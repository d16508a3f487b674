"""DeBERTa (v1): each distance has its own row; keys have no bias; query, key and value are one tensor."""

from dataclasses import replace
from typing import Any

import numpy as np

from bert_jax.hub.families import bert, deberta_v2
from bert_jax.hub.parameter_mapping import ParameterMapping
from bert_jax.models.encoder_config import EncoderConfig, RelativeConfig, layer_sizes


def relative(published: dict) -> RelativeConfig:
    return replace(deberta_v2.relative(published), key_bias=False)


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    v2_only = ("position_buckets", "share_att_key", "norm_rel_ebd")
    keys = deberta_v2.relative_keys(config).items()
    return {key: value for key, value in keys if key not in v2_only} | {"legacy": False}


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, own = "encoder/layers/attention", "encoder.layer.{i}.attention.self."
    D, H, K = config.hidden_size, config.num_attention_heads, config.head_size
    distances = {
        "keys": deberta_v2.distance_projection(config, "keys", f"{own}pos_proj", bias=False),
        "queries": deberta_v2.distance_projection(config, "queries", f"{own}pos_q_proj"),
    }
    return [
        *deberta_v2.shared_mappings(config),
        ParameterMapping(
            path + "/qkv/kernel",
            (f"{own}in_proj.weight",),
            lambda arrays: arrays[0].reshape(H, 3, K, D).transpose(3, 1, 0, 2),
            lambda array: [array.transpose(2, 1, 3, 0).reshape(3 * D, D)],
        ),
        ParameterMapping(
            path + "/bias",
            (f"{own}q_bias", f"{own}v_bias"),
            lambda arrays: np.stack(arrays).reshape(2, H, K),
            lambda array: list(array.reshape(2, D)),
        ),
        *(part for term in config.relative.terms for part in distances[term]),
        *bert.attention_result(config),
        *bert.feed_forward(),
    ]


V1: dict[str, Any] = {
    "positions": "decoder",
    "relative": RelativeConfig(("keys", "queries"), 0, 512, key_bias=False),
}

FAMILY = replace(
    deberta_v2.FAMILY,
    model_type="deberta",
    class_name="Deberta",
    fields=deberta_v2.FIELDS | layer_sizes(12, 768, 12, 3072, vocab_size=50265),
    supported={
        "tie_word_embeddings": (True,),
        "pooler_dropout": (0,),
        "pooler_hidden_act": ("gelu",),
        "talking_head": (False,),
        "position_buckets": (-1,),
        "share_att_key": (False,),
        "norm_rel_ebd": ("none",),
        "conv_kernel_size": (0,),
        "quantization_config": (),
    },
    encoder=encoder,
    derived={
        "relative": relative,
        "positions": deberta_v2.widths_and_positions,
        "tag_dropout": deberta_v2.tag_dropout,
    },
    derived_keys=derived_keys,
    sizes={
        "deberta-base": V1,
        "deberta-large": V1 | layer_sizes(24, 1024, 16, 4096),
        "deberta-xlarge": V1 | layer_sizes(48, 1024, 16, 4096),
    },
)
