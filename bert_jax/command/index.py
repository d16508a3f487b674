"""The verb `index`: build an index, add documents, remove some, merge its segments, and export it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.command.flags import (
    DOCUMENT_COLUMNS,
    flag,
    number_type,
    positive_integer,
    verb,
    whole_number_type,
)
from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.core.terminal import pluralize, print_line
from bert_jax.text.line_reader import read_lines

if TYPE_CHECKING:
    from bert_jax.search.index_manifest import IndexManifest
    from bert_jax.search.index_writer import UpdateCounts

MANY_SEGMENTS = 16  # segments; if there are more, --compact is recommended
SHOWN = 5  # document names in a message
FLAGS_OF_DOCUMENTS = {
    "replace": "is for documents of DOCS",
    "remove_missing": "removes every document that is not among DOCS",
    "vectors": "are those of texts of DOCS",
    "dry_run": "is for adding DOCS",
}
ALLOWED_WITH_EXPORT = ("output", "export", "run", "debug")


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
    flag(
        "--sparse-model", metavar="DIR", help="sparse embedder (SPLADE) of the passages (default: that of the index)",
    ),
    flag(
        "--multi-vector-model", metavar="DIR", help="multi-vector embedder (ColBERT) of the passages, whose token "
        "vectors are stored (default: that of the index)",
    ),
    flag(
        "--pool-factor", type=number_type(1), metavar="N", help="average token vectors of a passage that are near, so "
        "that N times fewer are stored (default: as the multi-vector embedder does)",
    ),
    flag(
        "--vectors", metavar="FOLDER", help="vectors that `embed --ray` wrote for the texts of DOCS, which are not "
        "computed again",
    ),
    flag(
        "--remove", nargs="+", default=[], metavar="ID", help="ids of documents to remove; @FILE: a file with one id "
        "per line",
    ),
    flag(
        "--replace", action="store_true", help="replace documents of other sources that have the ids of documents of "
        "DOCS (default: refuse them)",
    ),
    flag("--remove-missing", action="store_true", help="remove documents of the index that are not among DOCS"),
    flag("--compact", action="store_true", help="merge all segments, and free the space of removed documents"),
    flag(
        "--quantize", choices=("none", "binary"),
        help="search binary vectors (1 bit per dimension), then rescore with the full vectors",
    ),
    flag("--approximate", choices=("none", "hnsw"), help="search an HNSW index of faiss, then rescore"),
    flag(
        "--language", metavar="NAME", help="language of the documents, as english, whose words keywords match by their "
        "stems; auto (default): detect it; none: match words as they are written",
    ),
    flag(
        "--export", metavar="FILE.parquet",
        help="write passages and vectors to a Parquet file, for search engines and databases; the index stays "
        "unchanged",
    ),
    flag(
        "--dry-run", action="store_true", help="read DOCS, and say how many documents and passages there are, how long "
        "it would take to add them, and how large they would be",
    ),
    flag(
        "--passage-tokens", type=positive_integer, metavar="N", help="tokens of a passage (default: 256, or the "
        "model's maximum if that is lower)",
    ),
    flag(
        "--overlap", type=whole_number_type(0), metavar="N", help="tokens that neighbouring passages share "
        "(default: an eighth of --passage-tokens)",
    ),
    *DOCUMENT_COLUMNS,
)  # fmt: skip
def index(args):
    if args.export:
        export_index(args)
    else:
        change_index(args)


def export_index(args) -> None:
    from bert_jax.search.index import Index
    from bert_jax.search.parquet_export import export_parquet

    for name, value in vars(args).items():
        if value and name not in ALLOWED_WITH_EXPORT:
            given = "DOCS" if name == "documents" else f"--{name.replace('_', '-')}"
            raise BertJaxError(f"--export reads the index as it is; leave {given} out")
    index = Index.open(args.output, verify=True)
    export_parquet(index, Path(args.export))
    counts = f"{pluralize(index.manifest.passages, 'passage')} of {pluralize(len(index), 'document')}"
    print_line(f"{counts} in {args.export}")


def change_index(args) -> None:
    from bert_jax.search import index_update
    from bert_jax.search.documents import DocumentColumns, DocumentSource
    from bert_jax.search.index_manifest import absolute_source
    from bert_jax.search.language import AUTO

    start, path = time.monotonic(), Path(args.output)
    if not (args.documents or args.remove or args.compact):
        raise BertJaxError("nothing to do: name DOCS to add, or give --remove or --compact")
    for name, purpose in FLAGS_OF_DOCUMENTS.items():
        if getattr(args, name) and not args.documents:
            raise BertJaxError(f"--{name.replace('_', '-')} {purpose}; give DOCS, or leave it out")
    if args.remove and args.documents:
        raise BertJaxError(
            "--remove with DOCS could add the removed documents again; give only one of them, or --remove-missing"
        )
    if args.dry_run and args.compact:
        raise BertJaxError("--dry-run is for adding DOCS; give it without --compact")
    options = index_update.IndexOptions(
        model=args.model, sparse_model=args.sparse_model, multi_vector_model=args.multi_vector_model,
        passage_tokens=args.passage_tokens, overlap=args.overlap, quantization=args.quantize,
        approximate=args.approximate, language=args.language, vectors=args.vectors, pool_factor=args.pool_factor,
    )  # fmt: skip
    columns = DocumentColumns(args.text, args.id, args.title)
    source = DocumentSource(args.documents, columns) if args.documents else None
    settings = index_update.IndexSettings(path, options, args.compact)
    if source and settings.is_new and not settings.manifest.models:
        print_line("no --model, so documents are found by keywords alone")
    update = index_update.IndexUpdate(
        source, read_ids(args.remove), args.remove_missing, args.compact, args.replace
    )
    if args.dry_run:
        print_line(index_update.estimate_update(settings, update))
        for line in source.notes() if source else ():
            print_line(line)
        return
    only_adds = {*map(absolute_source, args.documents)}.isdisjoint(settings.manifest.sources)
    updated = index_update.update_index(settings, update, lambda line: print_line(line))
    print_line(summarize_update(path, updated.manifest, updated.counts, time.monotonic() - start))
    if settings.manifest.language == AUTO:
        print_line(describe_language(updated.manifest.language))
    if updated.missing and not only_adds:
        others = updated.manifest.other_sources(args.documents)
        print_line(one_line(describe_missing(updated.missing, others)))


def describe_language(detected: str | None) -> str:
    """
    >>> describe_language("english")
    'the language is english, so keywords match by their stems; --language none: as they are written'
    """
    if detected:
        return f"the language is {detected}, so keywords match by their stems; --language none: as they are written"
    return (
        "no language was recognized, so keywords match as they are written; --language NAME: by their stems"
    )


def describe_missing(missing: list[str], others: list[str]) -> str:
    """Return a notice about documents of the index that were not read; `others` are its sources that were not read.

    >>> describe_missing(["a.txt"], [])
    '1 document of the index is not among these files: a.txt; --remove-missing removes it'
    """
    verb, them = ("is", "it") if len(missing) == 1 else ("are", "them")
    counts = f"{pluralize(len(missing), 'document')} of the index {verb} not among these files"
    if others:
        return f"{counts}; name its other sources too ({', '.join(others)}) to see which of them are gone"
    names = ", ".join(missing[:SHOWN]) + ", ..." * (len(missing) > SHOWN)
    return f"{counts}: {names}; --remove-missing removes {them}"


def read_ids(names: list[str]) -> list[str]:
    """Return the ids that --remove gives, without duplicates; @FILE stands for the ids in a file."""
    ids = [
        name
        for given in names
        for name in (read_lines(given[1:]) if given.startswith("@") else [given])
        if name.strip()
    ]
    if names and not ids:
        raise BertJaxError(f"--remove {names[0]:.60} names no id; write one in each line")
    return list(dict.fromkeys(ids))


def summarize_update(path: Path, manifest: "IndexManifest", counts: "UpdateCounts", seconds: float) -> str:
    stored = f", {counts.stored:,} with stored vectors" if counts.stored else ""
    line = (
        f"{pluralize(manifest.documents, 'document')} in {pluralize(manifest.passages, 'passage')} in {path}: "
        f"{counts.new:,} new, {counts.changed:,} changed, {counts.unchanged:,} unchanged, {counts.removed:,} removed; "
        f"{pluralize(counts.encoded, 'passage')} encoded{stored}; {seconds:.1f} s"
    )
    if recall := manifest.recall:
        line += f"; recall@{recall.at} {recall.recall:.3f} with {recall.queries} passages as queries"
    if len(manifest.segments) > MANY_SEGMENTS:
        line += f"; {len(manifest.segments)} segments, which --compact merges"
    return line
