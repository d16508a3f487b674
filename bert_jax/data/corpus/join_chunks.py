"""Join the files of chunks into the arrays of a corpus, without duplicate documents, and with a part held out.

Documents that are duplicates of earlier ones, and duplicate lines, are found by their hashes, which are compared in
slices that fit into memory.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.progress import track
from bert_jax.core.terminal import pluralize
from bert_jax.data.corpus.corpus_directory import ARRAYS, SPLITS
from bert_jax.data.npy_writer import npy_writer

SLICE = 1 << 22  # hashes compared at a time
SAMPLE = 1 << 25  # the most lines compared; if there are more, a sample of the hashes stands for all


def join_chunks(chunks: list[Path], directory: Path, dtype: np.dtype, validation_ratio: float) -> dict:
    """Write the arrays, with the chunks in order; return the counts for the manifest."""
    kept = first_seen(chunks)
    duplicates = int(len(kept) - kept.sum())
    drop_wordless(chunks, kept)
    documents = int(kept.sum())
    if not documents:
        raise BertJaxError("no document has a single token; is this the right tokenizer for the text?")
    if documents == 1 and duplicates:
        raise BertJaxError(f"all {duplicates + 1} documents are the same text; give inputs that differ")
    held = np.zeros(len(kept), bool)
    if validation_ratio:
        if documents < 4:
            raise BertJaxError(
                f"{pluralize(documents, 'document')} {'is' if documents == 1 else 'are'} too few for a validation "
                "set; say how documents are separated (--layout), or give --validation-ratio 0"
            )
        # At least two, so that a next-sentence pair can be drawn from another document.
        held = mark_lowest_hashes(chunks, kept, max(2, round(validation_ratio * documents)))
    counts: dict = {part: dict.fromkeys(ARRAYS, 0) for part in SPLITS}
    for part, chosen in zip(SPLITS, (kept & ~held, held), strict=True):
        if chosen.any():
            counts[part] = write_split(chunks, chosen, directory / part, dtype)
    lines, repeated = count_repeated_lines(chunks)
    return counts | {"duplicate_documents": duplicates, "lines": lines, "repeated_lines": repeated}


def drop_wordless(chunks: list[Path], kept: np.ndarray) -> None:
    """Mark documents without a token (nothing but control characters, for example) as not kept."""
    first = 0
    for path in chunks:
        with np.load(path) as chunk:
            sizes, lengths = chunk["document_sentences"], chunk["sentence_tokens"]
        tokens = np.bincount(np.repeat(np.arange(len(sizes)), sizes), lengths, len(sizes))
        kept[first : first + len(sizes)] &= tokens > 0
        first += len(sizes)


def write_split(chunks: list[Path], chosen: np.ndarray, directory: Path, dtype: np.dtype) -> dict[str, int]:
    """Write the arrays of the chosen documents; return their counts."""
    first, begin_token, begin_sentence = 0, 0, 0
    with (
        npy_writer(directory / "tokens.npy", dtype) as tokens,
        npy_writer(directory / "sentences.npy", np.uint64) as sentence_starts,
        npy_writer(directory / "documents.npy", np.uint64) as document_starts,
    ):
        for path in track(chunks, "chunks", "joining"):
            with np.load(path) as chunk:
                sizes = chunk["document_sentences"].astype(np.int64)
                lengths = chunk["sentence_tokens"].astype(np.int64)
                here = chosen[first : first + len(sizes)]
                first += len(sizes)
                owner = np.repeat(np.arange(len(sizes)), sizes)
                wanted = here[owner]
                tokens.append(chunk["tokens"][np.repeat(wanted, lengths)])
            wanted &= lengths > 0  # a sentence of nothing but control characters has no token
            lengths, sizes = lengths[wanted], np.bincount(owner[wanted], minlength=len(sizes))[here]
            sentence_starts.append(begin_token + np.cumsum(lengths) - lengths)
            document_starts.append(begin_sentence + np.cumsum(sizes) - sizes)
            begin_token += int(lengths.sum())
            begin_sentence += int(sizes.sum())
        sentence_starts.append(np.array([begin_token]))
        document_starts.append(np.array([begin_sentence]))
    return {"tokens": begin_token, "sentences": begin_sentence, "documents": document_starts.rows - 1}


def stored(chunks: Sequence[Path], name: str) -> Iterator[np.ndarray]:
    for path in chunks:
        with np.load(path) as chunk:
            yield chunk[name]


def first_seen(chunks: Sequence[Path]) -> np.ndarray:
    """Return, for each document, whether it is the first one with its hash of 128 bits."""
    total = sum(len(rows) for rows in stored(chunks, "documents"))
    first = np.zeros(total, bool)
    slices = -(-total // SLICE)
    for number in range(slices):
        parts, positions, offset = [], [], 0
        for rows in stored(chunks, "documents"):
            here = np.flatnonzero(rows[:, 0] % np.uint64(slices) == number)
            parts.append(rows[here])
            positions.append(here + offset)
            offset += len(rows)
        rows, where = np.concatenate(parts), np.concatenate(positions)
        order = np.lexsort((where, rows[:, 1], rows[:, 0]))
        rows, where = rows[order], where[order]
        first[where] = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(where)]
    return first


def count_repeated_lines(chunks: Sequence[Path]) -> tuple[int, int]:
    """Return (the number of lines, the number of lines that are duplicates of earlier ones).

    With more than SAMPLE lines, the second number is an estimate."""
    total = sum(len(rows) for rows in stored(chunks, "lines"))
    shares = max(1, -(-total // SAMPLE))
    parts = [rows[rows % np.uint64(shares) == 0] for rows in stored(chunks, "lines")]
    sampled = np.concatenate([np.empty(0, np.uint64), *parts])
    return total, (len(sampled) - len(np.unique(sampled))) * shares


def mark_lowest_hashes(chunks: Sequence[Path], among: np.ndarray, count: int) -> np.ndarray:
    """Mark the `count` documents with the lowest hashes `among` those marked: a random choice that depends only on the
    texts."""
    hashes, positions, offset = np.empty(0, np.uint64), np.empty(0, np.int64), 0
    for rows in stored(chunks, "documents"):
        here = np.flatnonzero(among[offset : offset + len(rows)])
        hashes, positions = (
            np.concatenate([hashes, rows[here, 0]]),
            np.concatenate([positions, here + offset]),
        )
        order = np.argsort(hashes, kind="stable")[:count]
        hashes, positions = hashes[order], positions[order]
        offset += len(rows)
    chosen = np.zeros(len(among), bool)
    chosen[positions] = True
    return chosen
