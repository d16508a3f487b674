"""Text without labels: preparing corpora, and the stream of masked batches for pre-training."""
