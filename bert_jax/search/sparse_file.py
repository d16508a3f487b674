"""The verb `embed` for a sparse embedder: one array of all texts of an input, or a line for each of them."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_jax.core.caller_warning import warn_caller
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import atomic_file, refuse_input
from bert_jax.core.progress import Progress
from bert_jax.core.terminal import pluralize
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.inference.load import load
from bert_jax.inference.sparse_vectors import SparsePipeline, stack_vectors
from bert_jax.inference.streaming import split_into_windows
from bert_jax.inference.text_vectors import embedder_reading
from bert_jax.search.embed_file import describe_column, read_texts, refuse_terminal
from bert_jax.text.input_files import file_extension
from bert_jax.text.tables import count_rows
from bert_jax.text.truncation import TruncationCounter, windows_advice

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def write_sparse_vectors(
    directory: ModelDirectory, settings: dict[str, Any], source: str, column: str, output: str | None
) -> None:
    """Write vectors to standard output, or to a .npz file of SciPy's; `settings` are those of `SparsePipeline`."""
    from scipy.sparse import save_npz, vstack

    if output is None:
        refuse_terminal()
    elif file_extension(output) != ".npz":
        raise BertJaxError(f"--output {output} should end in .npz, because {directory} gives sparse vectors")
    refuse_input(output, source)
    texts, model, parts = read_texts(source, column), load(directory), []
    truncated = TruncationCounter(embedder_reading(model).max_length)
    embed = SparsePipeline(model, **settings, truncated=truncated)
    with Progress("texts", count_rows(source)) as progress:
        for window, vectors in embed_sparse_windows(embed, texts):
            if output is None:
                for row in range(len(window)):
                    of_text = slice(vectors.indptr[row], vectors.indptr[row + 1])
                    values = [round(float(x), 7) for x in vectors.data[of_text]]
                    print(to_json({"indices": vectors.indices[of_text].tolist(), "values": values}))
            else:
                parts.append(vectors)
            progress.advance(len(window))
    if output is not None:
        with atomic_file(Path(output)) as new, open(new, "wb") as file:
            save_npz(file, vstack(parts, format="csr"))
        read, unread = describe_column(source, column)
        print(f"{pluralize(truncated.texts, 'vector')}{read} in {output}{unread}", file=sys.stderr)
    if truncated.truncated:
        warn_caller(truncated.notice(windows_advice()))


def embed_sparse_windows(
    embed: SparsePipeline, texts: Iterable[str]
) -> Iterator[tuple[list[str], "csr_array"]]:
    """Yield texts and their vectors [N, V], window by window."""
    for window in split_into_windows(texts):
        yield window, stack_vectors(embed(window), embed.model.layout.vector_size)
