"""The masked LM: logits over the vocabulary."""

from bert_jax.export.activations import ACTIVATIONS
from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.layers import dense, norm
from bert_jax.hub.exported_names import LOGITS


def build(scope: Scope, states: Value, axes: tuple[str, ...]) -> dict[str, Output]:
    c, transform = scope.config, scope / "transform"
    if c.mlm_transform:
        states = ACTIVATIONS[c.mlm_activation or c.hidden_act](transform, dense(transform, states))
        states = norm(scope / "norm", states)
    # Tied weights are stored once, as the embeddings [V, D].
    words = "encoder/embeddings/words" if c.tie_word_embeddings else scope.weight("decoder")
    decoder = scope.add("Transpose", words, perm=[1, 0])
    logits = scope.add("MatMul", states, decoder)
    if c.mlm_transform:
        logits = scope.add("Add", logits, scope.weight("bias"))
    return {LOGITS: Output(logits, (*axes, c.vocab_size))}
