"""Text without labels: from prepared corpora to the stream of masked batches."""
