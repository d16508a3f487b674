"""The cost of computing a model: floating-point operations of its matrix products, and memory.

Operations are counted as usual for MFU: two operations per multiply-add, twice the forward pass for the backward pass,
and nothing for softmax, norms, dropout, or what remat recomputes.
"""

from bert_jax.models.encoder_config import EncoderConfig


def global_share(config: EncoderConfig) -> float:
    """Return the share of the layers that have global attention."""
    layers, local = config.num_hidden_layers, config.local_attention
    return -(-layers // local.every) / layers if local.window else 1.0


def layer_flops(config: EncoderConfig, tokens: float, length: float) -> float:
    """Return the operations of one layer in the forward pass, the mean over all layers if some have local attention.

    They are the dense layers of attention and feed-forward, scores and weighted sums of values, and the products with
    distance embeddings.
    """
    D, F, local, r = config.hidden_size, config.intermediate_size, config.local_attention, config.relative
    if local.window:  # the mean over global and local layers
        share = global_share(config)
        length = share * length + (1 - share) * min(length, 2 * local.window + 1)
    distances = 0 if r.is_bias else len(r.terms) * 2 * min(length, r.span)
    shared = config.key_value_heads / config.num_attention_heads
    dense = 2 * ((2 + 2 * shared) * D * D + (3 if config.gated else 2) * D * F)
    return tokens * (dense + 4 * length * D + 2 * distances * D)


def activation_bytes(config: EncoderConfig) -> int:
    """Return the bytes of activations that the backward pass needs for each token and layer, at least.

    They are the input of the layer and, without remat, also query, key, value, three more states that products or norms
    read, and the activations of the feed-forward.
    """
    D, F = config.hidden_size, config.intermediate_size
    numbers = 7 * D + (3 if config.gated else 2) * F if config.remat == "none" else D
    return numbers * (2 if config.computed_dtype == "bfloat16" else 4)


def pre_training_flops(config: EncoderConfig, rows: float, length: float, targets: float) -> float:
    """Return the operations of a step, forward and backward: `rows` rows of `length` tokens, `targets` masked in each.

    >>> round(pre_training_flops(EncoderConfig(), 256, 512, 77) / 1e12, 1)
    77.1
    """
    D, E, V = config.hidden_size, config.embedding_width, config.vocab_size
    # The enhanced mask decoder applies the last layer twice more.
    layers = config.num_hidden_layers + 2 * (config.positions == "decoder")
    encoder = layers * layer_flops(config, rows * length, length)
    encoder += rows * length * 2 * config.embedding_size * D
    masked_lm = rows * targets * 2 * (D * E * config.mlm_transform + E * V)
    next_sentence = rows * 2 * (D * D + 2 * D)
    return 3 * (encoder + masked_lm + next_sentence)
