"""One vector for each text out of the hidden states of its tokens."""

import jax
import jax.numpy as jnp

HIGHEST = jax.lax.Precision.HIGHEST  # a vector of float32 states is one of float32


def mean(real):
    return real / jnp.maximum(count(real), 1)


def mean_sqrt_length(real):
    return real / jnp.sqrt(jnp.maximum(count(real), 1))


def cls(real):
    return real * (place(real) == 1)


def last(real):
    return real * (place(real) == count(real))


def weighted_mean(real):
    """A token weighs as much as its place in the text."""
    weight = real * place(real)
    return weight / jnp.maximum(count(weight), 1)


def place(real):
    return jnp.cumsum(real, -1)


def count(real):
    return real.sum(-1, keepdims=True)


# Which tokens of a text are real [..., L] -> how much the state of each weighs in its vector.
WEIGHTS = {
    "mean": mean,
    "cls": cls,
    "mean_sqrt_len": mean_sqrt_length,
    "weighted_mean": weighted_mean,
    "last": last,
}
POOLINGS = (*WEIGHTS, "max")
ACTIVATIONS = {"none": lambda vectors: vectors, "tanh": jnp.tanh}  # of a projection


def pool(hidden, mask, how: str = "mean", normalize: bool = True):
    """Hidden states [B, L, D] -> a vector for each row [B, D], from its real tokens; of length 1 if `normalize`."""
    hidden, real = hidden.astype(jnp.float32), mask.astype(jnp.float32)
    if how == "max":
        vector = jnp.where(mask[..., None] > 0, hidden, jnp.finfo(jnp.float32).min).max(1)
    else:
        vector = jnp.einsum("bl,bld->bd", WEIGHTS[how](real), hidden, precision=HIGHEST)
    return unit(vector) if normalize else vector


def pool_texts(hidden, batch: dict, how: str):
    """Hidden states [B, L, D] -> a vector for each text, [B, P, D], where rows hold several or not; not by "max"."""
    real = batch["mask"][:, None]
    if "packs" in batch:
        texts = 1 + jnp.arange(batch["cls_positions"].shape[1])
        real = real * (batch["packs"][:, None] == texts[:, None])
    weights = WEIGHTS[how](real.astype(jnp.float32))
    return jnp.einsum("bpl,bld->bpd", weights, hidden.astype(jnp.float32), precision=HIGHEST)


def project(vectors, layer: dict, activation: str):
    """Vectors [..., D] through a dense layer [D, E]."""
    vectors = jnp.matmul(vectors, layer["kernel"].astype(jnp.float32), precision=HIGHEST)
    return ACTIVATIONS[activation](vectors + layer.get("bias", 0.0))


def unit(vectors):
    """The vectors with length 1; those of length 0 stay. Its slope is finite there too, unlike that of a norm."""
    return vectors * jax.lax.rsqrt(jnp.maximum(jnp.square(vectors).sum(-1, keepdims=True), 1e-24))
