"""Work on many machines, by Ray: predictions, vectors and corpora of inputs in shards."""
