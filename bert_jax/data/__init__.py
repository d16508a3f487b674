"""Data: a tokenized corpus on disk, examples planned over it, and masked batches that can be produced
again."""
