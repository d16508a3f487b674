"""The head whose logits an exported model returns."""

from bert_jax.hub.layout import Layout
from bert_jax.inference.encoder import CLASS_HEADS, class_name_for


def exported_head(layout: Layout) -> str | None:
    """Return the head whose logits are returned: the one that `bert_jax.load` would use, or else the last."""
    if layout.embedder or not layout.heads:
        return None
    used = CLASS_HEADS.get(class_name_for(layout), ())
    return next((head for head in reversed(layout.heads) if head in used), layout.heads[-1])
