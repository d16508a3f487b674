"""RoBERTa: BERT's encoder, other heads, and a position table that keeps position 0 in row padding id + 1."""

from dataclasses import replace

from bert_jax.hub.families import bert
from bert_jax.hub.family import LABEL_HEADS
from bert_jax.hub.parameter_mapping import linear, masked_lm

FAMILY = replace(
    bert.FAMILY,
    model_type="roberta",
    class_name="Roberta",
    prefix="roberta",
    new_models=False,
    fields=bert.FIELDS | {"vocab_size": 50265},
    heads=LABEL_HEADS | {
        "mlm": masked_lm("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"),
        # The classifier has its own pooler; a file may still have the encoder's, which nothing reads.
        "classify": [*linear("pooler/dense", "classifier.dense"), *linear("classify/dense", "classifier.out_proj")],
    },
    architectures={},
    known_extra_tensors=(r"embeddings\.(position_ids|token_type_ids)$", r"^lm_head\.decoder\.(weight|bias)$"),
    position_offset=2,
)  # fmt: skip
