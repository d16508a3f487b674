"""How a model turns texts into sparse vectors: by its network or, where queries have weights, by their tokens alone."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS, SparseSettings
from bert_jax.inference.computations import Computation, SparseVector, SparseVectors, TokenWeights
from bert_jax.inference.runner import ModelInputs, Runner
from bert_jax.inference.text_vectors import PromptedPipeline, PromptText, prompt_text
from bert_jax.text.encoding import Encoding
from bert_jax.text.encoding_options import EncodingOptions
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.truncation import WINDOWS_ADVICE, TruncationCounter, TruncationWarner

if TYPE_CHECKING:  # its import takes a tenth of a second
    from scipy.sparse import csr_array

JOINED = {"max": np.maximum, "sum": np.add}  # the windows of a text, as its tokens are pooled


class SparsePipeline(PromptedPipeline[SparseVector]):
    """Computes the vectors of a list of texts, with the settings of `SparseEmbedder.encode`."""

    def __init__(
        self, model: Runner, *, prompt: str | PromptText | None = None, long_texts: str = "truncate",
        max_active_dims: int | None = None, truncated: TruncationCounter | None = None,
    ):  # fmt: skip
        settings = require_sparse(model)
        self.most = check_active_dims(settings, max_active_dims)
        super().__init__(model, sparse_computation(settings), prompt, long_texts, truncated)
        self.join = JOINED[settings.pooling]

    def postprocess(self, inputs: ModelInputs, outputs: list) -> list[SparseVector]:
        if isinstance(self.computation, TokenWeights):
            special = self.model.tokenizer.special
            left_out = (special.cls, special.sep, special.pad, special.unk)
            rows = zip(inputs.rows, outputs, strict=True)
            outputs = [weigh_tokens(row.input_ids, weights, left_out) for row, weights in rows]
        windows = iter(outputs)
        vectors = [[next(windows) for _ in parts] for parts in inputs.parts]
        return [keep_largest(self.join_windows(parts), self.most) for parts in vectors]

    def join_windows(self, parts: list[SparseVector]) -> SparseVector:
        if len(parts) == 1:
            return parts[0]
        ids, positions = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
        weights = np.zeros(len(ids), np.float32)
        self.join.at(weights, positions, np.concatenate([part.weights for part in parts]))
        return SparseVector(ids, weights)


def sparse_computation(settings: SparseSettings) -> Computation:
    """Return what a sparse embedder computes for a text."""
    return TokenWeights() if settings.token_weights else SparseVectors(settings.pooling, settings.activation)


def weigh_tokens(ids: Sequence[int], weights: np.ndarray, left_out: Sequence[int]) -> SparseVector:
    """Return the highest weight of each token, given those at all of its positions.

    >>> vector = weigh_tokens([0, 7, 5, 7, 2], np.array([9, 0.5, 0, 0.25, 9], np.float32), [0, 2])
    >>> vector.ids.tolist(), vector.weights.tolist()
    ([7], [0.5])
    """
    weights, tokens = weights[: len(ids)], np.array(ids, np.int32)
    kept = (weights > 0) & ~np.isin(tokens, left_out)
    own, positions = np.unique(tokens[kept], return_inverse=True)
    highest = np.zeros(len(own), np.float32)
    np.maximum.at(highest, positions, weights[kept])
    return SparseVector(own, highest)


class QueryWeights:
    """Computes the vectors of queries without the network: each token that occurs has its own weight."""

    def __init__(self, settings: SparseSettings, tokenizer: Tokenizer, weights: np.ndarray, longest: int):
        self.settings, self.tokenizer, self.weights = settings, tokenizer, weights
        self.max_length = min(settings.max_length or longest, longest)

    @classmethod
    def open(cls, directory: ModelDirectory) -> "QueryWeights":
        """Open those of a directory, and nothing else of it."""
        layout = directory.layout
        if not (layout.sparse and layout.sparse.query_weights):
            raise BertJaxError(
                f"{directory} has no weights for queries, which it embeds as it does documents"
            )
        (part,) = (part for part in directory.mappings(layout) if part.path.startswith(QUERY_WEIGHTS))
        longest = layout.config.max_position_embeddings
        return cls(layout.sparse, directory.tokenizer, directory.read_parameter(part, 1), longest)

    def embed(
        self, texts: Sequence[str], *, prompt: str | PromptText | None = None, long_texts: str = "truncate",
        max_active_dims: int | None = None, truncated: TruncationCounter | None = None,
    ) -> list[SparseVector]:  # fmt: skip
        EncodingOptions(self.max_length, long_texts)  # refuses other values
        room = self.max_length if long_texts == "truncate" else None
        most, before = check_active_dims(self.settings, max_active_dims), prompt_text(self.settings, prompt)
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise BertJaxError(f"a query is a single text, not {wrong[0]!r:.60}")
        encoded = self.tokenizer.ids([before + text for text in texts])
        counter = truncated or TruncationWarner(self.max_length, WINDOWS_ADVICE)
        counter.count(Encoding(ids[:room], [], [], len(ids) - len(ids[:room])) for ids in encoded)
        return [keep_largest(self.weigh(ids[:room]), most) for ids in encoded]

    def weigh(self, ids: list[int]) -> SparseVector:
        own = np.unique(np.array(ids, np.int32))
        own = own[self.weights[own] != 0]
        return SparseVector(own, self.weights[own])


def require_sparse(model: Runner) -> SparseSettings:
    if model.layout.sparse is None:
        raise BertJaxError(
            f"this model is no sparse embedder but {type(model).__name__}; SparseEmbedder.load opens a masked language "
            "model as one"
        )
    return model.layout.sparse


def check_active_dims(settings: SparseSettings, most: int | None) -> int | None:
    """Return the most entries of a vector that are kept, by default those that the model's directory names."""
    if most is not None:
        check_number(most, "max_active_dims", is_whole=True, allowed=Range(1))
    return settings.max_active_dims if most is None else most


def keep_largest(vector: SparseVector, most: int | None) -> SparseVector:
    """Return the vector with the `most` largest of its weights.

    >>> keep_largest(SparseVector(np.array([3, 5, 8]), np.array([0.5, 0.1, 0.7])), 2).ids.tolist()
    [3, 8]
    """
    if most is None or len(vector.ids) <= most:
        return vector
    kept = np.sort(np.argsort(-np.abs(vector.weights), kind="stable")[:most])
    return SparseVector(vector.ids[kept], vector.weights[kept])


def stack_vectors(vectors: Sequence[SparseVector], entries: int) -> "csr_array":
    """Return vectors as one array [N, V]."""
    from scipy.sparse import csr_array

    ends = np.cumsum([0, *(len(vector.ids) for vector in vectors)])
    ids = np.concatenate([np.zeros(0, np.int32), *(vector.ids for vector in vectors)])
    weights = np.concatenate([np.zeros(0, np.float32), *(vector.weights for vector in vectors)])
    return csr_array((weights, ids, ends), shape=(len(vectors), entries))
