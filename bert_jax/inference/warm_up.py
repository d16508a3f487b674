"""Compile programs before the first text arrives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.core.config import Range, check_number
from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.hub.multi_vector_encoder import TASKS
from bert_jax.inference.batching import BatchShapes, row_collator
from bert_jax.inference.computations import Computation, HeadLogits, MaskFillings, PooledStates
from bert_jax.inference.engine import shapes_for
from bert_jax.inference.runner import Runner
from bert_jax.inference.sparse_vectors import sparse_computation
from bert_jax.inference.token_vectors import TokenVectorPipeline
from bert_jax.models.heads import HEADS
from bert_jax.predictions.kind import find_kind
from bert_jax.text.encoding import Encoding


class Program(NamedTuple):
    """A program, which serves batches of one shape."""

    computation: Computation
    length: int
    rows: int
    extra_inputs: Mapping[str, tuple[int, ...]]  # shapes of the further arrays of a row


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
    programs = [
        Program(computation, length, rows, extra_inputs)
        for computation, extra_inputs in list_computations(model)
        for shapes in [shapes_for(model.engine, computation)]
        for length in shapes.row_lengths(lengths, longest, texts)
        for rows in possible_row_counts(shapes, length, texts)
    ]
    for program in track(programs, "programs", "compiling"):
        compute_once(model, program)


def compute_once(model: Runner, program: Program) -> None:
    """Compute a batch of this shape, which compiles the program."""
    length = min(program.length, model.config.max_position_embeddings)
    unknown = [model.tokenizer.special.unk] * length
    compares = any(HEADS[head].compares for head in model.layout.heads)
    text_starts = (0, length // 2) if compares else (0,)
    encoding = Encoding(unknown, [0] * length, [(0, 0)] * length, text_starts=text_starts)
    extra_inputs = {name: np.zeros((1, *shape), np.int32) for name, shape in program.extra_inputs.items()}
    shapes = shapes_for(model.engine, program.computation)
    collate = row_collator([encoding], model.tokenizer.special.pad, shapes, extra_inputs)
    batch = collate([[0]] * program.rows, program.length)
    model.engine.read(model.engine.start(program.computation, batch))


def possible_row_counts(shapes: BatchShapes, length: int, texts: int) -> list[int]:
    """Return the possible numbers of rows in the batches of up to `texts` texts.

    >>> shapes = BatchShapes(1024, (80,))
    >>> [possible_row_counts(shapes, 80, texts) for texts in (1, 5, 1000)]
    [[1], [1, 2, 4, 8], [1, 2, 4, 8, 12]]
    """
    rungs = shapes.row_counts(length)
    return [rows for n, rows in enumerate(rungs) if not n or rungs[n - 1] < texts]


def list_computations(model: Runner) -> list[tuple[Computation, Mapping[str, tuple[int, ...]]]]:
    """Return what the model computes, each with the shapes of the further arrays of a row."""
    embedder, heads = model.embedder, model.layout.heads
    if kind := find_kind(model.layout):
        return [(HeadLogits(model.require_head(kind.heads, kind.name), len(model.labels)), {})]
    if sparse := model.layout.sparse:
        return [(sparse_computation(sparse), {})]
    if model.layout.multi_vector:
        pipelines = [TokenVectorPipeline(model, task) for task in TASKS]
        return [(pipeline.computation, pipeline.extra_shapes[0]) for pipeline in pipelines]
    computations: list = [(PooledStates(embedder.pooling, projection=embedder.projection), {})]
    if "mlm" in heads:
        computations.append((MaskFillings(5), {"target_positions": (1,)}))
    return computations
