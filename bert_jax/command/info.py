"""The verb `info`."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bert_jax.command.flags import JSON, flag, verb
from bert_jax.core.errors import BertJaxError, one_line
from bert_jax.core.files import to_json
from bert_jax.core.terminal import pluralize, wrap_for_terminal

if TYPE_CHECKING:
    from bert_jax.search.index import Index

SHOWN = 5  # document ids in the output


@verb(
    "show what a model or an index holds, and what is unusual about it",
    "bert-jax info path/to/model --json",
    flag("directory", help="Hugging Face model directory, or index"),
    flag("--ids", action="store_true", help="print the ids of all documents of an index"),
    JSON,
)
def info(args):
    from bert_jax.search.index_manifest import is_index

    if args.ids and args.json:
        raise BertJaxError("--ids prints one id per line; leave --json out")
    if args.ids or is_index(args.directory):
        from bert_jax.search.index import Index

        index = Index.open(args.directory)
        for line in document_ids(index) if args.ids else [describe_index(index, args.directory, args.json)]:
            print(line)
        return
    from bert_jax.report.model_info import describe_model

    print(describe_model(args.directory, as_json=args.json))


def describe_index(index: "Index", directory: str, as_json: bool) -> str:
    from bert_jax.search.index_manifest import INDEX_FILE

    manifest, first = index.manifest, list(islice(document_ids(index), SHOWN))
    size = (Path(directory) / INDEX_FILE).stat().st_size + sum(
        facts["bytes"] for _, facts in manifest.files()
    )
    model, sparse_model, token_model = manifest.model, manifest.sparse_model, manifest.multi_vector_model
    if as_json:
        facts = {
            "directory": directory, "documents": len(index), "passages": manifest.passages, "bytes": size,
            "model": model and model.path, "dimensions": model and model.dimensions, "retrievers": index.retrievers,
            "sparse_model": sparse_model and sparse_model.path,
            "max_active_dims": sparse_model and sparse_model.max_active_dims,
            "multi_vector_model": token_model and token_model.path, "pool_factor": manifest.pool_factor,
            "passage_tokens": manifest.passage_tokens, "overlap": manifest.overlap,
            "language": manifest.language, "quantization": manifest.quantization, "approximate": manifest.approximate,
            "recall": manifest.recall and manifest.recall.recall,
            "segments": len(manifest.segments), "sources": manifest.sources, "first_ids": first,
        }  # fmt: skip
        return to_json(facts, indent=2)
    faster = manifest.quantization or manifest.approximate
    recall = f", recall@{manifest.recall.at} {manifest.recall.recall:.3f}" if manifest.recall else ""
    lines = {
        "directory": f"{directory}, {size / 1e6:,.1f} MB in {pluralize(len(manifest.segments), 'segment')}",
        "documents": f"{len(index):,} in {manifest.passages:,} passages of up to {manifest.passage_tokens} tokens, of "
        f"which neighbours share {manifest.overlap}",
        "model": f"{model.path}, vectors of {model.dimensions:,}" if model else "none",
        "sparse": f"{sparse_model.path}, at most {sparse_model.max_active_dims} tokens of a passage"
        if sparse_model
        else "",
        "tokens": f"{token_model.path}, vectors of {token_model.dimensions:,} for each token"
        if token_model
        else "",
        "retrievers": ", ".join(index.retrievers),
        "language": f"{manifest.language}, stemmed" if manifest.stemmed_language else "none, not stemmed",
        "search": f"candidates by {faster}{recall}" if faster else "exact",
        "sources": ", ".join(manifest.sources),
        "first ids": ", ".join(first) + ", ..." * (len(index) > len(first)),
    }
    rows = [f"{name:<12}{one_line(value)}" for name, value in lines.items() if value]
    return "\n".join(wrap_for_terminal(row, sys.stdout, indent=12) for row in rows)


def document_ids(index: "Index") -> Iterator[str]:
    for segment in index.segments:
        for number in segment.live_documents():
            yield one_line(segment.ids[number], longest=1 << 20)
