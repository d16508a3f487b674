"""MosaicBERT: BERT with ALiBi, a gated feed-forward, and query, key and value in one tensor. DNABERT-2 is one, too.

transformers has no such model, and published files have BERT's `model_type`; their key `alibi_starting_size` tells them
apart. It says how large a bias the original program makes at first, and means nothing here.
"""

from dataclasses import replace
from typing import Any

from bert_jax.hub.families import bert, jina_bert
from bert_jax.hub.parameter_mapping import (
    ParameterMapping,
    attention_output,
    fused_qkv,
    layer_norm,
    masked_lm,
)
from bert_jax.models.encoder_config import EncoderConfig

ALIBI_SIZE = "alibi_starting_size"
EPSILON = 1e-12  # that of the LayerNorm of the masked-LM head, whatever `layer_norm_eps` says
FIELDS = {
    name: default for name, default in bert.FIELDS.items() if name not in ("hidden_act", "layer_norm_eps")
}


def mlm_activation(published: dict) -> str:
    """Return the activation of the masked-LM head: `hidden_act` is not that of the feed-forward, which is the GELU."""
    name = jina_bert.hidden_activation(published)
    return "" if name == "gelu" else name


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    return {
        "layer_norm_eps": EPSILON,
        "hidden_act": jina_bert.HF_ACTIVATIONS[config.mlm_activation or "gelu"],
    }


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    path, tensor = "encoder/layers/", "encoder.layer.{i}."
    return [
        ParameterMapping("encoder/embeddings/words", ("embeddings.word_embeddings.weight",), per_entry=True),
        ParameterMapping("encoder/embeddings/token_types", ("embeddings.token_type_embeddings.weight",)),
        *layer_norm("encoder/embeddings/norm", "embeddings.LayerNorm"),
        *fused_qkv(config, path + "attention/qkv", [tensor + "attention.self.Wqkv"]),
        *attention_output(config, path + "attention/out", tensor + "attention.output.dense"),
        *layer_norm(path + "attention_norm", tensor + "attention.output.LayerNorm"),
        *jina_bert.gated_feed_forward(config),
    ]


FAMILY = replace(
    bert.FAMILY,
    model_type="mosaic_bert",
    published_type="bert",
    recognizes=lambda published: ALIBI_SIZE in published,
    new_models=False,
    explicit={ALIBI_SIZE: 512},
    fields=FIELDS | {"attention_probs_dropout_prob": 0.0},
    constants={"positions": "alibi", "gated": True},
    derived={"mlm_activation": mlm_activation},
    derived_keys=derived_keys,
    supported={**bert.FAMILY.supported, "layer_norm_eps": (EPSILON,)},
    encoder=encoder,
    heads={
        # The bias is that of the decoder, and not beside it as BERT's.
        "mlm": masked_lm(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder", "cls.predictions.decoder.bias",
        ),
        **{name: bert.FAMILY.heads[name] for name in ("classify", "tag", "answer")},
    },
    architectures={},
    sizes={"mosaic-bert-base": {}, "mosaic-bert-large": {
        "num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096
    }},
    not_in_transformers=("mlm", "classify", "tag", "answer"),
    encoder_in_transformers=False,
)  # fmt: skip
