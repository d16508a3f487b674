"""The verb `embed`: vectors of the texts of a file or of standard input. It holds one window of texts at a time."""

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import atomic_file, refuse_input
from bert_jax.core.progress import Progress
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.row_parsing import peek
from bert_jax.data.examples.unlabelled_texts import read_unlabelled, split_columns
from bert_jax.data.npy_writer import npy_writer
from bert_jax.hub import model_directory as hub
from bert_jax.hub.model_directory import model_fingerprint
from bert_jax.inference.encoder import Encoder
from bert_jax.inference.load import load
from bert_jax.inference.runner import TextPipeline
from bert_jax.inference.streaming import split_into_windows
from bert_jax.inference.text_vectors import embedder_encoding_options
from bert_jax.search import vector_shards
from bert_jax.search.vector_files import TYPES, Quantizer
from bert_jax.search.vector_forms import vector_form_of
from bert_jax.text import tables
from bert_jax.text.input_files import file_extension
from bert_jax.text.tables import count_rows
from bert_jax.text.truncation import TruncationCounter

SHOWN = 5  # column names in a message

EmbedSettings = dict[str, Any]  # prompt, long_texts, and dimensions or max_active_dims


def write_vectors(
    directory: hub.ModelDirectory,
    settings: EmbedSettings,
    source: str,
    column: str,
    output: str | None,
    quantize: str | None,
) -> None:
    """Write vectors to standard output, to a .npy file, or to a directory of shards; others than dense ones to a .npz
    file."""
    form = vector_form_of(directory.layout)
    is_file = output is not None and output.lower().endswith(".npz" if form.save else ".npy")
    check_output(output, is_file, quantize, directory)
    refuse_input(output, source)
    texts = read_texts(source, column)
    model = load(directory)
    opened = form.open(model, **settings)  # refuses wrong settings before anything is written
    truncated = TruncationCounter(opened.truncated.max_length)
    count, clipped, is_new = 0, 0, False
    with Progress("texts", count_rows(source)) as progress:

        def given() -> Iterator[str]:
            nonlocal count
            for text in texts:
                count += 1
                yield text

        def compute(some: Iterable[str], truncated: TruncationCounter) -> Iterator[Any]:
            """Yield the vectors of each window; for any output, no window crosses a shard's boundary."""
            nonlocal is_new
            is_new = True
            for _, vectors in embed_chunks(form.open(model, **settings, truncated=truncated), some):
                yield vectors
                progress.reach(count)  # includes the texts of shards that exist already

        if output is None:
            for vector in chain.from_iterable(compute(given(), truncated)):
                print(to_json(form.to_json(vector)))
        elif form.save:
            vectors = [*chain.from_iterable(compute(given(), truncated))]
            form.write_npz_file(Path(output), vectors, model.layout.vector_size)
        elif is_file:
            quantizer = Quantizer(quantize, vector_shards.TEXTS_PER_SHARD)
            write_npy_file(Path(output), compute(given(), truncated), quantizer, source)
            clipped = quantizer.clipped
        else:
            made = shard_settings(directory, model, settings, quantize)
            facts = vector_shards.write_shards(Path(output), given(), compute, made)
            truncated, clipped = facts.truncations(), facts.clipped
    if output is not None:
        read, unread = describe_column(source, column)
        number, done = pluralize(truncated.texts, "vector"), "" if is_new else "; it was complete already"
        print(f"{number}{read} in {output}{done}{unread}{describe_clipped(clipped)}", file=sys.stderr)
    if truncated.truncated:
        warn_caller(truncated.notice(form.advice))


def read_texts(source: str, column: str) -> Iterator[str]:
    """Read the texts of an input, of which there is at least one."""
    first, texts = peek(read_unlabelled(source, column))
    if first is None:
        raise BertJaxError(f"the input is empty: {source} has no text")
    return texts


def embed_chunks(embed: TextPipeline, texts: Iterable[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield texts and their vectors, window by window, none of which crosses a shard's boundary."""
    for part in vector_shards.split_texts(texts, vector_shards.TEXTS_PER_SHARD):
        for window in split_into_windows(part):
            yield window, embed(window)


def check_output(
    output: str | None, is_file: bool, quantize: str | None, directory: hub.ModelDirectory
) -> None:
    if output is None and quantize:
        raise BertJaxError("--quantize needs an --output; leave it out to print vectors")
    if output is None and sys.stdout.isatty():
        raise BertJaxError(
            "vectors are not printed on a terminal; give --output, or redirect them to a pipe or a file"
        )
    if output is None or is_file:
        return
    form = vector_form_of(directory.layout)
    if form.save:
        raise BertJaxError(
            f"--output {output} should end in .npz, because {directory} gives {form.name} vectors"
        )
    if file_extension(output) in (*tables.TABLE_EXTENSIONS, ".npz"):
        raise BertJaxError(f"--output {output} should end in .npy, or be the name of a directory")
    if Path(output).resolve().is_relative_to(directory.path.resolve()):
        raise BertJaxError(f"{output} is in the model's directory; name one elsewhere")


def write_npy_file(path: Path, parts: Iterator[np.ndarray], quantizer: Quantizer, source: str) -> None:
    """Write the vectors to one .npy file, and the ranges of int8 to a second one beside it."""
    ranges = path.with_suffix(".ranges.npy")
    refuse_input(str(ranges), source)
    with npy_writer(path, TYPES[quantizer.quantization]) as array:
        for rows in quantizer(parts):
            array.append(rows)
        if quantizer.ranges is not None:
            with atomic_file(ranges) as new, open(new, "wb") as file:
                np.save(file, quantizer.ranges)


def shard_settings(
    directory: hub.ModelDirectory, model: Encoder, settings: EmbedSettings, quantize: str | None
) -> vector_shards.ShardSettings:
    rounding = "" if model.engine.dtype == "float32" else f" in {model.engine.dtype}"
    return vector_shards.ShardSettings(
        model=model_fingerprint(directory) + rounding,
        pooling=model.embedder.pooling,
        normalize=model.embedder.normalize,
        prompt=settings["prompt"],
        long_texts=settings["long_texts"],
        max_length=embedder_encoding_options(model).max_length,
        dimensions=settings["dimensions"] or model.layout.vector_size,
        quantization=quantize,
        shard=vector_shards.TEXTS_PER_SHARD,
    )


def describe_column(source: str, column: str) -> tuple[str, str]:
    """Return two parts of a message: the column that was read and, if the user named none, the other text columns."""
    name, others = split_columns(source, column)
    if not name:
        return "", ""
    unread = "" if column or not others else ", ".join(f'"{other:.40}"' for other in others[:SHOWN])
    more = ", ..." * (len(others) > SHOWN)
    verb = "is" if len(others) == 1 else "are"
    return (
        f' of column "{name:.40}"',
        f"; {unread}{more} {verb} not read; choose with --text" if unread else "",
    )


def describe_clipped(count: int) -> str:
    """Return the end of a line about int8 vectors, of which `count` numbers were clipped."""
    if not count:
        return ""
    first = f"{vector_shards.TEXTS_PER_SHARD:,}"
    return f"; {count:,} numbers beyond the ranges of the first {first} vectors were clipped"
