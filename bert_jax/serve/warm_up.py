"""Compile the programs of a served model before the first request comes."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from bert_jax.core.progress import track
from bert_jax.inference.batching import BatchShapes
from bert_jax.inference.pipeline import TextPipeline
from bert_jax.inference.warm_up import Program, compute_once
from bert_jax.serve.served_model import ServedModel


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
    """Compile each program that requests can need."""
    pipelines = model.pipelines()
    programs = [(pipeline.model, program) for pipeline in pipelines for program in list_programs(pipeline)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        done = threads.map(lambda needed: compute_once(*needed), programs)
        for _ in track(programs, "programs", f"compiling {model.name} (--no-warm-up: at the first requests)"):
            next(done)


def list_programs(pipeline: TextPipeline) -> list[Program]:
    """Return the programs of all shapes of batches; of an engine that compiles nothing, one."""
    longest, shapes = pipeline.truncated.max_length, pipeline.model.engine.shapes
    if not shapes.lengths:
        return [Program(pipeline.computation, min(longest, 16), 1, pipeline.beside_shapes[0])]
    most = pipeline.model.config.max_position_embeddings
    lengths = sorted({shapes.padded_length(length, most) for length in range(1, longest + 1)})
    return [
        Program(pipeline.computation, length, rows, beside)
        for length in lengths
        for rows in shapes.row_counts(length)
        for beside in pipeline.beside_shapes
    ]
