"""The inputs of an exported model, by the names that other programs expect, and the head whose logits it returns."""

from bert_jax.hub.layout import Layout
from bert_jax.inference.encoder import CLASS_HEADS, class_name_for


def input_names(layout: Layout) -> list[str]:
    """Return the names of the inputs; models of one segment type or none do not read segments."""
    segments = layout.config.type_vocab_size > 1
    return ["input_ids", "attention_mask", *["token_type_ids"] * segments]


def exported_head(layout: Layout) -> str | None:
    """Return the head whose logits are returned: the one that `bert_jax.load` would use, or else the last."""
    if layout.embedder or not layout.heads:
        return None
    used = CLASS_HEADS.get(class_name_for(layout), ())
    return next((head for head in reversed(layout.heads) if head in used), layout.heads[-1])
