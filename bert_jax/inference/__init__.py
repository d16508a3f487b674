"""Inference: `Model`, which `bert_jax.load` returns, and one file for each kind of result."""
