"""Inference: the classes of models that `bert_jax.load` returns, and what computes their results."""
