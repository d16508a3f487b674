"""Turn text into a corpus: split it into sentences, tokenize it, drop duplicate documents, and hold a part out.

Chunks are made in `OUTPUT.partial/`, so that a killed run can resume. When all of them exist, they are joined in order
into a corpus, which is renamed to OUTPUT at the very end.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from bert_jax.core import hashes
from bert_jax.core.bucket import without_options
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.output import locked_directory, remove_path
from bert_jax.core.processor import cores
from bert_jax.data.corpus.chunks import ChunkSettings, make_chunks
from bert_jax.data.corpus.corpus_directory import ARRAYS, CORPUS_VERSION, SPLITS
from bert_jax.data.corpus.join_chunks import join_chunks
from bert_jax.text.sentences import check_language
from bert_jax.text.text_source import TextSource
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.tokenizer_directory import open_tokenizer

CHUNKS = "chunks"  # the folder of the chunks, beside the corpus that is made of them
# Writes the chunks of a source to a folder.
ChunkMaker = Callable[[TextSource, ChunkSettings, Path], Iterable[Path]]
FEW = 4  # documents with fewer sentences than this on average are too short for pairs


def prepare_corpus(
    source: TextSource,
    tokenizer,
    output,
    *,
    language="en",
    validation_ratio=0.01,
    processes: int | None = None,
    chunk_maker: ChunkMaker | None = None,
) -> dict:
    """Write a corpus directory and return its manifest. The chunks are made by `processes` of this machine, or
    by the `chunk_maker`."""
    output = Path(output)
    if output.exists():
        raise BertJaxError(f"{output} exists already; delete it, or give --output another name")
    if not 0 <= validation_ratio < 1:
        raise BertJaxError(
            f"--validation-ratio is a share of the documents, 0 or more and below 1, not {validation_ratio}"
        )
    opened = open_tokenizer(tokenizer)
    recipe = chunk_settings(source, str(tokenizer), opened, language)
    make = chunk_maker or partial(make_chunks, processes=processes or cores())
    work = output.with_name(output.name + ".partial")
    made = work / "corpus"
    with locked_directory(work), resumable(work):
        chunks = list(make(source, recipe, work / CHUNKS))
        if not chunks:
            raise BertJaxError(f"no text in {', '.join(name_inputs(source))}; every input is empty")
        remove_path(made)
        counts = join_chunks(chunks, made, recipe.dtype, validation_ratio)
        opened.save(made / "tokenizer")
        files = sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())
        manifest = {
            "version": CORPUS_VERSION,
            "counts": counts,
            "tokenizer": {"fingerprint": opened.fingerprint, "size": opened.size},
            "source": {
                "inputs": name_inputs(source),
                "files": len(source.files),
                "layout": source.layout,
                "column": source.column,
                "language": language,
                **source.counts(),
            },
            "files": hashes.collect_file_facts(made, files),
        }
        write_atomically(made / "manifest.json", json.dumps(hashes.seal(manifest), indent=1) + "\n")
        os.replace(made, output)
        remove_path(work / CHUNKS)
        with suppress(OSError):  # it also holds files that are not ours
            work.rmdir()
    return manifest


def name_inputs(source: TextSource) -> list[str]:
    return [without_options(str(given)) for given in source.inputs]


def chunk_settings(source: TextSource, name: str, tokenizer: Tokenizer, language: str) -> ChunkSettings:
    check_language(language)
    return ChunkSettings(name, tokenizer.fingerprint, tokenizer.size > 1 << 16, source.layout, language)


@contextmanager
def resumable(work: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BertJaxError(
            f"cannot write {error.filename or work}: {error.strerror}; finished parts are kept in {work}, "
            "and the same command resumes from there"
        ) from error


def summarize(manifest: dict, output) -> str:
    """Describe a new corpus for the user. Oddities, such as empty files, are listed only if there are any."""
    counts, source = manifest["counts"], manifest["source"]
    lines = [
        f"{output}: {part} " + ", ".join(f"{counts[part][name]:,} {name}" for name in reversed(ARRAYS))
        for part in SPLITS
    ]
    odd = {
        "duplicate documents dropped": counts["duplicate_documents"],
        f"of {counts['lines']:,} lines are duplicates": counts["repeated_lines"],
        "lines of broken UTF-8, bad bytes replaced by \ufffd": source["broken_lines"],
        "empty files": source["empty_files"],
        "files left out: binary or UTF-16, not UTF-8 text": source["binary_files"],
        "documents over 16 MB cut; are there blank lines between documents?": source["cut_documents"],
    }
    lines += [f"  {count:,} {what}" for what, count in odd.items() if count]
    documents, sentences = (sum(counts[part][name] for part in SPLITS) for name in ("documents", "sentences"))
    if source["layout"] == "blank" and documents > 1 and sentences < FEW * documents:
        lines.append(
            f"  {sentences / documents:.1f} sentences per document: if blank lines separate paragraphs rather than "
            "documents, --layout file makes one document of each file"
        )
    return "\n".join(lines)
