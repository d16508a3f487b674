"""JinaBERT, the encoder of jina-embeddings-v2: BERT with ALiBi and, in the published models, a gated feed-forward.

transformers has no such model. Published files name the code that opens them in `auto_map`, and have BERT's own
`model_type`: with it, transformers alone would open a BERT with random positions and feed-forward layers.
"""

from dataclasses import replace
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.hub.families import bert
from bert_jax.hub.family import HF_ACTIVATIONS, read_activation
from bert_jax.hub.parameter_mapping import ParameterMapping, embeddings, gated, layer_norm, linear
from bert_jax.hub.tensors import Tensors
from bert_jax.models.encoder_config import EncoderConfig, layer_sizes

ALIBI = "alibi"
# The value of `feed_forward_type` -> the activation of a gated feed-forward, whatever `hidden_act` says. "original" is
# BERT's own feed-forward.
GATED = {"geglu": "gelu", "reglu": "relu"}
ORIGINAL = "original"


def feed_forward_type(published: dict) -> str:
    feed_forward = published.get("feed_forward_type") or ORIGINAL
    if feed_forward not in (*GATED, ORIGINAL):
        raise BertJaxError(
            f"feed_forward_type = {feed_forward!r:.60} is not supported, only {', '.join([*GATED, ORIGINAL])}"
        )
    return feed_forward


def hidden_activation(published: dict) -> str:
    return read_activation(published.get("hidden_act") or "gelu", "hidden_act")


def activation(published: dict) -> str:
    return GATED.get(feed_forward_type(published)) or hidden_activation(published)


def mlm_activation(published: dict) -> str:
    """Return the activation of the masked-LM head, which follows `hidden_act`; "" if it is that of the feed-forward."""
    name = hidden_activation(published)
    return "" if name == activation(published) else name


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    published_types = {name: feed_forward for feed_forward, name in GATED.items()}
    if config.gated and config.hidden_act not in published_types:
        raise BertJaxError(
            f"jina_bert has no gated feed-forward with {config.hidden_act}, only with {' or '.join(published_types)}; "
            "set --config.model.hidden_act=gelu"
        )
    return {
        "position_embedding_type": ALIBI,
        "feed_forward_type": published_types[config.hidden_act] if config.gated else ORIGINAL,
        "hidden_act": HF_ACTIVATIONS[config.mlm_activation or config.hidden_act],
    }


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    feed_forward = gated_feed_forward(config) if config.gated else bert.feed_forward()
    return [*embeddings(config), *bert.attention(config), *feed_forward]


def gated_feed_forward(config: EncoderConfig) -> list[ParameterMapping]:
    """The published names of a gated feed-forward; the activated half comes first in `gated_layers`."""
    path, tensor = "encoder/layers/", "encoder.layer.{i}.mlp."
    return [
        gated(config, path + "feed_forward/gated", [tensor + "gated_layers"]),
        *linear(path + "feed_forward/out", tensor + "wo"),
        *layer_norm(path + "feed_forward_norm", tensor + "layernorm"),
    ]


def refuse_normalized_queries(tensors: Tensors) -> Tensors:
    if any(name.endswith("attention.self.layer_norm_q.weight") for name in tensors):
        raise BertJaxError(
            "the weights normalise queries and keys (jina-bert-v2-qk-post-norm, of the models for code, German, "
            "Spanish and Chinese), which is not supported; use an English jina-embeddings-v2"
        )
    return tensors


FAMILY = replace(
    bert.FAMILY,
    model_type="jina_bert",
    published_type="bert",
    recognizes=lambda published: published.get("position_embedding_type") == ALIBI,
    class_name="JinaBert",
    fields=bert.fields_without("hidden_act"),
    constants={"positions": "alibi"},
    derived={
        "gated": lambda published: feed_forward_type(published) in GATED,
        "hidden_act": activation,
        "mlm_activation": mlm_activation,
    },
    derived_keys=derived_keys,
    supported={**bert.FAMILY.supported, "position_embedding_type": (ALIBI,)},
    modernize_tensors=refuse_normalized_queries,
    encoder=encoder,
    sizes={
        "jina-bert-small": layer_sizes(4, 512, 8, 2048, max_position_embeddings=8192, gated=True),
        "jina-bert-base": {"max_position_embeddings": 8192, "gated": True},
    },
    not_in_transformers=tuple(bert.FAMILY.heads),
    encoder_in_transformers=False,
)
