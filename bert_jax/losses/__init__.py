"""Losses as (sum, weight) pairs: of predictions, of embeddings, of rankings, of distillation."""
