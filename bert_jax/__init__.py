"""BERT in JAX: pre-train, fine-tune and use BERT encoders on a laptop, a GPU or a TPU slice."""

from importlib import import_module

__version__ = "0.1.0"
# Where each name is defined. Lazy, so that `import bert_jax` and `bert-jax --help` do not wait for JAX.
DEFINED = {
    "Answer": "bert_jax.inference.question_answerer",
    "Classifier": "bert_jax.inference.classifier",
    "Embedder": "bert_jax.inference.embedder",
    "Encoder": "bert_jax.inference.encoder",
    "Filled": "bert_jax.inference.masked_lm",
    "Index": "bert_jax.search.index",
    "Label": "bert_jax.inference.classifier",
    "MaskedLM": "bert_jax.inference.masked_lm",
    "PseudoLogLikelihood": "bert_jax.inference.masked_lm",
    "QuestionAnswerer": "bert_jax.inference.question_answerer",
    "Ranked": "bert_jax.inference.reranker",
    "Reranker": "bert_jax.inference.reranker",
    "Span": "bert_jax.inference.tagger",
    "Tagger": "bert_jax.inference.tagger",
    "finetune": "bert_jax.runs.finetune",
    "train": "bert_jax.runs.train",
    "load": "bert_jax.inference.load",
    "open_vectors": "bert_jax.search.vector_shards",
}
__all__ = [
    "Answer",
    "Classifier",
    "Embedder",
    "Encoder",
    "Filled",
    "Index",
    "Label",
    "MaskedLM",
    "PseudoLogLikelihood",
    "QuestionAnswerer",
    "Ranked",
    "Reranker",
    "Span",
    "Tagger",
    "finetune",
    "train",
    "load",
    "open_vectors",
]


def __getattr__(name: str):
    if name in DEFINED:
        return getattr(import_module(DEFINED[name]), name)
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
