"""The outputs of an exported model, by the names that other programs expect."""

HIDDEN_STATES, EMBEDDING, LOGITS = "last_hidden_state", "sentence_embedding", "logits"
ANSWER_LOGITS = ("start_logits", "end_logits")
