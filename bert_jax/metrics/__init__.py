"""Metrics: sums over examples, and the scores that follow from them."""
