"""ELECTRA: BERT's encoder, which may be wider than its embeddings. The discriminator, whose head finds replaced tokens,
and the generator, a masked LM, are published separately."""

from dataclasses import replace
from typing import Any

from bert_jax.hub.families import bert
from bert_jax.hub.family import size_of
from bert_jax.hub.parameter_mapping import ParameterMapping, linear, masked_lm
from bert_jax.models.encoder_config import EncoderConfig, PoolerConfig

FIELDS = bert.FIELDS | {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}


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
    fields=FIELDS,
    constants={"pooler": PoolerConfig("gelu", dropout=True), "mlm_activation": "gelu"},
    derived={"embedding_size": embedding_size},
    derived_keys=derived_keys,
    encoder=encoder,
    pooler=[],
    heads={
        "mlm": masked_lm(
            "generator_predictions.dense", "generator_predictions.LayerNorm",
            "generator_lm_head", "generator_lm_head.bias",
        ),
        "replaced": [
            *linear("replaced/transform", "discriminator_predictions.dense"),
            *linear("replaced/dense", "discriminator_predictions.dense_prediction"),
        ],
        "classify": [*linear("pooler/dense", "classifier.dense"), *linear("classify/dense", "classifier.out_proj")],
        "tag": linear("tag/dense", "classifier"),
        "answer": linear("answer/dense", "qa_outputs"),
    },
    sizes={
        "electra-small": {"embedding_size": 128},
        "electra-base": {"embedding_size": 0, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        "electra-large": {
            "embedding_size": 0, "num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    },
    architectures={},
    known_extra_tensors=(r"embeddings\.(position_ids|token_type_ids)$", r"^generator_lm_head\.weight$"),
)  # fmt: skip
