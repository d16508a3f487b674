"""The names of the inputs and outputs of an exported model, which other programs expect."""

from bert_jax.hub.layout import Layout

HIDDEN_STATES, EMBEDDING, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
ANSWER_LOGITS = ("start_logits", "end_logits")


def input_names(layout: Layout) -> list[str]:
    """Return the names of the inputs; models of one segment type or none do not read segments."""
    segments = layout.config.type_vocab_size > 1
    return ["input_ids", "attention_mask", *["token_type_ids"] * segments]
