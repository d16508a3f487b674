"""MosaicBERT: BERT with ALiBi, a gated feed-forward, and query, key and value in one tensor. DNABERT-2 is one, too.

transformers has no such model, and published files have BERT's `model_type`; their key `alibi_starting_size` tells them
apart. It says how large a bias the original program makes at first, and means nothing here.
"""

from dataclasses import replace
from typing import Any

from bert_jax.hub.families import bert, jina_bert
from bert_jax.hub.family import HF_ACTIVATIONS, LABEL_HEADS
from bert_jax.hub.parameter_mapping import ParameterMapping, embeddings, masked_lm
from bert_jax.models.encoder_config import EncoderConfig, layer_sizes

ALIBI_SIZE = "alibi_starting_size"
EPSILON = 1e-12  # that of the LayerNorm of the masked-LM head, whatever `layer_norm_eps` says


def mlm_activation(published: dict) -> str:
    """Return the activation of the masked-LM head: `hidden_act` is not that of the feed-forward, which is the GELU."""
    name = jina_bert.hidden_activation(published)
    return "" if name == "gelu" else name


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    return {
        "layer_norm_eps": EPSILON,
        "hidden_act": HF_ACTIVATIONS[config.mlm_activation or "gelu"],
    }


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    feed_forward = jina_bert.gated_feed_forward(config)
    return [*embeddings(config), *bert.attention(config, ["Wqkv"]), *feed_forward]


FAMILY = replace(
    bert.FAMILY,
    model_type="mosaic_bert",
    published_type="bert",
    recognizes=lambda published: ALIBI_SIZE in published,
    new_models=False,
    explicit={ALIBI_SIZE: 512},
    fields=bert.fields_without("hidden_act", "layer_norm_eps") | {"attention_probs_dropout_prob": 0.0},
    constants={"positions": "alibi", "gated": True},
    derived={"mlm_activation": mlm_activation},
    derived_keys=derived_keys,
    supported={**bert.FAMILY.supported, "layer_norm_eps": (EPSILON,)},
    encoder=encoder,
    heads=LABEL_HEADS | {
        # The bias is that of the decoder, and not beside it as BERT's.
        "mlm": masked_lm(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder", "cls.predictions.decoder.bias",
        ),
    },
    architectures={},
    sizes={"mosaic-bert-base": {}, "mosaic-bert-large": layer_sizes(24, 1024, 16, 4096)},
    not_in_transformers=("mlm", *LABEL_HEADS),
    encoder_in_transformers=False,
)  # fmt: skip
