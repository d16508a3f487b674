"""BERT in JAX: pre-train, fine-tune and use BERT encoders on a laptop, a GPU or a TPU slice."""

__version__ = "0.1.0"
__all__ = ["Index", "load", "open_vectors"]


def __getattr__(name: str):
    # Lazy, so that `import bert_jax` and `bert-jax --help` do not wait for JAX.
    if name == "load":
        from bert_jax.inference.model import load

        return load
    if name == "open_vectors":
        from bert_jax.search.shards import open_vectors

        return open_vectors
    if name == "Index":
        from bert_jax.search.index import Index

        return Index
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")
