"""`bert-jax info INDEX`: what an index holds, and how it is searched."""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bert_jax.errors import one_line
from bert_jax.files import to_json
from bert_jax.search import manifest as manifests
from bert_jax.search.index import Index
from bert_jax.terminal import in_width

SHOWN = 5  # ids of documents


def describe(directory: str, as_json: bool = False) -> str:
    index = Index.open(directory)
    found, first = index.manifest, list(islice(ids_of(directory), SHOWN))
    size = (Path(directory) / manifests.FILE).stat().st_size + sum(
        facts["bytes"] for _, facts in found.files()
    )
    model = found.model
    if as_json:
        facts = {
            "directory": directory, "documents": len(index), "passages": found.passages, "bytes": size,
            "model": model and model.path, "dimensions": model and model.dimensions, "legs": index.legs,
            "passage_tokens": found.passage_tokens, "overlap": found.overlap, "quantization": found.quantization,
            "approximate": found.approximate, "recall": found.recall and found.recall.recall,
            "segments": len(found.segments), "sources": found.sources, "first_ids": first,
        }  # fmt: skip
        return to_json(facts, indent=2)
    faster = found.quantization or found.approximate
    recall = f", recall@{found.recall.at} {found.recall.recall:.3f}" if found.recall else ""
    lines = {
        "directory": f"{directory}, {size / 1e6:,.1f} MB in {len(found.segments):,} segments",
        "documents": f"{len(index):,} in {found.passages:,} passages of up to {found.passage_tokens} tokens, of which "
        f"neighbours share {found.overlap}",
        "model": f"{model.path}, vectors of {model.dimensions:,}" if model else "none",
        "legs": ", ".join(index.legs),
        "search": f"candidates by {faster}{recall}" if faster else "exact",
        "sources": ", ".join(found.sources),
        "first ids": ", ".join(first) + ", ..." * (len(index) > len(first)),
    }
    rows = [f"{name:<12}{one_line(value)}" for name, value in lines.items() if value]
    return "\n".join(in_width(row, sys.stdout, indent=12) for row in rows)


def ids_of(directory: str) -> Iterator[str]:
    for segment in Index.open(directory).segments:
        for number in segment.there():
            yield one_line(segment.ids[number], longest=1 << 20)
