"""Embed texts, computing each vector only once."""

from collections.abc import Sequence
from pathlib import Path

from bert_jax.core.hashes import digest, facts_of, files_in
from bert_jax.hub import directory as hub
from bert_jax.inference.embedder import embedding, prompt_text, reading_of, usual_prompt
from bert_jax.inference.model import load
from bert_jax.search.cache import Cache, Rows
from bert_jax.text.inputs import HIDDEN
from bert_jax.text.truncation import Truncated, warn


class Vectors:
    """The unit vectors of texts from the embedder in a directory, cached in a folder."""

    def __init__(self, directory, folder: Path):
        self.model, self.folder = load(directory), folder
        self.embedder = fingerprint(directory)

    def of(self, texts: Sequence[str], prompts: Sequence[str] = ()) -> Rows:
        """Return the vectors [N, D] of texts, with the first of these prompts that the embedder has."""
        prompt = usual_prompt(self.model.embedder, prompts)
        before = prompt_text(self.model.embedder, prompt)
        truncated = Truncated(reading_of(self.model).max_length)
        compute = embedding(self.model, prompt=prompt, normalize=True, truncated=truncated)
        vectors = Cache(self.folder, "vectors", [self.embedder, before]).of(texts, compute)
        if notice := truncated.notice():
            warn(notice)
        return vectors


def fingerprint(directory) -> str:
    """Return a hash of the files of a model directory, except hidden ones, which belong to git and other programs."""
    source = hub.existing(directory)
    return digest(facts_of(source, sorted(name for name in files_in(source) if not HIDDEN.search(name))))
