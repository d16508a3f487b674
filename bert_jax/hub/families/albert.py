"""ALBERT: layers that share their parameters in groups, and embeddings narrower than the layers."""

from bert_jax.hub.family import Family
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    fused_qkv,
    layer_norm,
    linear,
    masked_lm,
)
from bert_jax.models.encoder_config import EncoderConfig

FIELDS = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_layers": 12,
    "layer_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "type_vocab_size": 2,
    "max_position_embeddings": 512,
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "head_dropout": 0.1,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "hidden_act": "gelu_new",
}
KEYS = {"layer_groups": "num_hidden_groups", "head_dropout": "classifier_dropout_prob"}


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "encoder.albert_layer_groups.{i}.albert_layers.0."
    qkv = [f"{tensor}attention.{name}" for name in ("query", "key", "value")]
    return [
        ParameterMapping("encoder/embeddings/words", ("embeddings.word_embeddings.weight",), per_entry=True),
        ParameterMapping(
            "encoder/embeddings/positions", ("embeddings.position_embeddings.weight",), per_position=True
        ),
        ParameterMapping("encoder/embeddings/token_types", ("embeddings.token_type_embeddings.weight",)),
        *layer_norm("encoder/embeddings/norm", "embeddings.LayerNorm"),
        *linear("encoder/embeddings/projection", "encoder.embedding_hidden_mapping_in"),
        *fused_qkv(config, path + "attention/qkv", qkv),
        *attention_output(config, path + "attention/out", tensor + "attention.dense"),
        *layer_norm(path + "attention_norm", tensor + "attention.LayerNorm"),
        *linear(path + "feed_forward/in", tensor + "ffn"),
        *linear(path + "feed_forward/out", tensor + "ffn_output"),
        *layer_norm(path + "feed_forward_norm", tensor + "full_layer_layer_norm"),
    ]


LARGE = {"num_hidden_layers": 24, "num_attention_heads": 16}

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
    heads={
        "mlm": masked_lm(
            "predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions.bias"
        ),
        "sop": linear("sop/dense", "sop_classifier.classifier"),
        "classify": linear("classify/dense", "classifier"),
        "tag": linear("tag/dense", "classifier"),
        "answer": linear("answer/dense", "qa_outputs"),
    },
    sizes={
        "albert-base": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        "albert-large": LARGE | {"hidden_size": 1024, "intermediate_size": 4096},
        "albert-xlarge": LARGE | {"hidden_size": 2048, "intermediate_size": 8192},
        "albert-xxlarge": {},
    },
    architectures={"ForPreTraining": ("mlm", "sop")},
    known_extra_tensors=(
        r"embeddings\.(position_ids|token_type_ids)$",
        r"^predictions\.decoder\.(weight|bias)$",
    ),
)
