"""ELECTRA: BERT's encoder, which may be wider than its embeddings. The discriminator, whose head finds replaced tokens,
and the generator, a masked LM, are published separately."""

from dataclasses import replace
from typing import Any

from bert_jax.hub.families import bert
from bert_jax.hub.family import LABEL_HEADS, size_of
from bert_jax.hub.parameter_mapping import ParameterMapping, linear, masked_lm
from bert_jax.models.encoder_config import EncoderConfig, PoolerConfig, layer_sizes


def embedding_size(published: dict) -> int:
    """Return 0 if embeddings are as wide as the model: the reference projects them only if the widths differ."""
    size = size_of(published, "embedding_size", 128)
    return 0 if size == size_of(published, "hidden_size", 256) else size


def derived_keys(config: EncoderConfig) -> dict[str, Any]:
    return {"embedding_size": config.embedding_width}


def encoder(config: EncoderConfig) -> list[ParameterMapping]:
    projection = linear("encoder/embeddings/projection", "embeddings_project")
    return bert.encoder(config) + (projection if config.embedding_size else [])


FAMILY = replace(
    bert.FAMILY,
    model_type="electra",
    class_name="Electra",
    prefix="electra",
    new_models=False,
    fields=bert.FIELDS | layer_sizes(12, 256, 4, 1024),
    constants={"pooler": PoolerConfig("gelu", dropout=True), "mlm_activation": "gelu"},
    derived={"embedding_size": embedding_size},
    derived_keys=derived_keys,
    encoder=encoder,
    pooler=[],
    heads=LABEL_HEADS | {
        "mlm": masked_lm(
            "generator_predictions.dense", "generator_predictions.LayerNorm",
            "generator_lm_head", "generator_lm_head.bias",
        ),
        "replaced": [
            *linear("replaced/transform", "discriminator_predictions.dense"),
            *linear("replaced/dense", "discriminator_predictions.dense_prediction"),
        ],
        "classify": [*linear("pooler/dense", "classifier.dense"), *linear("classify/dense", "classifier.out_proj")],
    },
    sizes={
        "electra-small": {"embedding_size": 128},
        "electra-base": layer_sizes(12, 768, 12, 3072, embedding_size=0),
        "electra-large": layer_sizes(24, 1024, 16, 4096, embedding_size=0),
    },
    architectures={},
    known_extra_tensors=(r"embeddings\.(position_ids|token_type_ids)$", r"^generator_lm_head\.weight$"),
)  # fmt: skip
