"""`bert-jax bench prepare`: text to corpus, against the bare tokenizer on sentences that are split already.

The two take turns, three times each; the middle figures are compared.
"""

import statistics
import tempfile
import time
from itertools import chain
from pathlib import Path

from bert_jax.data.corpus.prepare import CHUNK, cores, prepare
from bert_jax.errors import BertJaxError
from bert_jax.text.directory import open_tokenizer
from bert_jax.text.readers import Layout, Source
from bert_jax.text.sentences import sentences

TURNS = 3
BATCH = 4096  # sentences that the bare tokenizer gets at once


def report(inputs: list[str], tokenizer: str, megabytes: float, layout: Layout, column: str) -> str:
    documents: list[str] = []
    size = 0
    for document in Source(inputs, layout, column).documents():
        documents.append(document)
        size += len(document)
        if size >= megabytes * 1e6:
            break
    if size < 2 * CHUNK:
        raise BertJaxError(
            f"{size / 1e6:.1f} MB of text are too few to measure on; give {CHUNK >> 19} MB or more"
        )
    rust = getattr(open_tokenizer(tokenizer), "rust", None)
    if rust is None:
        raise BertJaxError(f"{tokenizer} is no tokenizer of the Rust library, with which prepare is compared")
    texts = [sentence for document in documents for sentence in sentences(document, layout, "en")]

    def bare() -> float:
        begun, tokens = time.perf_counter(), 0
        for first in range(0, len(texts), BATCH):
            encodings = rust.encode_batch_fast(texts[first : first + BATCH], add_special_tokens=False)
            tokens += sum(map(len, encodings))
        return tokens / (time.perf_counter() - begun)

    def whole() -> float:
        with tempfile.TemporaryDirectory() as directory:
            text = Path(directory, "text.txt")
            pages = (
                "\n".join(line for line in document.split("\n") if line.strip()) for document in documents
            )
            text.write_text("\n\n".join(pages), encoding="utf-8")
            begun = time.perf_counter()
            manifest = prepare([text], tokenizer, Path(directory, "corpus"), heldout=0)
            return manifest["counts"]["train"]["tokens"] / (time.perf_counter() - begun)

    figures = list(zip(*((bare(), whole()) for _ in range(TURNS)), strict=True))
    alone, ours = map(statistics.median, figures)
    spread = ", ".join(f"{figure / 1e6:.2f}" for figure in chain(*figures))
    return (
        f"{size / 1e6:.0f} MB of text, {len(texts):,} sentences, {cores()} cores\n"
        f"bare encode_batch_fast  {alone / 1e6:5.2f} M tokens/s\n"
        f"prepare                 {ours / 1e6:5.2f} M tokens/s, {ours / alone:.2f} x bare\n"
        f"(M tokens/s of each turn, bare then prepare: {spread})"
    )
