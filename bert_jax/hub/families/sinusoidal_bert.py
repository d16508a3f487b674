"""BERT with sinusoidal position embeddings. Its files are BERT's with the table of positions computed, so that
transformers opens them; `position_embedding_type` tells that the table is no parameter."""

from dataclasses import replace

from bert_jax.hub.families import bert
from bert_jax.models.sinusoids import sinusoidal_table

TYPE = "sinusoidal"
TABLE = "embeddings.position_embeddings.weight"

FAMILY = replace(
    bert.FAMILY,
    model_type="sinusoidal_bert",
    published_type="bert",
    recognizes=lambda published: published.get("position_embedding_type") == TYPE,
    constants={"positions": "sinusoidal"},
    derived_keys=lambda config: {"position_embedding_type": TYPE},
    supported={**bert.FAMILY.supported, "position_embedding_type": (TYPE,)},
    computed_tensors=lambda config: {
        TABLE: sinusoidal_table(config.max_position_embeddings, config.embedding_width)
    },
    known_extra_tensors=(*bert.FAMILY.known_extra_tensors, r"embeddings\.position_embeddings\.weight$"),
)
