"""DeBERTa-v2 and v3: attention by relative distances, and an enhanced mask decoder, which knows positions."""

from collections.abc import Mapping
from typing import Any

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.hub.families import bert
from bert_jax.hub.family import (
    ACTIVATIONS,
    HF_ACTIVATIONS,
    LABEL_HEADS,
    Family,
    read_activation,
    size_of,
)
from bert_jax.hub.parameter_mapping import ParameterMapping, embeddings, fused_qkv, layer_norm, linear
from bert_jax.hub.tensors import Tensors
from bert_jax.models.encoder_config import (
    ConvolutionConfig,
    EncoderConfig,
    PoolerConfig,
    RelativeConfig,
    layer_sizes,
)

POSITION_TABLE = "embeddings.position_embeddings.weight"
TERMS = {"c2p": "keys", "p2c": "queries"}
# The names that transformers gives the masked LM unless the config has legacy = false -> the published names.
LEGACY = {
    "cls.predictions.transform.": "lm_predictions.lm_head.",
    "cls.predictions.bias": "lm_predictions.lm_head.bias",
}


def relative(published: dict) -> RelativeConfig:
    named = published.get("pos_att_type") or []
    listed = named.split("|") if isinstance(named, str) else list(named)
    term_names = {str(term_name).strip().lower() for term_name in listed}
    if unknown := sorted(term_names - set(TERMS)):
        raise BertJaxError(f'pos_att_type has "{unknown[0]}"; {suggest_name(unknown[0], TERMS)}')
    if bool(published.get("relative_attention")) != bool(term_names):
        raise BertJaxError(
            f"relative_attention = {published.get('relative_attention')!r} contradicts pos_att_type = {named!r}"
        )
    if not term_names:
        return RelativeConfig()
    max_distance = published.get("max_relative_positions")
    if type(max_distance) is not int or max_distance < 1:
        max_distance = size_of(published, "max_position_embeddings", 512)
    return RelativeConfig(
        tuple(term for term_name, term in TERMS.items() if term_name in term_names),
        buckets=buckets(published),
        max_distance=max_distance,
        shared=bool(published.get("share_att_key", False)),
        normalized="layer_norm" in str(published.get("norm_rel_ebd", "none")).lower().split("|"),
    )


def buckets(published: dict) -> int:
    """Return the number of distance buckets, 0 if there are none: the key is -1, null or absent."""
    return 0 if published.get("position_buckets") in (None, -1) else size_of(published, "position_buckets", 0)


def relative_keys(config: EncoderConfig) -> dict[str, Any]:
    r = config.relative
    if config.positions not in ("learned", "none", "decoder"):
        raise BertJaxError(f"DeBERTa has no {config.positions} positions; leave model.positions out")
    keys = {
        "relative_attention": bool(r.terms),
        "pos_att_type": [term_name for term_name, term in TERMS.items() if term in r.terms],
        "position_biased_input": config.positions == "learned",
    }
    if not r.terms:
        return keys
    return keys | {
        "position_buckets": r.buckets or -1,
        "max_relative_positions": r.max_distance,
        "share_att_key": r.shared,
        "norm_rel_ebd": "layer_norm" if r.normalized else "none",
    }


def convolution(published: dict) -> ConvolutionConfig:
    width = size_of(published, "conv_kernel_size", 0)
    activation = read_activation(
        published.get("conv_act", "tanh"), "conv_act", ACTIVATIONS | {"tanh": "tanh"}
    )
    return ConvolutionConfig(width, activation) if width else ConvolutionConfig()


def convolution_keys(config: EncoderConfig) -> dict[str, Any]:
    c = config.convolution
    named = HF_ACTIVATIONS | {"tanh": "tanh"}
    return {"conv_kernel_size": c.width, "conv_act": named[c.activation]} if c.width else {}


def positions(published: dict) -> str:
    return widths_and_positions(published, width=1536, heads=24)


def widths_and_positions(published: dict, width: int = 768, heads: int = 12) -> str:
    """Return the kind of positions; refuse embeddings, a pooler or heads that are not as wide as the model."""
    width = size_of(published, "hidden_size", width)
    for key in ("embedding_size", "pooler_hidden_size"):
        if published.get(key, width) != width:
            raise BertJaxError(f"{key} = {published[key]!r} is not supported, only hidden_size = {width}")
    size = published.get("attention_head_size")
    if size is not None and size * size_of(published, "num_attention_heads", heads) != width:
        raise BertJaxError(f"attention_head_size = {size!r} is not supported, only hidden_size / heads")
    return "learned" if published.get("position_biased_input", True) else "none"


def tag_dropout(published: dict) -> float:
    """Return the tagger's dropout, which is never `cls_dropout`; -1 (the head's) if there is no `cls_dropout`."""
    return -1.0 if published.get("cls_dropout") is None else published.get("hidden_dropout_prob", 0.1)


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    return relative_keys(config) | convolution_keys(config) | {"legacy": False}


def complete_from_tensors(config: EncoderConfig, tensors: Mapping) -> EncoderConfig:
    """Give position embeddings to the mask decoder if the file has them and the embeddings do not use them."""
    there = any(name.endswith(POSITION_TABLE) for name in tensors)
    return config.replace(positions="decoder") if there and config.positions == "none" else config


