"""BERT in JAX: pre-train, fine-tune and use BERT encoders on a laptop, a GPU or a TPU slice."""

from importlib import import_module

__version__ = "0.1.0"
# Where each name is defined. Lazy, so that `import bert_jax` and `bert-jax --help` do not wait for JAX.
DEFINED = {
    "Index": "bert_jax.search.index",
    "finetune": "bert_jax.runs.finetune",
    "fit": "bert_jax.runs.fit",
    "load": "bert_jax.inference.load",
    "open_vectors": "bert_jax.search.vector_shards",
}
__all__ = ["Index", "finetune", "fit", "load", "open_vectors"]


def __getattr__(name: str):
    if name in DEFINED:
        return getattr(import_module(DEFINED[name]), name)
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
