"""Models: the encoder's configuration, its layers, attention and heads, as pure functions of (params, batch, rng)."""
