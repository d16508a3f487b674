"""Static embeddings in model2vec and here: `python -m tests.peers.model2vec_trial DIR FOLDER`, in an environment of it.

DIR holds static embeddings that were distilled here; FOLDER gets those that model2vec writes.
"""

import sys
from pathlib import Path

import numpy as np
from model2vec import StaticModel

import bert_jax
from tests.support.static_models import STATIC_TEXTS, small_rows, small_tokenizer

TEXTS = [*STATIC_TEXTS, "The cat sat.", "[CLS] the [MASK]"]
ROWS = small_rows()
NUMBERS, FACTORS = np.arange(12) % 3, np.linspace(0.1, 1, 12)
MODELS: dict[str, dict] = {
    "float32": {"vectors": ROWS, "normalize": True},
    "float16": {"vectors": ROWS.astype(np.float16), "normalize": True},
    "int8": {"vectors": (40 * ROWS[:3]).astype(np.int8), "token_mapping": NUMBERS, "weights": FACTORS},
    "short": {"vectors": ROWS, "normalize": True, "max_length": 3},
    "unlimited": {"vectors": ROWS, "max_length": None},
}
if __name__ == "__main__":
    directory, folder = map(Path, sys.argv[1:])
    for name, facts in MODELS.items():
        StaticModel(tokenizer=small_tokenizer(), **facts).save_pretrained(folder / name)
    for path in [directory, *(folder / name for name in MODELS)]:
        bert_jax.load(path).save(folder / "saved" / path.name)
        for written in (path, folder / "saved" / path.name):
            ours, theirs = (
                bert_jax.load(written).encode(TEXTS),
                StaticModel.from_pretrained(written).encode(TEXTS),
            )
            largest = 1e-3 if theirs.dtype == np.float16 else 1e-6 * max(1, np.abs(theirs).max())
            assert np.abs(ours - theirs).max() <= largest, (written, np.abs(ours - theirs).max(1))
