"""Random weights that a seed makes again anywhere: RandomState's streams are frozen by numpy's policy."""

import numpy as np


def seeded_tensors(shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Published name -> array. LayerNorm scales stand near 1, everything else around 0, nothing is exactly either."""
    random = np.random.RandomState(seed)
    tensors = {}
    for name in sorted(shapes):
        values = random.standard_normal(shapes[name]).astype(np.float32)
        is_scale = "norm" in name.lower() and name.endswith("weight")
        tensors[name] = values * np.float32(0.1) + np.float32(is_scale)
    return tensors


def seeded_batch(
    rows: int, length: int, vocab: int, type_vocab_size: int, targets: int, seed: int
) -> dict[str, np.ndarray]:
    """A pre-training batch whose rows have different lengths, padding at the end."""
    random = np.random.RandomState(seed)
    lengths = random.randint(max(2, length // 3), length + 1, rows)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype(np.int32)
    positions = np.stack(
        [
            np.sort(random.permutation(n)[:targets]) if n >= targets else np.arange(targets) % n
            for n in lengths
        ]
    )
    return {
        "input_ids": random.randint(5, vocab, (rows, length)) * mask,
        "token_type_ids": random.randint(0, type_vocab_size, (rows, length)) * mask,
        "attention_mask": mask,
        "target_positions": positions,
        "targets": random.randint(0, vocab, (rows, targets)),
        "target_weights": (
            np.arange(targets) < np.minimum(random.randint(1, targets + 1, rows), lengths)[:, None]
        ).astype(np.float32),
        "labels": random.randint(0, 2, rows),
        "label_weights": np.ones(rows, np.float32),
    }
