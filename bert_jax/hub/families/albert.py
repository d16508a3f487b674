"""ALBERT: layers that share their parameters in groups, and embeddings narrower than the layers."""

from bert_jax.hub.families import bert
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
from bert_jax.models.encoder_config import EncoderConfig, layer_sizes

FIELDS = bert.FIELDS | {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "layer_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.1,
    "hidden_act": "gelu_new",
}
KEYS = {"layer_groups": "num_hidden_groups", "head_dropout": "classifier_dropout_prob"}


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "encoder.albert_layer_groups.{i}.albert_layers.0."
    qkv = [f"{tensor}attention.{name}" for name in ("query", "key", "value")]
    return [
        *embeddings(config),
        *linear("encoder/embeddings/projection", "encoder.embedding_hidden_mapping_in"),
        *fused_qkv(config, path + "attention/qkv", qkv),
        *attention_output(config, path + "attention/out", tensor + "attention.dense"),
        *layer_norm(path + "attention_norm", tensor + "attention.LayerNorm"),
        *linear(path + "feed_forward/in", tensor + "ffn"),
        *linear(path + "feed_forward/out", tensor + "ffn_output"),
        *layer_norm(path + "feed_forward_norm", tensor + "full_layer_layer_norm"),
    ]


FAMILY = Family(
    model_type="albert",
    class_name="Albert",
    prefix="albert",
    fields=FIELDS,
    keys=KEYS,
    constants={"block": "albert"},
    supported={"inner_group_num": (1,), "position_embedding_type": ("absolute",), "quantization_config": ()},
    encoder=encoder,
    pooler=linear("pooler/dense", "pooler"),
    heads=LABEL_HEADS
    | {
        "mlm": masked_lm(
            "predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"
        ),
        "sop": linear("sop/dense", "sop_classifier.classifier"),
    },
    sizes={
        "albert-base": layer_sizes(12, 768, 12, 3072),
        "albert-large": layer_sizes(24, 1024, 16, 4096),
        "albert-xlarge": layer_sizes(24, 2048, 16, 8192),
        "albert-xxlarge": {},
    },
    architectures={"ForPreTraining": ("mlm", "sop")},
    known_extra_tensors=(
        r"embeddings\.(position_ids|token_type_ids)$",
        r"^predictions\.decoder\.(weight|bias)$",
    ),
)
