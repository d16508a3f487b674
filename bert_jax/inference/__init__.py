"""Inference: `Model`, which `bert_jax.load` returns, and one file for each of its kinds of answer."""
