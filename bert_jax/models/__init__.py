"""Models: the configuration, layers, attention and heads of an encoder, as pure functions of (params, batch, rng)."""
