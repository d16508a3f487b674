"""MPNet: RoBERTa without segments; all layers share an attention bias per head and bucket of distances."""

from dataclasses import replace

from bert_jax.hub.families import bert, roberta
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    embeddings,
    fused_qkv,
    layer_norm,
    linear,
)
from bert_jax.models.encoder_config import EncoderConfig, RelativeConfig

BUCKETS, MAX_DISTANCE = 32, 128


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "encoder.layer.{i}."
    return [
        *embeddings(config),
        ParameterMapping("encoder/distances/table", ("encoder.relative_attention_bias.weight",)),
        *fused_qkv(config, path + "attention/qkv", [f"{tensor}attention.attn.{name}" for name in "qkv"]),
        *attention_output(config, path + "attention/out", tensor + "attention.attn.o"),
        *layer_norm(path + "attention_norm", tensor + "attention.LayerNorm"),
        *linear(path + "feed_forward/in", tensor + "intermediate.dense"),
        *linear(path + "feed_forward/out", tensor + "output.dense"),
        *layer_norm(path + "feed_forward_norm", tensor + "output.LayerNorm"),
    ]


FAMILY = replace(
    roberta.FAMILY,
    model_type="mpnet",
    class_name="MPNet",
    prefix="mpnet",
    fields=bert.fields_without("type_vocab_size") | {"vocab_size": 30527},
    constants={
        "type_vocab_size": 0,
        "mlm_activation": "gelu",
        "relative": RelativeConfig(("bias",), BUCKETS, MAX_DISTANCE),
    },
    # transformers can make a table of another size, but always reads 32 of its rows.
    supported={"relative_attention_num_buckets": (BUCKETS,), "pad_token_id": (1,), "quantization_config": ()},
    encoder=encoder,
    sizes={"mpnet-base": {"max_position_embeddings": 512, "layer_norm_eps": 1e-5}},
)
