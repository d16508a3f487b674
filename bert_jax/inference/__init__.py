"""Inference: `Model`, which bert_jax.load opens, and what it answers, one file each."""
