"""The vectors that `embed --ray` wrote to a folder, which an index takes over. They are looked up by their texts."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.bucket import is_bucket, without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json
from bert_jax.core.hashes import find_damaged_files
from bert_jax.data.shards.shard_folder import JOB, MANIFESTS, ShardManifest, read_shard_manifest
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.inference.text_vectors import prompt_text
from bert_jax.search.cache import KEY
from bert_jax.search.index_manifest import IndexedModel
from bert_jax.search.vector_files import read_vectors

KEYS = "_keys"  # the folder of the keys of texts, a file for each shard
AGAIN = "write it again with `bert-jax embed --ray`"
OPENED = 2  # Parquet shards that are held in memory: passages come in the order of the shards


class StoredVectors:
    """`keys` has an array for each shard."""

    def __init__(self, folder: str, model: IndexedModel, embedder: EmbedderSettings):
        if is_bucket(folder):
            raise BertJaxError(f"{without_options(folder)} is in a bucket; copy the folder to this machine")
        self.folder, self.normalizes = Path(folder), not embedder.normalize
        self.check_settings(model, embedder)
        self.open_vectors = lru_cache(maxsize=OPENED)(read_vectors)
        self.shards = [
            read_shard_manifest(path) for path in sorted((self.folder / MANIFESTS).rglob("*.json"))
        ]
        if not self.shards:
            raise BertJaxError(f"{self.folder} holds no complete shard; repeat the command that writes it")
        self.keys = [self.read_keys(shard) for shard in self.shards]

    def check_settings(self, model: IndexedModel, embedder: EmbedderSettings) -> None:
        """Refuse vectors that are not those which the index would compute."""
        try:
            job = read_json(self.folder / JOB, dict[str, Any], AGAIN)
        except (FileNotFoundError, NotADirectoryError):
            raise BertJaxError(
                f"{self.folder} holds no {JOB}; name a folder that `bert-jax embed --ray` wrote"
            ) from None
        settings = job.get("settings", {})
        if job.get("verb") != "embed":
            raise BertJaxError(
                f"{self.folder} holds {job.get('noun')}, no vectors; name a folder of `embed --ray`"
            )
        if settings.get("model") != model.fingerprint:
            raise BertJaxError(f"{self.folder} holds vectors of another model than {model.path}; {AGAIN}")
        for name in ("quantize", "dimensions"):
            if value := settings.get(name):
                raise BertJaxError(
                    f"{self.folder} was made with --{name} {value}, and an index needs all; {AGAIN}"
                )
        if prompt_text(embedder, settings.get("prompt")) != model.document_prompt:
            names = [name for name, text in embedder.prompts.items() if text == model.document_prompt]
            remedy = f"--prompt {names[0]}" if names else "no --prompt"
            raise BertJaxError(
                f"{self.folder} was made with another prompt than that of documents; take {remedy}"
            )

    def read_keys(self, shard: ShardManifest) -> np.ndarray:
        """Return the keys of a shard; refuse a shard whose files are damaged."""
        for damage in find_damaged_files(self.folder, shard.files):
            raise BertJaxError(f"{self.folder}: {damage}; delete it, and repeat the command that wrote it")
        _, keys = shard.files
        return np.load(self.folder / keys, mmap_mode="r").view(KEY)

    def rows(self, number: int) -> "StoredRows":
        name, _ = self.shards[number].files
        return StoredRows(self.open_vectors(self.folder / name), self.normalizes)


class StoredRows:
    """The rows [N, D] of a shard, of which only the selected ones are read and made unit vectors."""

    def __init__(self, vectors: np.ndarray, normalizes: bool):
        self.vectors, self.normalizes = vectors, normalizes
        self.shape, self.dtype = vectors.shape, vectors.dtype

    def __getitem__(self, which: np.ndarray) -> np.ndarray:
        rows = self.vectors[which]
        if self.normalizes:
            rows /= np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
        return rows
