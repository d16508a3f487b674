"""The verb `index`: build an index, add documents, remove some, merge its segments, and export it."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.command.flags import (
    count,
    flag,
    verb,
    whole,
)
from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.core.terminal import counted, say
from bert_jax.text.lines import read_lines

if TYPE_CHECKING:
    from bert_jax.search.documents import Document
    from bert_jax.search.index_manifest import Manifest
    from bert_jax.search.index_writer import Counts

MANY = 16  # segments; if there are more, --compact is recommended
SHOWN = 5  # document names in a message


@verb(
    "build an index of documents, or change one",
    "bert-jax index docs/ --model DIR --output INDEX",
    flag(
        "documents", nargs="*", metavar="DOCS",
        help=".txt .md .html, Wikipedia's dumps (.xml, .xml.bz2) and WikiExtractor's files, tables .jsonl .csv .tsv "
        ".parquet with a row for each document, folders of these, folders in BEIR's layout; an existing index gets "
        "the new and the changed documents",
    ),
    flag("--output", required=True, metavar="INDEX", help="directory of the index"),
    flag("--model", metavar="DIR", help="embedder of the passages (default: that of the index, or else only keywords)"),
    flag("--remove", nargs="+", default=[], metavar="ID", help="documents to remove; @FILE: a file of an id per line"),
    flag("--remove-missing", action="store_true", help="remove documents of the index that are not among DOCS"),
    flag("--compact", action="store_true", help="merge all segments, and free the space of removed documents"),
    flag(
        "--quantize", choices=("none", "int8", "binary"),
        help="search quantized vectors (8 or 1 bit per dimension), then rescore with the full vectors",
    ),
    flag(
        "--approximate", choices=("none", "hnsw", "ivf"),
        help="search an approximate faiss index",
    ),
    flag(
        "--export", nargs=2, metavar=("ENGINE", "DIR"),
        help="write all passages into a new directory, for qdrant, opensearch, elasticsearch or pgvector to load; the "
        "index stays unchanged",
    ),
    flag("--passage-tokens", type=count, metavar="N", help="tokens of a passage (default: 256, or the model's)"),
    flag("--overlap", type=whole(0), metavar="N", help="tokens that neighbouring passages share (default: an eighth)"),
    flag("--text", default="", metavar="COLUMN", help="column of texts of a table (default: by its usual names)"),
    flag("--id", default="", metavar="COLUMN", help="column of ids (default: _id or id, or else FILE:ROW)"),
    flag("--title", default="", metavar="COLUMN", help="column of titles (default: title, if there is one)"),
)  # fmt: skip
def index(args):
    if args.export:
        from bert_jax.command.exporting import write

        write(args)
        return
    change(args)


def change(args) -> None:
    from bert_jax.search.documents import Columns, Source
    from bert_jax.search.index_settings import Asked, Plan
    from bert_jax.search.index_writer import writing
    from bert_jax.text.truncation import warn

    start, path, others, adds = time.monotonic(), Path(args.output), list[str](), False
    if not (args.documents or args.remove or args.compact):
        raise BertJaxError("nothing to do: name DOCS to add, or give --remove or --compact")
    if args.remove_missing and not args.documents:
        raise BertJaxError("--remove-missing keeps the documents of DOCS; name them")
    if args.remove and args.documents:
        raise BertJaxError(
            "--remove with DOCS could add the removed documents again; give only one of them, or --remove-missing"
        )
    asked = Asked(args.model, args.passage_tokens, args.overlap, args.quantize, args.approximate)
    source = Source(args.documents, Columns(args.text, args.id, args.title))
    plan = Plan(path, asked, args.compact)
    if args.documents and plan.is_new and plan.manifest.model is None:
        say("no --model, so documents are found by keywords alone", sys.stderr)
    with writing(path, plan.manifest if args.documents else None) as writer:
        if args.remove:
            writer.remove(ids_of(args.remove))
        if args.documents:
            encoder = plan.encoder
            before = writer.manifest
            others, adds = before.sources_beside(args.documents), before.has_none_of(args.documents)
            if others and args.remove_missing:
                raise BertJaxError(
                    f"--remove-missing would also remove the documents of {', '.join(others)}; name all sources of the "
                    "index, or remove documents by their ids with --remove"
                )
            documents, encode = shown(source.documents()), encoder.documents if encoder else None
            writer.add(documents, plan.cutter, encode, args.documents)
            if args.remove_missing and writer.missing:
                writer.remove(writer.missing)
            if encoder and encoder.truncated.truncated:
                warn(encoder.truncated.notice(what="passages"))
            for line in source.notes():
                say(line, sys.stderr)
            if not writer.manifest.changes:
                raise BertJaxError(f"{' '.join(args.documents)}: no documents that can be read; name others")
        if args.compact:
            writer.compact(plan.manifest)
    say(summary(path, writer.manifest, writer.counts, time.monotonic() - start), sys.stderr)
    if (missing := writer.missing) and not adds:
        say(one_line(in_words(missing, others)), sys.stderr)


def in_words(missing: list[str], others: list[str]) -> str:
    """Return a notice about documents of the index that were not read; `others` are its sources that were not read.

    >>> in_words(["a.txt"], [])
    '1 document of the index is not among these files: a.txt; --remove-missing removes it'
    """
    verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    counts = f"{counted(len(missing), 'document')} of the index {verb} not among these files"
    if others:
        return f"{counts}; name its other sources too ({', '.join(others)}) to see which of them are gone"
    names = ", ".join(missing[:SHOWN]) + ", ..." * (len(missing) > SHOWN)
    return f"{counts}: {names}; --remove-missing removes {them}"


def shown(documents: "Iterable[Document]") -> "Iterable[Document]":
    from tqdm import tqdm

    return tqdm(documents, desc="reading", unit=" documents", disable=None, delay=2)


def ids_of(names: list[str]) -> list[str]:
    """Return the ids that --remove gives, without duplicates; @FILE stands for the ids in a file."""
    ids = [
        name
        for given in names
        for name in (read_lines(given[1:]) if given.startswith("@") else [given])
        if name
    ]
    return list(dict.fromkeys(ids))


def summary(path: Path, manifest: "Manifest", counts: "Counts", seconds: float) -> str:
    line = (
        f"{counted(manifest.documents, 'document')} in {counted(manifest.passages, 'passage')} in {path}: "
        f"{counts.new:,} new, "
        f"{counts.changed:,} changed, {counts.unchanged:,} unchanged, {counts.removed:,} removed; "
        f"{counted(counts.encoded, 'passage')} encoded; {seconds:.1f} s"
    )
    if recall := manifest.recall:
        line += f"; recall@{recall.at} {recall.recall:.3f} of {recall.queries} passages as queries"
    if len(manifest.segments) > MANY:
        line += f"; {len(manifest.segments)} segments, which --compact merges"
    return line
