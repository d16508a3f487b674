"""What a model can be asked to compute for the texts of a batch; an engine computes it."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bert_jax.hub.sentence_transformers import Projection


@dataclass(frozen=True)
class HeadLogits:
    """The logits of a head; `with_vectors`, (logits, the mean of the hidden states, normalized to length 1)."""

    head: str
    labels: int
    with_vectors: bool = False


@dataclass(frozen=True)
class HiddenStates:
    """The hidden states of the last layer, [L, D]."""


@dataclass(frozen=True)
class LayerStates:
    """The hidden states of some layers, [layers, L, D]; layer 0 is the embeddings.

    The last layer has the encoder's final normalization, if the encoder has one.
    """

    layers: tuple[int, ...]


@dataclass(frozen=True)
class AttentionWeights:
    """The attention weights of some layers, [layers, H, L, L]; layer 0 is the first layer after the embeddings."""

    layers: tuple[int, ...]


@dataclass(frozen=True)
class PooledStates:
    """One vector for a text, from its hidden states."""

    pooling: str
    normalize: bool = False
    projection: Projection | None = None


class SparseVector(NamedTuple):
    """The entries of a vector that are not 0."""

    ids: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True)
class SparseVectors:
    """One vector [V] for a text, pooled from the logits of the masked language model."""

    pooling: str
    activation: str

    def keep(self, vector: np.ndarray) -> SparseVector:
        """Return what is kept of a vector until those of all texts are there."""
        ids = np.flatnonzero(vector).astype(np.int32)
        return SparseVector(ids, vector[ids])


@dataclass(frozen=True)
class TokenWeights:
    """A weight for each token of a text, [L]."""


@dataclass(frozen=True)
class TokenVectors:
    """A vector for each token of a text, [L, D]."""

    projection: Projection | None
    normalize: bool


@dataclass(frozen=True)
class QueryTokenVectors(TokenVectors):
    """The same where only the first tokens are attended to, as many as the array `attended` of the batch says."""


@dataclass(frozen=True)
class ThreeVectors:
    """(the vector of a text, the weights of its tokens, their vectors), from the same hidden states."""

    dense: PooledStates
    sparse: TokenWeights
    tokens: TokenVectors


@dataclass(frozen=True)
class MaskFillings:
    """(probabilities, ids) of the `top` tokens at each of the target positions."""

    top: int


@dataclass(frozen=True)
class LogLikelihoods:
    """The log probability of each of the `targets` at its position."""


@dataclass(frozen=True)
class WithAdapters:
    """A computation in which each row has an adapter, whose number is in the array `adapter` of the batch."""

    computation: "Computation"


Computation = (
    WithAdapters
    | HeadLogits
    | HiddenStates
    | LayerStates
    | AttentionWeights
    | PooledStates
    | SparseVectors
    | TokenWeights
    | TokenVectors
    | ThreeVectors
    | MaskFillings
    | LogLikelihoods
)
# Texts do not share rows for these. The first two have an axis of layers before that of tokens, the third a mask of its
# own. The others have an axis of the vocabulary for each target or text, and a row has room for many texts.
ROW_FOR_EACH = (
    LayerStates, AttentionWeights, QueryTokenVectors, SparseVectors, MaskFillings, LogLikelihoods
)  # fmt: skip
POOLER = "pooler"  # BERT's own pooling, beside those of `POOLINGS`
