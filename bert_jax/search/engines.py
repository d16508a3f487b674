"""Write passages to files that other engines load: Qdrant points, bulk requests for OpenSearch and Elasticsearch, and a
table for PostgreSQL with pgvector."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json

# Bytes per request: the smallest AWS instances accept 10 MiB, Qdrant 32 MiB and the others 100 MB.
BATCH = 8 << 20
LONGEST = 8191  # characters of an id, at four bytes each, that Lucene can index as a keyword


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of a document and their vector, which is empty if the index has only keywords."""

    document: str
    number: int  # of the passage in its document
    title: str
    text: str
    start: int
    end: int
    vector: np.ndarray

    @property
    def id(self) -> UUID:
        """An id that is the same in every export, so that loading a passage again replaces it."""
        return uuid5(NAMESPACE_URL, f"{self.document}#{self.number}")

    @property
    def payload(self) -> dict[str, str | int]:
        return {
            "document": self.document, "title": self.title, "text": self.text, "start": self.start, "end": self.end,
        }  # fmt: skip

    @property
    def numbers(self) -> str:
        """The vector as text, with enough digits for each float32, whether they are read as float32 or float64."""
        numbers = ",".join(["%.9g"] * len(self.vector)) % tuple(self.vector.tolist())
        if "n" in numbers:  # inf, nan
            raise BertJaxError(
                f'the vector of passage {self.number} of document "{self.document}" is not finite; check the weights '
                "of the model, and build the index again"
            )
        return numbers


@dataclass(frozen=True)
class Engine:
    write: Callable[[Path, Iterable[Passage], int], None]  # (folder, passages, dimensions of the vectors)
    files: re.Pattern[str]  # matches the names of the files it writes
    load: str  # the command that loads the files from folder {0}
    needs_vectors: bool = True


def write_qdrant(folder: Path, passages: Iterable[Passage], dimensions: int) -> None:
    collection = {"vectors": {"size": dimensions, "distance": "Cosine"}}
    (folder / "collection.json").write_text(to_json(collection, indent=2) + "\n")
    (folder / "load.sh").write_text(LOAD_QDRANT)
    points = (
        f'{{"id":"{passage.id}","vector":[{passage.numbers}],"payload":{compact(passage.payload)}}}'
        for passage in passages
    )
    for number, batch in enumerate(batches(points), 1):
        (folder / f"points-{number:05}.json").write_bytes(b'{"points":[\n' + b",\n".join(batch) + b"\n]}\n")


def write_opensearch(folder: Path, passages: Iterable[Passage], dimensions: int) -> None:
    # Of OpenSearch's engines, Lucene has supported cosine similarity in all versions since 2.2.
    method = {"name": "hnsw", "engine": "lucene", "space_type": "cosinesimil"}
    field = {"type": "knn_vector", "dimension": dimensions, "method": method}
    settings = {"settings": {"index": {"knn": True}}} if dimensions else {}
    write_bulk(folder, passages, settings | mappings(field if dimensions else None))


def write_elasticsearch(folder: Path, passages: Iterable[Passage], dimensions: int) -> None:
    field = {"type": "dense_vector", "dims": dimensions, "index": True, "similarity": "cosine"}
    write_bulk(folder, passages, mappings(field if dimensions else None))


def mappings(embedding: dict | None) -> dict:
    properties: dict[str, dict] = {
        "document": {"type": "keyword", "ignore_above": LONGEST},
        "title": {"type": "text"},
        "text": {"type": "text"},
        "start": {"type": "long"},
        "end": {"type": "long"},
    }
    return {"mappings": {"properties": properties | ({"embedding": embedding} if embedding else {})}}


def write_bulk(folder: Path, passages: Iterable[Passage], mapping: dict) -> None:
    (folder / "mapping.json").write_text(to_json(mapping, indent=2) + "\n")
    (folder / "load.sh").write_text(LOAD_BULK)

    def record(passage: Passage) -> str:
        source = compact(passage.payload)
        if len(passage.vector):
            source = f'{source[:-1]},"embedding":[{passage.numbers}]}}'
        return f'{{"index":{{"_id":"{passage.id}"}}}}\n{source}\n'

    for number, batch in enumerate(batches(map(record, passages)), 1):
        (folder / f"bulk-{number:05}.ndjson").write_bytes(b"".join(batch))


