"""Data: tokenized corpora on disk, plans of examples over them, reproducible masked batches, and labelled examples."""
