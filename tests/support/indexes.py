"""Small indexes of random documents, whose dense, sparse and token vectors are made of hashes."""

import random
import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from bert_jax.inference.computations import SparseVector
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_manifest import DENSE_ROWS, SPARSE_ROWS, TOKEN_ROWS, IndexedModel, IndexManifest
from bert_jax.search.index_writer import open_writer
from bert_jax.search.late_interaction import TokenQuery, to_whole_numbers
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.ragged_rows import stack_ragged
from bert_jax.search.sparse import pack_rows

VECTOR_WIDTH, VOCABULARY, ACTIVE, TOKEN_WIDTH = 16, 61, 40, 12
MODEL_FACTS = IndexedModel("", "", "", "mean", True, "", "", 64, VECTOR_WIDTH)
SPARSE_FACTS = IndexedModel("", "", "", "max", False, "", "", 64, VOCABULARY, ACTIVE)
TOKEN_FACTS = IndexedModel("", "", "", "maxsim", True, "", "", 64, TOKEN_WIDTH)
INDEX_SETTINGS = IndexManifest(
    MODEL_FACTS, passage_tokens=12, overlap=3, sparse_model=SPARSE_FACTS, multi_vector_model=TOKEN_FACTS
)
DOCUMENT_WORDS = [f"w{n}" for n in range(60)]


def hashed_vectors(texts: Sequence[str], width: int = VECTOR_WIDTH) -> np.ndarray:
    """Any text's own vector, and now and then that of another text."""
    seeds = [int.from_bytes(blake2b(text.encode(), digest_size=2).digest()) % 5000 for text in texts]
    vectors = np.stack([np.random.default_rng(seed).normal(size=width) for seed in seeds])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def sparse_vectors(texts: list[str]) -> list[SparseVector]:
    """A weight for each of DOCUMENT_WORDS in a text; more for a word that comes often."""
    vectors = []
    for text in texts:
        numbers = [int(number) for number in re.findall(r"w(\d+)", text.lower())]
        tokens, counts = np.unique(np.array(numbers, np.int32), return_counts=True)
        vectors.append(SparseVector(tokens, (np.log1p(counts) * (1 + tokens / 7)).astype(np.float32)))
    return vectors


def sparse_rows(texts: list[str]) -> np.ndarray:
    return pack_rows(sparse_vectors(texts), ACTIVE)


def token_vectors(text: str) -> np.ndarray:
    """A vector for each word, near those of the same word in other texts; none for a text without words."""
    words = re.findall(r"\w+", text.lower())
    if not words:
        return np.zeros((0, TOKEN_WIDTH), np.float32)
    own = hashed_vectors([f"{text} {n}" for n in range(len(words))], TOKEN_WIDTH)
    vectors = hashed_vectors(words, TOKEN_WIDTH) + own / 2
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def token_rows(texts: list[str]) -> np.ndarray:
    return stack_ragged([to_whole_numbers(token_vectors(text)) for text in texts])


def random_document(name: str, rng: random.Random) -> Document:
    words = rng.choices(DOCUMENT_WORDS, range(len(DOCUMENT_WORDS), 0, -1), k=rng.randint(1, 60))
    text = "".join(word.capitalize() + rng.choice([" ", " ", ". ", ".\n"]) for word in words)
    return Document(name, rng.choice(["", "w1 w2"]), text)


def change_index(path, documents=(), remove=(), compact=False, settings=INDEX_SETTINGS):
    with open_writer(path, settings) as writer:
        if remove:
            writer.remove_documents(remove)
        if documents:
            writer.add_documents(
                documents,
                PassageCutter(WordCounter(), settings.passage_tokens, settings.overlap),
                {DENSE_ROWS: hashed_vectors, SPARSE_ROWS: sparse_rows, TOKEN_ROWS: token_rows},
            )
        if compact:
            writer.compact(settings)
    return writer


class QueryEncoder:
    """Stands in for a model."""

    encode_queries = staticmethod(hashed_vectors)


class SparseQueryEncoder:
    @staticmethod
    def encode_queries(texts: list[str]) -> Iterator[tuple[SparseVector, list[str]]]:
        for vector in sparse_vectors(texts):
            yield vector, [f"w{token}" for token in vector.ids]


class TokenQueryEncoder:
    @staticmethod
    def encode_queries(texts: list[str]) -> Iterator[TokenQuery]:
        for text in texts:
            yield TokenQuery(token_vectors(text), re.findall(r"\w+", text))

    @staticmethod
    def passage_words(text: str, stored: np.ndarray) -> list[str]:
        return re.findall(r"\w+", text)


ENCODERS = {DENSE_ROWS: QueryEncoder, SPARSE_ROWS: SparseQueryEncoder, TOKEN_ROWS: TokenQueryEncoder}


def open_with_encoders(path, **how) -> Index:
    index = Index.open(path, **how)
    index.encoders |= ENCODERS
    return index


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
