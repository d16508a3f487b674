"""BERT in JAX: pre-train, fine-tune and use BERT encoders on a laptop, a GPU or a TPU slice."""

from importlib import import_module

__version__ = "0.1.0"
# Where each name is defined. Lazy, so that `import bert_jax` and `bert-jax --help` do not wait for JAX.
DEFINED = {
    "Classifier": "bert_jax.inference.classifier",
    "Embedder": "bert_jax.inference.embedder",
    "Encoder": "bert_jax.inference.encoder",
    "Index": "bert_jax.search.index",
    "MaskedLM": "bert_jax.inference.masked_lm",
    "QuestionAnswerer": "bert_jax.inference.question_answerer",
    "Reranker": "bert_jax.inference.reranker",
    "Tagger": "bert_jax.inference.tagger",
    "finetune": "bert_jax.runs.finetune",
    "fit": "bert_jax.runs.fit",
    "load": "bert_jax.inference.load",
    "open_vectors": "bert_jax.search.vector_shards",
}
__all__ = list(DEFINED)


def __getattr__(name: str):
    if name in DEFINED:
        return getattr(import_module(DEFINED[name]), name)
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
