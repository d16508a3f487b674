"""BERT."""

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


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "encoder.layer.{i}."
    qkv = [f"{tensor}attention.self.{name}" for name in ("query", "key", "value")]
    return [
        ParameterMapping("encoder/embeddings/words", ("embeddings.word_embeddings.weight",), per_entry=True),
        ParameterMapping(
            "encoder/embeddings/positions", ("embeddings.position_embeddings.weight",), per_position=True
        ),
        ParameterMapping("encoder/embeddings/token_types", ("embeddings.token_type_embeddings.weight",)),
        *layer_norm("encoder/embeddings/norm", "embeddings.LayerNorm"),
        *fused_qkv(config, path + "attention/qkv", qkv),
        *attention_output(config, path + "attention/out", tensor + "attention.output.dense"),
        *layer_norm(path + "attention_norm", tensor + "attention.output.LayerNorm"),
        *linear(path + "feed_forward/in", tensor + "intermediate.dense"),
        *linear(path + "feed_forward/out", tensor + "output.dense"),
        *layer_norm(path + "feed_forward_norm", tensor + "output.LayerNorm"),
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
    heads={
        "mlm": masked_lm(
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
            "cls.predictions.bias",
        ),
        "nsp": linear("nsp/dense", "cls.seq_relationship"),
        "classify": linear("classify/dense", "classifier"),
        "tag": linear("tag/dense", "classifier"),
        "answer": linear("answer/dense", "qa_outputs"),
    },
    architectures={"ForPreTraining": ("mlm", "nsp")},
    known_extra_tensors=(
        r"embeddings\.(position_ids|token_type_ids)$",
        r"^cls\.predictions\.decoder\.(weight|bias)$",  # copies of tied parameters
        r"^fit_dense(s\.\d+)?\.(weight|bias)$",  # TinyBERT's projections from its states to its teacher's
    ),
)
