"""BGE-M3: a vector of a text, a sparse one and vectors of its tokens from one pass, by the names of FlagEmbedding."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.inference.computations import ThreeVectors
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.max_sim import max_sim_matrix
from bert_jax.inference.multi_vector_embedder import MultiVectorEmbedder
from bert_jax.inference.reranker import as_pair
from bert_jax.inference.runner import ModelInputs
from bert_jax.inference.sparse_embedder import SparseEmbedder
from bert_jax.inference.sparse_vectors import SparsePipeline, stack_vectors
from bert_jax.inference.streaming import check_batch_options, map_texts
from bert_jax.inference.text_vectors import EmbeddingPipeline, PromptedPipeline, PromptText
from bert_jax.inference.token_vectors import TokenVectorPipeline

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SCORES = ("dense", "sparse", "colbert")  # in the order of their weights
FUSED = ("sparse+dense", "colbert+sparse+dense")


class M3Vectors(NamedTuple):
    """The vectors [N, D] of texts, their sparse vectors [N, V], and for each text the vectors [T, D] of its tokens."""

    dense_vecs: np.ndarray
    lexical_weights: "csr_array"
    colbert_vecs: list[np.ndarray]


class M3Embedder(Embedder):
    """An `Embedder` whose states also give a sparse vector of a text and vectors of its tokens (BGE-M3).

    `encode` gives the dense vectors alone. `sparse_embedder` and `multi_vector_embedder` are the other two, with the
    same weights in memory: as arguments of an index, or for their own methods.
    """

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        return layout.m3 is not None

    @classmethod
    def load(cls, path, **settings: Any) -> Self:
        """Open a directory with the two layers of BGE-M3; `settings` are those of `Encoder.load`.

        >>> bert_jax.M3Embedder.load(DIR).encode(["the cat", "the mat"]).shape
        (2, 8)
        """
        return super(Embedder, cls).load(path, **settings)

    @cached_property
    def sparse_embedder(self) -> SparseEmbedder:
        return self._share(SparseEmbedder)

    @cached_property
    def multi_vector_embedder(self) -> MultiVectorEmbedder:
        return self._share(MultiVectorEmbedder)

    def _share(self, model_class: Any) -> Any:
        model = model_class(self.layout.m3_with(model_class.vectors), self.engine, self._tokenizer)
        model.directory = self.directory
        return model

    def encode_all(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> M3Vectors:  # fmt: skip
        """Return all three vectors of the texts of a list, each read once.

        The arguments are those of `Embedder.encode`.

        >>> vectors = model.encode_all(["the cat", "the mat sat"])
        >>> vectors.dense_vecs.shape, vectors.lexical_weights.shape, [v.shape for v in vectors.colbert_vecs]
        ((2, 8), (2, 12), [(3, 8), (4, 8)])
        """
        check_batch_options(batch_size, show_progress_bar)
        pipeline = M3Pipeline(self, prompt_name if prompt is None else PromptText(prompt))
        texts = [inputs] if isinstance(inputs, str) else list(inputs) if isinstance(inputs, tuple) else inputs
        results = list(map_texts(texts, pipeline, list, batch_size or 0, show_progress_bar))
        dense, sparse, tokens = zip(*results, strict=True) if results else ((), (), ())
        vectors = np.stack(dense) if dense else np.zeros((0, self.layout.vector_size), np.float32)
        return M3Vectors(vectors, stack_vectors(sparse, self.config.vocab_size), [*tokens])

    def compute_score(
        self, sentence_pairs: Any, weights_for_different_modes: Sequence[float] = (1.0, 1.0, 1.0),
        batch_size: int | None = None, show_progress_bar: bool | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the scores of each pair (query, document): "dense", the cosine, "sparse", the inner product,
        "colbert", the mean over the query's tokens of their highest inner product with one of the document's, and their
        weighted means, "sparse+dense" and "colbert+sparse+dense".

        `weights_for_different_modes` are those of the dense, the sparse and the colbert score. A list of pairs gives
        arrays, one pair numbers. `batch_size` counts pairs, and `show_progress_bar` is that of `Embedder.encode`.

        >>> sorted(model.compute_score(("the cat", "the mat")))
        ['colbert', 'colbert+sparse+dense', 'dense', 'sparse', 'sparse+dense']
        """
        check_batch_options(batch_size, show_progress_bar)
        weights = check_mode_weights(weights_for_different_modes)
        pipeline = M3Pipeline(self)

        def score_chunk(chunk: Sequence) -> Iterator[np.ndarray]:
            pairs = [as_pair(item) for item in chunk]
            texts = [*chain.from_iterable(pairs)]
            if wrong := [text for text in texts if not isinstance(text, str)]:
                raise BertJaxError(f"expected pairs (query, document) of texts, not {wrong[0]!r:.60}")
            texts = [*dict.fromkeys(texts)]
            vectors = dict(zip(texts, pipeline(texts), strict=True))
            return (score_pair(vectors[query], vectors[document]) for query, document in pairs)

        if (
            isinstance(sentence_pairs, list)
            and len(sentence_pairs) == 2
            and isinstance(sentence_pairs[0], str)
        ):
            sentence_pairs = tuple(sentence_pairs)
        rows = map_texts(sentence_pairs, score_chunk, list, batch_size or 0, show_progress_bar)
        if isinstance(sentence_pairs, tuple):
            return {name: float(score) for name, score in fuse(rows, weights).items()}
        return fuse(np.array(list(rows), np.float32).reshape(-1, len(SCORES)), weights)


