"""Vectors that are computed once: kept in files of a folder, each named after the texts in it and their embedder.

Whoever is stopped goes on where they were, and of texts that changed only the files with them are made anew.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from bert_jax.errors import BertJaxError
from bert_jax.hashes import digest, facts_of, files_in
from bert_jax.hub import directory as hub
from bert_jax.inference.model import load
from bert_jax.output import replacing

TEXTS = 4096  # of a file


class Vectors:
    """The vectors of length 1 that the embedder of a directory gives."""

    def __init__(self, directory, folder: Path):
        self.model, self.folder = load(directory), folder
        source = hub.existing(directory)
        self.embedder = digest(facts_of(source, sorted(files_in(source))))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BertJaxError(f"{folder} cannot be made ({error.strerror}); name another --cache") from error

    def of(self, texts: Sequence[str], prompt: str = "") -> np.ndarray:
        """[N, D], with the prompt of that name if the embedder has one."""
        name = prompt if prompt in self.model.embedder.prompts else None
        parts = [texts[first : first + TEXTS] for first in range(0, len(texts), TEXTS)]
        with tqdm(total=len(texts), unit=" texts", desc="embed", disable=None, delay=2) as bar:
            kept = []
            for part in parts:
                kept.append(self.of_part(part, name))
                bar.update(len(part))
        return np.concatenate(kept) if kept else np.zeros((0, self.model.config.hidden_size), np.float32)

    def of_part(self, texts: Sequence[str], prompt: str | None) -> np.ndarray:
        path = self.folder / f"{digest([self.embedder, prompt, list(texts)])}.npy"
        if path.exists():
            try:
                return np.load(path)
            except (ValueError, EOFError, OSError) as error:
                raise BertJaxError(f"{path} is damaged; delete it, and run the same command again") from error
        vectors = self.model.embed(list(texts), prompt=prompt, normalize=True)
        with replacing(path, shared=True) as new, open(new, "wb") as file:
            np.save(file, vectors)
        return vectors
