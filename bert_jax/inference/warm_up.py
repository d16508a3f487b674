"""Compile programs before the first text arrives."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.inference.batching import BatchShapes
from bert_jax.inference.computations import HeadLogits, MaskFillings, PooledStates
from bert_jax.inference.runner import Runner
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import find_kind
from bert_jax.text.tokenizer import Encoding


def compile_programs(model: Runner, lengths: Sequence[int] | None, texts: int) -> None:
    longest, shapes = model.config.max_position_embeddings, model.engine.shapes
    if lengths is None:
        lengths = [length for length in shapes.lengths if length < longest] + [longest]
    if not isinstance(lengths, Iterable):
        raise BertJaxError(f"lengths must be a list of whole numbers, not {lengths!r:.40}")
    lengths = list(lengths)
    for length in lengths:
        check_number(length, "lengths", is_whole=True, allowed=Range(1, longest))
    check_number(texts, "texts", is_whole=True, allowed=Range(1))
    rungs = sorted({shapes.padded_length(length, longest) for length in lengths})
    calls = [
        (run, length, rows)
        for length in rungs
        for rows in possible_row_counts(shapes, length, texts)
        for run in list_programs(model)
    ]
    for run, length, rows in track(calls, "programs", "compiling"):
        unknown = [model.tokenizer.special.unk] * length
        run(
            [Encoding(unknown, [0] * length, [(0, 0)] * length, text_starts=text_starts(model, length))]
            * rows
        )


def possible_row_counts(shapes: BatchShapes, length: int, texts: int) -> list[int]:
    """Return the possible numbers of rows in the batches of up to `texts` texts.

    >>> shapes = BatchShapes(1024, (80,))
    >>> [possible_row_counts(shapes, 80, texts) for texts in (1, 5, 1000)]
    [[1], [1, 2, 4, 8], [1, 2, 4, 8, 12]]
    """
    rungs = shapes.row_counts(length)
    return [rows for n, rows in enumerate(rungs) if not n or rungs[n - 1] < texts]


def list_programs(model: Runner) -> list[Callable]:
    """Return functions that run each of the model's programs on encodings."""
    embedder, heads = model.embedder, model.layout.heads
    if kind := find_kind(model.layout):
        predict = HeadLogits(model.require_head(kind.heads, kind.name), len(model.labels))
        return [lambda encodings: model.run(encodings, predict)]
    pool = PooledStates(embedder.pooling, projection=embedder.projection)
    several: list[Callable] = [lambda encodings: model.run(encodings, pool)]
    if "mlm" in heads:
        fill = MaskFillings(5)
        several.append(
            lambda encodings: model.run(
                encodings, fill, {"target_positions": np.zeros((len(encodings), 1), np.int32)}
            )
        )
    return several


def text_starts(model: Runner, length: int) -> tuple[int, ...]:
    """Return the positions at which the texts of an encoding begin: two texts if a head compares texts, else one."""
    return (0, length // 2) if any(HEADS[head].compares for head in model.layout.heads) else (0,)
