"""The heads of models/heads.py as ONNX nodes, and which of them an exported model returns.

Each function maps `(scope, states, axes)` to the outputs of the graph by name: `states` are what the head reads, and
`axes` are those of the states without the last.
"""

from collections.abc import Callable

from bert_jax.export.graph import Output, Scope, Value
from bert_jax.export.layers import ACTIVATIONS, dense, norm
from bert_jax.hub.layout import Layout
from bert_jax.hub.onnx_files import ANSWER_LOGITS, LOGITS
from bert_jax.inference.encoder import CLASS_HEADS, class_name_for

Outputs = dict[str, Output]


def exported_head(layout: Layout) -> str | None:
    """Return the head whose logits are returned: the one that `bert_jax.load` would use, or else the last."""
    if layout.embedder or not layout.heads:
        return None
    used = ("mlm",) if layout.sparse else CLASS_HEADS.get(class_name_for(layout), ())
    return next((head for head in reversed(layout.heads) if head in used), layout.heads[-1])


def linear_head(scope: Scope, states: Value, axes: tuple[str, ...]) -> Outputs:
    """One dense layer, the head of most models."""
    labels = scope.params["dense"]["kernel"].shape[-1]
    return {LOGITS: Output(dense(scope / "dense", states), (*axes, labels))}


def answer_head(scope: Scope, states: Value, axes: tuple[str, ...]) -> Outputs:
    """The logits of the answer's start and end."""
    both = dense(scope / "dense", states)
    parts = (scope.add("Gather", both, scope.index(i), axis=-1) for i in range(len(ANSWER_LOGITS)))
    return {name: Output(logits, axes) for name, logits in zip(ANSWER_LOGITS, parts, strict=True)}


def masked_lm_head(scope: Scope, states: Value, axes: tuple[str, ...]) -> Outputs:
    """Logits over the vocabulary."""
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


def replaced_head(scope: Scope, states: Value, axes: tuple[str, ...]) -> Outputs:
    """The logits of ELECTRA's discriminator, above 0 where a token looks replaced."""
    transformed = dense(scope / "transform", states)
    activated = ACTIVATIONS[scope.config.hidden_act](scope / "transform", transformed)
    logits = dense(scope / "dense", activated)
    return {LOGITS: Output(scope.add("Squeeze", logits, scope.integers(-1)), axes)}


def replaced_in_context_head(scope: Scope, states: Value, axes: tuple[str, ...]) -> Outputs:
    """DeBERTa-v3's head for replaced tokens: it adds the [CLS] state of the text to the state of each token."""
    text_states = scope.add("Slice", states, scope.integers(0), scope.integers(1), scope.integers(1))
    summed = scope.add("Add", states, text_states)
    return replaced_head(scope, norm(scope / "norm", summed), axes)


HEAD_BUILDERS: dict[str, Callable[[Scope, Value, tuple[str, ...]], Outputs]] = {
    "mlm": masked_lm_head,
    "answer": answer_head,
    "replaced": replaced_head,
    "replaced_in_context": replaced_in_context_head,
    **dict.fromkeys(("nsp", "sop", "tag", "classify"), linear_head),
    **dict.fromkeys(("classify_mean", "classify_cls", "compare_mean", "compare_cls"), linear_head),
}