class M3Pipeline(PromptedPipeline[tuple]):
    """Computes the three vectors of each of a list of texts."""

    def __init__(self, model: M3Embedder, prompt: str | PromptText | None = None):
        dense, sparse = EmbeddingPipeline(model), SparsePipeline(model.sparse_embedder)
        tokens = TokenVectorPipeline(model.multi_vector_embedder)
        self.pipelines: list[Any] = [dense, sparse, tokens]
        computations: list[Any] = [pipeline.computation for pipeline in self.pipelines]
        super().__init__(model, ThreeVectors(*computations), prompt, "truncate", None)

    def postprocess(self, inputs: ModelInputs, outputs: list) -> Iterator[tuple]:
        of_pipelines = zip(self.pipelines, zip(*outputs, strict=True), strict=True)
        return zip(
            *(pipeline.postprocess(inputs, [*values]) for pipeline, values in of_pipelines), strict=True
        )


def score_pair(query: tuple, document: tuple) -> np.ndarray:
    """Return the scores of a query and a document, each given as its three vectors."""
    _, here, there = np.intersect1d(query[1].ids, document[1].ids, True, return_indices=True)
    (tokens,) = max_sim_matrix([query[2]], [document[2]], mean=True)[0]
    return np.array(
        [query[0] @ document[0], query[1].weights[here] @ document[1].weights[there], tokens], np.float32
    )


def fuse(scores: np.ndarray, weights: np.ndarray) -> dict[str, Any]:
    """Return the scores [..., 3] by their names, and their weighted means."""
    means = {
        name: (scores[..., :count] @ weights[:count] / weights[:count].sum()).astype(np.float32)
        for count, name in enumerate(FUSED, start=2)
    }
    return {name: scores[..., n] for n, name in enumerate(SCORES)} | means


def check_mode_weights(weights: Any) -> np.ndarray:
    """Return the weights of the three scores; the dense and the sparse one may not both be 0."""
    if isinstance(weights, str) or not isinstance(weights, Sequence | np.ndarray) or len(weights) != 3:
        raise BertJaxError(
            f"weights_for_different_modes must be three numbers, of the scores {', '.join(SCORES)}, not {weights!r:.60}"
        )
    for weight in weights:
        check_number(weight, "weights_for_different_modes", allowed=Range(0))
    if not weights[0] + weights[1] > 0:
        raise BertJaxError(
            "weights_for_different_modes are 0 for dense and sparse; give one of them a weight"
        )
    return np.array(weights, np.float32)
