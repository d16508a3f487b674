"""What each token's state weighs in the vector of a text, for arrays of NumPy and of JAX."""


def weighted_mean_weights(real):
    """Weigh each token by its position in the text, from 1."""
    weight = real * positions_from_one(real)
    return weight / count_tokens(weight).clip(1)


def positions_from_one(real):
    return real.cumsum(-1)


def count_tokens(real):
    return real.sum(-1, keepdims=True)


# Functions from the mask of a text's real tokens [..., L] to the weight of each token's state in the vector.
POOLING_WEIGHTS = {
    "mean": lambda real: real / count_tokens(real).clip(1),
    "cls": lambda real: real * (positions_from_one(real) == 1),
    "mean_sqrt_len": lambda real: real / count_tokens(real).clip(1) ** 0.5,
    "weighted_mean": weighted_mean_weights,
    "last": lambda real: real * (positions_from_one(real) == count_tokens(real)),
}
POOLINGS = (*POOLING_WEIGHTS, "max")
