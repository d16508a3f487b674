"""Sparse embedders: weights of the entries of the vocabulary, by the names that sentence-transformers gives them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.hub.layout import Layout
from bert_jax.hub.sparse_encoder import QUERY_WEIGHTS, SparseSettings
from bert_jax.inference.engine import open_directory
from bert_jax.inference.prompted_encoder import PromptedEncoder
from bert_jax.inference.sparse_vectors import QueryWeights, SparsePipeline, require_sparse, stack_vectors
from bert_jax.inference.streaming import check_batch_options, map_texts
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS, PromptText

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class SparseEmbedder(PromptedEncoder):
    """Turns texts into vectors of which few numbers are not 0: the weights of words that a text is about (SPLADE).

    Vectors are arrays of SciPy, `csr_array` [N, V], whose columns are the ids of the tokenizer.
    """

    vectors = "sparse"

    @classmethod
    def accepts(cls, layout: Layout) -> bool:
        return bool(layout.sparse or layout.m3) or "mlm" in layout.heads

    @classmethod
    def load(
        cls, path, *, dtype: str = "float32", attention: str = "auto", remat: str = "none", tokenizer: bool = True,
        engine: str = "jax", batch_invariant: bool = False,
    ) -> Self:  # fmt: skip
        """Open a sparse embedder, the sparse vectors of BGE-M3, or any masked language model, whose logits are then
        pooled by their maximum.

        The other arguments are those of `Encoder.load`.

        >>> bert_jax.SparseEmbedder.load(DIR).encode(["the cat", "the mat"]).shape
        (2, 12)
        """
        directory = open_directory(path, engine, dtype, attention, remat, batch_invariant)
        if directory.layout.sparse or directory.layout.m3 or not cls.accepts(directory.layout):
            return super().load(directory, tokenizer=tokenizer)
        layout = directory.layout.embedding_with(SparseSettings())
        model = cls.from_directory(replace(directory, layout=layout), tokenizer)
        model.directory = None
        return model

    @cached_property
    def query_weights(self) -> QueryWeights:
        weights = self.engine.module_params(QUERY_WEIGHTS)["weight"]
        return QueryWeights(
            require_sparse(self), self.tokenizer, np.asarray(weights), self.config.max_position_embeddings
        )

    def encode(  # type: ignore[override]  # not the dense vectors of an encoder
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, batch_size: int | None = None,
        show_progress_bar: bool | None = None, max_active_dims: int | None = None, *, long_texts: str = "truncate",
    ) -> "csr_array | Iterator[csr_array]":  # fmt: skip
        """Return an array [N, V] for a list, [1, V] for a text, or an iterator of such for any other iterable.

        `prompt_name`, `prompt`, `batch_size` and `show_progress_bar` are as in `Embedder.encode`. `max_active_dims`
        keeps so many of the largest weights of each text. Long texts are truncated, with a warning; with
        `long_texts="windows"` they are read in windows, whose weights are pooled like those of tokens.

        >>> weights = model.encode("the cat", max_active_dims=2)
        >>> weights.shape, weights.nnz
        ((1, 12), 2)
        """
        return self._map(
            partial(SparsePipeline, self), inputs, prompt_name, prompt, batch_size, show_progress_bar,
            max_active_dims=max_active_dims, long_texts=long_texts,
        )  # fmt: skip

    def _map(
        self, pipeline: Callable[..., Callable], inputs: Any, prompt_name: str | None, prompt: str | None,
        batch_size: int | None = None, show_progress_bar: bool | None = None, **settings: Any,
    ) -> "csr_array | Iterator[csr_array]":  # fmt: skip
        check_batch_options(batch_size, show_progress_bar)
        embed = pipeline(prompt=prompt_name if prompt is None else PromptText(prompt), **settings)
        stack = partial(stack_vectors, entries=self.layout.vector_size)
        inputs = (
            [inputs] if isinstance(inputs, str) else list(inputs) if isinstance(inputs, tuple) else inputs
        )
        vectors = map_texts(inputs, embed, stack, batch_size or 0, show_progress_bar)
        return (stack([vector]) for vector in vectors) if isinstance(vectors, Iterator) else vectors

    def encode_query(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, **settings: Any
    ) -> "csr_array | Iterator[csr_array]":
        """Return vectors as `encode` does, by default with the model's prompt for queries, if it has one.

        If the directory has weights for queries, the network is not computed: each token has its own weight.

        >>> model.encode_query("the cat").shape
        (1, 12)
        """
        name = self._choose_prompt(prompt_name, prompt, QUERY_PROMPTS)
        if QUERY_WEIGHTS not in self.layout.module_names:
            return self.encode(inputs, name, prompt, **settings)
        return self._map(partial(partial, self.query_weights.embed), inputs, name, prompt, **settings)

    def encode_document(
        self, inputs: Any, prompt_name: str | None = None, prompt: str | None = None, **settings: Any
    ) -> "csr_array | Iterator[csr_array]":
        """Return vectors as `encode` does, by default with the model's prompt for documents, if it has one.

        >>> model.encode_document(["the cat", "the mat"]).shape
        (2, 12)
        """
        return self.encode(
            inputs, self._choose_prompt(prompt_name, prompt, DOCUMENT_PROMPTS), prompt, **settings
        )

    def decode(self, vectors: Any, top_k: int | None = None) -> list[list[tuple[str, float]]]:
        """Return the tokens of each vector with their weights, the `top_k` largest, or all, the largest first.

        >>> [(token, weight)] = model.decode(model.encode("the cat"), top_k=1)[0]
        >>> token in dict(model.decode(model.encode("the cat"))[0])
        True
        """
        if top_k is not None:
            check_number(top_k, "top_k", is_whole=True, allowed=Range(1))
        vectors, decoded, name = self._rows(vectors, "vectors"), [], self.tokenizer.rust.id_to_token
        for start, end in zip(vectors.indptr, vectors.indptr[1:], strict=False):
            ids, weights = vectors.indices[start:end], vectors.data[start:end]
            order = np.argsort(-weights, kind="stable")[:top_k]
            # Rows of the embedding that have no token are shown by their numbers.
            decoded.append([(name(int(ids[n])) or f"[{ids[n]}]", float(weights[n])) for n in order])
        return decoded

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Return the dot product of each vector on one side with each one on the other, [N1, N2].

        >>> model.similarity(model.encode_query("the cat"), model.encode_document(["the cat", "the mat"])).shape
        (1, 2)
        """
        first, second = self._rows(embeddings1, "embeddings1"), self._rows(embeddings2, "embeddings2")
        return (first @ second.T).toarray()

    def intersection(self, embeddings_1: Any, embeddings_2: Any) -> "csr_array":
        """Return what each entry adds to the similarity of one vector [1, V] with each of others [N, V], where it is
        positive.

        >>> shared = model.intersection(model.encode_query("the cat"), model.encode(["the cat", "the mat"]))
        >>> shared.shape
        (2, 12)
        """
        first, second = self._rows(embeddings_1, "embeddings_1"), self._rows(embeddings_2, "embeddings_2")
        if first.shape[0] != 1:
            raise BertJaxError(f"embeddings_1 must be one vector, not {first.shape[0]}")
        shared = second.multiply(first).tocsr()
        shared.data = np.maximum(shared.data, 0)
        shared.eliminate_zeros()
        return shared

    def sparsity(self, embeddings: Any) -> dict[str, float]:
        """Return the mean number of weights that are not 0, and the mean share of those that are.

        >>> sorted(model.sparsity(model.encode(["the cat", "the mat"])))
        ['active_dims', 'sparsity_ratio']
        """
        vectors = self._rows(embeddings, "embeddings")
        active = vectors.nnz / max(1, vectors.shape[0])
        return {"active_dims": active, "sparsity_ratio": 1 - active / vectors.shape[1]}

    def _rows(self, vectors: Any, name: str) -> "csr_array":
        from scipy.sparse import csr_array, issparse

        if issparse(vectors) and vectors.ndim == 2 and vectors.shape[1] == self.layout.vector_size:
            return csr_array(vectors)
        shown = f"an array of the shape {vectors.shape}" if issparse(vectors) else f"{vectors!r:.40}"
        raise BertJaxError(
            f"{name} must be sparse vectors [N, {self.layout.vector_size}], as encode returns them, not {shown}"
        )
