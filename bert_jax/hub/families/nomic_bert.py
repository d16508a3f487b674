"""NomicBERT: BERT with rotary positions, a gated feed-forward, and no biases in the dense parts of its layers.

The published files have other names and keys, from before transformers supported the family. We read both, and write
those of transformers.
"""

import re
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import bert
from bert_jax.hub.family import LABEL_HEADS, Family, size_of
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    embeddings,
    fused_qkv,
    gated,
    layer_norm,
    linear,
    masked_lm,
)
from bert_jax.hub.rope import check_head_dim, rope_table, theta_of
from bert_jax.hub.tensors import Tensors
from bert_jax.models.encoder_config import EncoderConfig, RotaryConfig

FIELDS = bert.FIELDS | {
    "vocab_size": 30528,
    "max_position_embeddings": 2048,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "silu",
}
# The keys of the published files -> transformers'.
KEYS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "attn_pdrop": "attention_probs_dropout_prob",
}
# Further keys of those files -> the only supported value.
ONLY: dict[str, Any] = {
    "activation_function": "swiglu",
    "causal": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "parallel_block": False,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "use_rms_norm": False,
}
# Keys of the original program, which we do not write.
OBSOLETE = (
    *KEYS,
    *ONLY,
    "auto_map",
    "embd_pdrop",
    "max_trained_positions",
    "rotary_emb_base",
    "rotary_scaling_factor",
)
NAMES = {
    r"^bert\.": "nomic_bert.",
    r"(^|\.)encoder\.layers\.": r"\1layers.",
    r"(^|\.)emb_ln\.": r"\1embeddings.LayerNorm.",
    r"\.attn\.out_proj\.": ".self_attn.o_proj.",
    r"\.norm1\.": ".post_attention_layernorm.",
    r"\.norm2\.": ".post_mlp_layernorm.",
    r"\.mlp\.fc11\.": ".mlp.up_proj.",
    r"\.mlp\.fc12\.": ".mlp.gate_proj.",
    r"\.mlp\.fc2\.": ".mlp.down_proj.",
}  # fmt: skip


def modernize_config(published: dict, where) -> dict:
    for key, value in ONLY.items():
        if published.get(key, value) not in (value, None):
            raise BertJaxError(f"{where}: {key} = {published[key]!r} is not supported, only {value!r}")
    renamed = {KEYS[key]: published[key] for key in KEYS if published.get(key) is not None}
    if "rotary_emb_base" in published:
        renamed["rope_parameters"] = rope_table(published["rotary_emb_base"])
    if published.get("rotary_scaling_factor") is not None:
        # Beyond the trained positions the angles would depend on the length of the text.
        trained = size_of(published, "max_trained_positions", 2048, where)
        renamed["max_position_embeddings"] = min(renamed.get("max_position_embeddings", trained), trained)
    kept = {key: value for key, value in published.items() if key not in OBSOLETE}
    if published.get("architectures") == ["NomicBertForPreTraining"]:
        kept["architectures"] = ["NomicBertForMaskedLM"]
    return renamed | kept


def modernize_tensors(tensors: Tensors) -> Tensors:
    tensors = tensors.renamed(modernize_names)
    # The published masked LM has no biases.
    dense, bias = "cls.predictions.transform.dense", "cls.predictions.bias"
    words = "nomic_bert.embeddings.word_embeddings.weight"
    if not {f"{dense}.weight", words} <= set(tensors) or {f"{dense}.bias", bias} & set(tensors):
        return tensors
    shapes = tensors.shapes
    return tensors.with_zeros({f"{dense}.bias": shapes[f"{dense}.weight"][:1], bias: shapes[words][:1]})


def modernize_names(name: str) -> tuple[str, ...]:
    """Convert the name of a published tensor to transformers' names: three for a fused query, key and value, else one.

    >>> modernize_names("encoder.layers.3.attn.Wqkv.weight")[1:]
    ('layers.3.self_attn.k_proj.weight', 'layers.3.self_attn.v_proj.weight')
    """
    for old, new in NAMES.items():
        name = re.sub(old, new, name)
    if ".attn.Wqkv." in name:
        return tuple(name.replace(".attn.Wqkv.", f".self_attn.{part}_proj.") for part in "qkv")
    return (name,)


def rotary(published: dict) -> RotaryConfig:
    check_head_dim(published)
    return RotaryConfig(theta_of(published.get("rope_parameters"), 1000.0, "rope_parameters"))


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "layers.{i}."
    qkv = [f"{tensor}self_attn.{part}_proj" for part in "qkv"]
    return [
        *embeddings(config),
        *fused_qkv(config, path + "attention/qkv", qkv),
        *attention_output(config, path + "attention/out", tensor + "self_attn.o_proj"),
        *layer_norm(path + "attention_norm", tensor + "post_attention_layernorm"),
        gated(config, path + "feed_forward/gated", [tensor + "mlp.gate_proj", tensor + "mlp.up_proj"]),
        *linear(path + "feed_forward/out", tensor + "mlp.down_proj", config.bias),
        *layer_norm(path + "feed_forward_norm", tensor + "post_mlp_layernorm"),
    ]


FAMILY = Family(
    model_type="nomic_bert",
    class_name="NomicBert",
    prefix="nomic_bert",
    fields=FIELDS,
    keys=bert.KEYS,
    constants={"positions": "none", "bias": False, "gated": True},
    derived={"rotary": rotary},
    derived_keys=lambda config: {
        "rope_parameters": rope_table(config.rotary.theta),
        "head_dim": config.head_size,
    },
    supported={
        "is_decoder": (False,),
        "moe_every_n_layers": (0,),
        "num_experts": (0,),
        "quantization_config": (),
        "rotary_emb_scale_base": (),
    },
    modernize_config=modernize_config,
    modernize_tensors=modernize_tensors,
    encoder=encoder,
    pooler=linear("pooler/dense", "pooler.dense"),
    heads=LABEL_HEADS
    | {
        "mlm": masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.layer_norm",
            "cls.predictions.decoder",
            "cls.predictions.bias",
        ),
    },
    not_in_transformers=("answer",),
    sizes={"nomic-bert-base": {}},
    known_extra_tensors=(
        r"embeddings\.(position_ids|token_type_ids)$",
        r"rotary_emb\.inv_freq$",
        r"^cls\.predictions\.decoder\.(weight|bias)$",  # copies of tied parameters
    ),
)