def modernize_tensors(tensors: Tensors) -> Tensors:
    def renamed(name: str) -> tuple[str]:
        for old, new in LEGACY.items():
            name = name.replace(old, new)
        return (name,)

    return tensors.renamed(renamed)


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    own = "encoder.layer.{i}.attention.self."
    # The terms whose states each layer projects with separate parameters.
    own_terms = () if config.relative.shared else config.relative.terms
    return [
        *shared_mappings(config),
        *fused_qkv(
            config,
            "encoder/layers/attention/qkv",
            [f"{own}{name}_proj" for name in ("query", "key", "value")],
        ),
        *(
            part
            for term in own_terms
            for part in distance_projection(config, term, f"{own}{PROJECTED[term]}")
        ),
        *bert.attention_result(config),
        *bert.feed_forward(),
    ]


PROJECTED = {"keys": "pos_key_proj", "queries": "pos_query_proj"}


def distance_projection(
    config: EncoderConfig, term: str, tensor: str, bias: bool = True
) -> list[ParameterMapping]:
    D, H, K = config.hidden_size, config.num_attention_heads, config.head_size
    path = f"encoder/layers/attention/distance_{term}"
    parts = [
        ParameterMapping(
            f"{path}/kernel",
            (f"{tensor}.weight",),
            lambda arrays: arrays[0].T.reshape(D, H, K),
            lambda array: [array.reshape(D, D).T],
        ),
        ParameterMapping(
            f"{path}/bias",
            (f"{tensor}.bias",),
            lambda arrays: arrays[0].reshape(H, K),
            lambda array: [array.reshape(D)],
        ),
    ]
    return parts[: 1 + bias]


def shared_mappings(config: EncoderConfig) -> list[ParameterMapping]:
    """The parameters before the layers or shared by all layers."""
    parts = embeddings(config)
    if config.relative.terms:
        parts.append(ParameterMapping("encoder/distances/table", ("encoder.rel_embeddings.weight",)))
    if config.relative.normalized:
        parts += layer_norm("encoder/distances/norm", "encoder.LayerNorm")
    if config.convolution.width:
        kernel = ParameterMapping(
            "encoder/convolution/dense/kernel",
            ("encoder.conv.conv.weight",),
            lambda arrays: arrays[0].transpose(2, 1, 0),  # torch keeps [out, in, width]
            lambda array: [array.transpose(2, 1, 0)],
        )
        parts += [kernel, ParameterMapping("encoder/convolution/dense/bias", ("encoder.conv.conv.bias",))]
        parts += layer_norm("encoder/convolution", "encoder.conv.LayerNorm")
    return parts


V3: dict[str, Any] = {
    "positions": "decoder",
    "relative": RelativeConfig(("keys", "queries"), 256, 512, shared=True, normalized=True),
}
V2 = V3 | {"convolution": ConvolutionConfig(3, "gelu")}
FIELDS = bert.fields_without("tie_word_embeddings") | layer_sizes(
    24, 1536, 24, 6144, vocab_size=128100, type_vocab_size=0, layer_norm_eps=1e-7
)

FAMILY = Family(
    model_type="deberta-v2",
    class_name="DebertaV2",
    prefix="deberta",
    fields=FIELDS,
    keys={"head_dropout": "cls_dropout"},
    constants={"block": "disentangled", "pooler": PoolerConfig("gelu")},
    supported={
        "tie_word_embeddings": (True,),
        "pooler_dropout": (0,),
        "pooler_hidden_act": ("gelu",),
        "conv_groups": (1,),
        "quantization_config": (),
    },
    encoder=encoder,
    pooler=[],
    heads=LABEL_HEADS
    | {
        "mlm": [
            *linear("mlm/transform", "lm_predictions.lm_head.dense"),
            *layer_norm("mlm/norm", "lm_predictions.lm_head.LayerNorm"),
            ParameterMapping("mlm/bias", ("lm_predictions.lm_head.bias",), per_entry=True),
        ],
        "replaced_in_context": [
            *linear("replaced_in_context/transform", "mask_predictions.dense"),
            *layer_norm("replaced_in_context/norm", "mask_predictions.LayerNorm"),
            *linear("replaced_in_context/dense", "mask_predictions.classifier"),
        ],
        "classify": [*linear("pooler/dense", "pooler.dense"), *linear("classify/dense", "classifier")],
    },
    derived={
        "relative": relative,
        "convolution": convolution,
        "positions": positions,
        "tag_dropout": tag_dropout,
    },
    derived_keys=derived_keys,
    complete_from_tensors=complete_from_tensors,
    modernize_tensors=modernize_tensors,
    sizes={
        "deberta-v3-xsmall": V3 | layer_sizes(12, 384, 6, 1536),
        "deberta-v3-small": V3 | layer_sizes(6, 768, 12, 3072),
        "deberta-v3-base": V3 | layer_sizes(12, 768, 12, 3072),
        "deberta-v3-large": V3 | layer_sizes(24, 1024, 16, 4096),
        "deberta-v2-xlarge": V2,
        "deberta-v2-xxlarge": V2 | {"num_hidden_layers": 48},
    },
    not_in_transformers=("replaced_in_context",),
    known_extra_tensors=(
        r"embeddings\.position_ids$",
        r"^cls\.predictions\.decoder\.(weight|bias)$",
        r"^(deberta\.)?embeddings\.word_embeddings\._weight$",
        r"^(lm|mask)_predictions\.",  # pre-training heads of which a part is missing
    ),
)
