"""BERT."""

from collections.abc import Sequence
from typing import Any

from bert_jax.hub.family import LABEL_HEADS, Family
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    embeddings,
    fused_qkv,
    layer_norm,
    linear,
    masked_lm,
)
from bert_jax.models.encoder_config import EncoderConfig

FIELDS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "head_dropout": None,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "hidden_act": "gelu",
}
KEYS = {"head_dropout": "classifier_dropout"}


def fields_without(*names: str) -> dict[str, Any]:
    return {name: default for name, default in FIELDS.items() if name not in names}


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    return [*embeddings(config), *attention(config), *feed_forward()]


def attention(
    config: EncoderConfig, qkv: Sequence[str] = ("query", "key", "value")
) -> list[ParameterMapping]:
    projections = [f"encoder.layer.{{i}}.attention.self.{name}" for name in qkv]
    return [*fused_qkv(config, "encoder/layers/attention/qkv", projections), *attention_result(config)]


def attention_result(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/attention", "encoder.layer.{i}.attention.output."
    return [
        *attention_output(config, path + "/out", tensor + "dense"),
        *layer_norm(path + "_norm", tensor + "LayerNorm"),
    ]


def feed_forward() -> list[ParameterMapping]:
    path, tensor = "encoder/layers/feed_forward", "encoder.layer.{i}."
    return [
        *linear(path + "/in", tensor + "intermediate.dense"),
        *linear(path + "/out", tensor + "output.dense"),
        *layer_norm(path + "_norm", tensor + "output.LayerNorm"),
    ]


FAMILY = Family(
    model_type="bert",
    class_name="Bert",
    prefix="bert",
    new_models=True,
    fields=FIELDS,
    keys=KEYS,
    constants={},
    supported={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "quantization_config": (),
    },
    encoder=encoder,
    pooler=linear("pooler/dense", "pooler.dense"),
    heads=LABEL_HEADS
    | {
        "mlm": masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
            "cls.predictions.bias",
        ),
        "nsp": linear("nsp/dense", "cls.seq_relationship"),
    },
    architectures={"ForPreTraining": ("mlm", "nsp")},
    known_extra_tensors=(
        r"embeddings\.(position_ids|token_type_ids)$",
        r"^cls\.predictions\.decoder\.(weight|bias)$",  # copies of tied parameters
        r"^fit_dense(s\.\d+)?\.(weight|bias)$",  # TinyBERT's projections from its states to its teacher's
    ),
)
