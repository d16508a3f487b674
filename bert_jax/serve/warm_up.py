"""Compile the programs of a served model before the first request comes."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from bert_jax.core.progress import track
from bert_jax.inference.batching import BatchShapes, pad_batch
from bert_jax.inference.pipeline import TextPipeline
from bert_jax.inference.warm_up import text_starts
from bert_jax.serve.served_model import ServedModel
from bert_jax.text.tokenizer import Encoding


def serving_shapes(shapes: BatchShapes) -> BatchShapes:
    """Return every other length, because all programs are compiled before the first request; once they are, the number
    of batches matters little.

    >>> serving_shapes(BatchShapes(1024, (8, 12, 16, 20, 24)))
    BatchShapes(tokens=1024, lengths=(8, 16, 24), overhead=64)
    """
    return replace(
        shapes, lengths=shapes.lengths[::-1][::2][::-1], overhead=shapes.overhead or shapes.tokens // 16
    )


def compile_pipelines(model: ServedModel) -> None:
    """Compute a batch of each shape that requests can have, for each program."""
    calls = [(pipeline, *shape) for pipeline in model.pipelines() for shape in possible_shapes(pipeline)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        done = threads.map(lambda call: compute_once(*call), calls)
        for _ in track(calls, "programs", f"compiling {model.name}"):
            next(done)


def possible_shapes(pipeline: TextPipeline) -> list[tuple[int, int, Mapping[str, tuple[int, ...]]]]:
    """Return (length, rows, shapes of further arrays) of all batches; of an engine that compiles nothing, of one."""
    longest, shapes = pipeline.truncated.max_length, pipeline.model.engine.shapes
    if not shapes.lengths:
        return [(min(longest, 16), 1, pipeline.beside_shapes[0])]
    most = pipeline.model.config.max_position_embeddings
    lengths = sorted({shapes.padded_length(length, most) for length in range(1, longest + 1)})
    return [
        (length, rows, beside)
        for length in lengths
        for rows in shapes.row_counts(length)
        for beside in pipeline.beside_shapes
    ]


def compute_once(
    pipeline: TextPipeline, length: int, rows: int, beside: Mapping[str, tuple[int, ...]]
) -> None:
    model = pipeline.model
    unknown = [model.tokenizer.special.unk] * length
    encoding = Encoding(unknown, [0] * length, [(0, 0)] * length, text_starts=text_starts(model, length))
    batch = pad_batch([encoding] * rows, model.tokenizer.special.pad)
    batch |= {name: np.zeros((rows, *shape), np.int32) for name, shape in beside.items()}
    model.engine.read(model.engine.start(pipeline.computation, batch))
