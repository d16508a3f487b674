"""Our parameters and their published tensors: a `ParameterMapping` names both sides and converts both ways.

A family lists its parts with the functions below, one for each kind of layer.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bert_jax.models.encoder_config import EncoderConfig

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class ParameterMapping:
    """One parameter of ours, at `path` ("encoder/embeddings/words"), and its published tensors.

    A published name with {i} stands for one tensor per group of layers; we keep these tensors stacked. A published
    table may begin with `before` rows that we leave out; ours may end with `after` rows of padding.
    """

    path: str
    tensor_names: tuple[str, ...]
    join: Callable[[Arrays], np.ndarray] = lambda arrays: arrays[0]
    split: Callable[[np.ndarray], Arrays] = lambda array: [array]
    per_entry: bool = False  # one row for each entry of the vocabulary
    per_position: bool = False
    leading_rows: int = 0
    padding_rows: int = 0
    # The first layer in which it is published. Nothing reads it in the layers below, where ours is ones.
    first_layer: int = 0

    @property
    def layered(self) -> bool:
        return "{i}" in self.tensor_names[0]

    def all_tensor_names(self, groups: int) -> list[str]:
        numbers = range(self.first_layer, groups) if self.layered else range(1)
        return [name.format(i=i) for i in numbers for name in self.tensor_names]

    def tensor_shapes(self, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the published shapes of one layer's tensors, given the shape of ours; nothing is allocated."""
        rows, *rest = shape[1:] if self.layered else shape
        array = np.broadcast_to(np.float32(0), (rows + self.leading_rows - self.padding_rows, *rest))
        return [part.shape for part in self.split(array)]

    def to_parameter(self, arrays: Arrays) -> np.ndarray:
        n = len(self.tensor_names)
        if self.layered:
            layers = [self.join(arrays[i : i + n]) for i in range(0, len(arrays), n)]
            return np.stack([np.ones_like(layers[0])] * self.first_layer + layers)
        return pad_rows(self.join(arrays)[self.leading_rows :], 0, self.padding_rows)

    def to_tensors(self, array: np.ndarray) -> Arrays:
        if self.layered:
            return [theirs for layer in array[self.first_layer :] for theirs in self.split(layer)]
        return self.split(pad_rows(array[: len(array) - self.padding_rows], self.leading_rows, 0))


def pad_rows(array: np.ndarray, before: int, after: int) -> np.ndarray:
    if not before and not after:
        return array
    return np.pad(array, [(before, after)] + [(0, 0)] * (array.ndim - 1))


def linear(path: str, tensor: str, bias: bool = True) -> list[ParameterMapping]:
    # torch keeps a linear layer as [out, in].
    weight = ParameterMapping(f"{path}/kernel", (f"{tensor}.weight",), lambda a: a[0].T, lambda a: [a.T])
    return [weight, ParameterMapping(f"{path}/bias", (f"{tensor}.bias",))][: 1 + bias]


def layer_norm(path: str, tensor: str, bias: bool = True) -> list[ParameterMapping]:
    return [
        ParameterMapping(f"{path}/scale", (f"{tensor}.weight",)),
        ParameterMapping(f"{path}/bias", (f"{tensor}.bias",)),
    ][: 1 + bias]


def embeddings(config: EncoderConfig) -> list[ParameterMapping]:
    """The embeddings and their LayerNorm, by the names that BERT gave them and most families have kept."""
    words, positions, token_types = (
        f"embeddings.{part}_embeddings.weight" for part in ("word", "position", "token_type")
    )
    parts = [ParameterMapping("encoder/embeddings/words", (words,), per_entry=True)]
    if config.positions in ("learned", "decoder"):
        parts.append(ParameterMapping("encoder/embeddings/positions", (positions,), per_position=True))
    if config.type_vocab_size:
        parts.append(ParameterMapping("encoder/embeddings/token_types", (token_types,)))
    return parts + layer_norm("encoder/embeddings/norm", "embeddings.LayerNorm")


def masked_lm(
    transform: str, norm: str, decoder: str, bias: str, biased: bool = True
) -> list[ParameterMapping]:
    """The head of a masked LM; `biased` says whether the two layers before the decoder have biases."""
    return [
        *linear("mlm/transform", transform, biased),
        *layer_norm("mlm/norm", norm, biased),
        ParameterMapping("mlm/decoder", (f"{decoder}.weight",), per_entry=True),
        ParameterMapping("mlm/bias", (bias,), per_entry=True),
    ]


def gated(config: EncoderConfig, path: str, tensors: list[str]) -> ParameterMapping:
    """The activated part and the gate of a feed-forward, published separately or stacked in one tensor."""
    D, F = config.hidden_size, config.intermediate_size
    return ParameterMapping(
        f"{path}/kernel",
        tuple(f"{name}.weight" for name in tensors),
        lambda arrays: np.concatenate(arrays).T.reshape(D, 2, F),
        lambda array: np.split(array.reshape(D, 2 * F).T, len(tensors)),
    )


def fused_qkv(config: EncoderConfig, path: str, tensors: list[str]) -> list[ParameterMapping]:
    """Query, key and value, published separately or stacked in one tensor."""
    return projection(config, path, tensors, config.num_attention_heads)


def projection(config: EncoderConfig, path: str, tensors: list[str], heads: int) -> list[ParameterMapping]:
    """Projections to so many heads, published separately or stacked in one tensor; ours are stacked."""
    D, K = config.hidden_size, config.head_size
    parts = [
        ParameterMapping(
            f"{path}/kernel",
            tuple(f"{name}.weight" for name in tensors),
            lambda arrays: np.concatenate(arrays).T.reshape(D, -1, heads, K),
            lambda array: np.split(array.reshape(D, -1).T, len(tensors)),
        ),
        ParameterMapping(
            f"{path}/bias",
            tuple(f"{name}.bias" for name in tensors),
            lambda arrays: np.concatenate(arrays).reshape(-1, heads, K),
            lambda array: np.split(array.reshape(-1), len(tensors)),
        ),
    ]
    return parts[: 1 + config.bias]


def grouped_qkv(config: EncoderConfig, path: str, tensors: list[str]) -> list[ParameterMapping]:
    """Query, key and value, published separately; several heads for queries may share one for keys and values."""
    if not config.num_key_value_heads:
        return fused_qkv(config, f"{path}/qkv", tensors)
    query, *shared = tensors
    return [
        *projection(config, f"{path}/query", [query], config.num_attention_heads),
        *projection(config, f"{path}/key_value", shared, config.num_key_value_heads),
    ]


def attention_output(config: EncoderConfig, path: str, tensor: str) -> list[ParameterMapping]:
    """The linear layer after attention; our kernel has separate axes for heads and head size."""
    D, H, K = config.hidden_size, config.num_attention_heads, config.head_size
    weight = ParameterMapping(
        f"{path}/kernel",
        (f"{tensor}.weight",),
        lambda arrays: arrays[0].T.reshape(H, K, D),
        lambda array: [array.reshape(D, D).T],
    )
    return [weight, ParameterMapping(f"{path}/bias", (f"{tensor}.bias",))][: 1 + config.bias]
