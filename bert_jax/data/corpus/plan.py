"""Plans: which pieces of a corpus make up each example, decided from sentence lengths alone.

A plan is a function of (corpus, seed, length, number): a table with one row per example that says where its
spans of tokens lie. It is built in one pass, kept on disk and memory-mapped. Random draws are keyed by
document, so that neither block sizes nor threads change them. What the rows look like is said by the kinds of
plan: pairs.py, rows.py.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax.data.arrays import growing_array
from bert_jax.data.corpus.directory import Part
from bert_jax.data.randomness import key_of
from bert_jax.files import file_hash, write_atomically

VERSION = 1  # raise it when the same arguments would give other rows


@dataclass(frozen=True)
class Plan:
    """`table` has one row per example: `start` and `length` of its spans in the token array, and `label`,
    `weight`.

    A span of length 0 is not there. `counts` says what the pass over the corpus met and dropped.
    """

    table: np.ndarray
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.table)


def row_type(spans: int) -> np.dtype:
    return np.dtype([("start", "<u8", spans), ("length", "<u4", spans), ("label", "u1"), ("weight", "u1")])


def planned(part: Part, kind, seed: int, length: int, number: int) -> Plan:
    """The plan of these arguments, from disk or built now. `kind.blocks(part, length, key)` yields its
    rows."""
    key = key_of("plan", VERSION, part.identity, kind, seed, length, number)
    path = part.plans / f"{kind.name}-{length}-seed{seed}-{number}-{int(key):016x}.npy"
    said = path.with_suffix(".json")
    if said.is_file() and path.is_file():
        meta = json.loads(said.read_text(encoding="utf-8"))
        # A plan is a cache: a damaged one is made again rather than complained about.
        if meta["blake2b"] == file_hash(path):
            return Plan(_mapped(path), meta["counts"])
    counts: dict[str, int] = {}
    with growing_array(path, row_type(kind.spans)) as rows:
        for table, met in kind.blocks(part, length, key):
            rows.append(table)
            for name, value in met.items():
                counts[name] = counts.get(name, 0) + value
    counts["examples"] = rows.rows
    write_atomically(said, json.dumps({"blake2b": file_hash(path), "counts": counts}))
    return Plan(_mapped(path), counts)


def _mapped(path: Path) -> np.ndarray:
    return np.asarray(np.load(path, mmap_mode="r"))
