"""What a model costs to compute, in floating-point operations of its matrix products.

Counted as everybody counts for MFU: two operations a multiply-add, the backward pass twice the forward, and nothing
for softmax, norms, dropout, or what remat computes again.
"""

from bert_jax.models.config import EncoderConfig


def layer_flops(config: EncoderConfig, tokens: float, length: float) -> float:
    """Forward, one layer: query, key, value, output and the feed-forward, then scores and their sum over values."""
    D, F = config.hidden_size, config.feed_forward
    return tokens * (2 * (4 * D * D + 2 * D * F) + 4 * length * D)


def pre_training_flops(config: EncoderConfig, rows: float, length: float, targets: float) -> float:
    """Forward and backward of one step: `rows` rows of `length` with `targets` masked tokens each.

    >>> round(pre_training_flops(EncoderConfig(), 256, 512, 77) / 1e12, 1)
    77.1
    """
    D, V = config.hidden_size, config.vocab_size
    encoder = config.layers * layer_flops(config, rows * length, length)
    masked_lm = rows * targets * 2 * (D * D + D * V)
    next_sentence = rows * 2 * (D * D + 2 * D)
    return 3 * (encoder + masked_lm + next_sentence)