def write_pgvector(folder: Path, passages: Iterable[Passage], dimensions: int) -> None:
    (folder / "load.sql").write_text(LOAD_PGVECTOR.replace("DIMENSIONS", str(dimensions)))
    with open(folder / "passages.tsv", "w", encoding="utf-8", newline="\n") as file:
        for passage in passages:
            cells = [str(passage.id), *map(str, passage.payload.values()), f"[{passage.numbers}]"]
            row = "\t".join(cell.translate(ESCAPES) for cell in cells)
            if "\0" in row:
                raise BertJaxError(
                    f'document "{passage.document}" has a NUL character, which PostgreSQL cannot store; remove it and '
                    "index the document again"
                )
            file.write(row + "\n")


def compact(payload: dict) -> str:
    return to_json(payload, separators=(",", ":"))


def batches(records: Iterable[str]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for record in map(str.encode, records):
        if batch and size + len(record) > BATCH:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record) + len(",\n")
    if batch:
        yield batch


ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})  # of COPY's text format

LOAD_QDRANT = """\
#!/bin/sh
# Loads all points: sh load.sh http://localhost:6333/collections/NAME [curl options]
# The collection is created if it does not exist.
set -eu
url=${1:?give the address, such as http://localhost:6333/collections/NAME}
shift
folder=$(dirname "$0")
curl -fso /dev/null "$@" "$url" || curl --fail-with-body -sSw '\\n' "$@" -X PUT \\
  -H 'Content-Type: application/json' --data-binary "@$folder/collection.json" "$url"
for file in "$folder"/points-*.json; do
  echo "$file"
  curl --fail-with-body -sSw '\\n' "$@" -X PUT -H 'Content-Type: application/json' \\
    --data-binary "@$file" "$url/points?wait=true"
done
"""

LOAD_BULK = """\
#!/bin/sh
# Loads all passages: sh load.sh http://localhost:9200/NAME [curl options]
# The index is created if it does not exist.
set -eu
url=${1:?give the address, such as http://localhost:9200/NAME}
shift
folder=$(dirname "$0")
curl -fso /dev/null "$@" "$url" || curl --fail-with-body -sSw '\\n' "$@" -X PUT \\
  -H 'Content-Type: application/json' --data-binary "@$folder/mapping.json" "$url"
for file in "$folder"/bulk-*.ndjson; do
  echo "$file"
  answer=$(curl --fail-with-body -sS "$@" -H 'Content-Type: application/x-ndjson' \\
    --data-binary "@$file" "$url/_bulk?filter_path=errors,items.*.error") || { echo "$answer"; exit 1; }
  case $answer in *'"errors":false'*) ;; *) echo "$answer"; exit 1 ;; esac
done
"""

LOAD_PGVECTOR = r"""-- Loads all passages: psql DATABASE -f load.sql, in this folder.
-- The table is created if it does not exist.
\set ON_ERROR_STOP on
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE IF NOT EXISTS passages (
  id uuid PRIMARY KEY,
  document text NOT NULL,
  title text NOT NULL,
  text text NOT NULL,
  "start" integer NOT NULL,
  "end" integer NOT NULL,
  embedding vector(DIMENSIONS) NOT NULL
);
CREATE TEMPORARY TABLE loaded (LIKE passages) ON COMMIT DROP;
\copy loaded FROM 'passages.tsv' WITH (FORMAT text, ENCODING 'UTF8')
INSERT INTO passages SELECT * FROM loaded ON CONFLICT (id) DO UPDATE SET
  document = excluded.document, title = excluded.title, text = excluded.text,
  "start" = excluded."start", "end" = excluded."end", embedding = excluded.embedding;
COMMIT;
CREATE INDEX IF NOT EXISTS passages_embedding ON passages USING hnsw (embedding vector_cosine_ops);
"""

BULK = re.compile(r"mapping\.json|load\.sh|bulk-\d+\.ndjson")
ENGINES = {
    "qdrant": Engine(
        write_qdrant,
        re.compile(r"collection\.json|load\.sh|points-\d+\.json"),
        "sh {0}/load.sh http://localhost:6333/collections/NAME",
    ),
    "opensearch": Engine(
        write_opensearch, BULK, "sh {0}/load.sh http://localhost:9200/NAME", needs_vectors=False
    ),
    "elasticsearch": Engine(
        write_elasticsearch, BULK, "sh {0}/load.sh http://localhost:9200/NAME", needs_vectors=False
    ),
    "pgvector": Engine(
        write_pgvector, re.compile(r"load\.sql|passages\.tsv"), "cd {0} && psql DATABASE -f load.sql"
    ),
}
