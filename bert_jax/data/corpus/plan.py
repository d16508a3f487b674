"""Plans: which pieces of a corpus make up each example, decided from sentence lengths alone.

A plan is a function of (corpus, seed, length, number): a table with one row per example that holds where its
spans of tokens are. It is built in one pass, kept on disk and memory-mapped. Random draws are keyed by
document, so that neither block sizes nor threads change them. The kinds of plan decide on the rows: pairs.py, rows.py.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax import hashes
from bert_jax.data.arrays import growing_array
from bert_jax.data.corpus.directory import Part
from bert_jax.data.randomness import key_of
from bert_jax.errors import BertJaxError
from bert_jax.files import file_hash, read_json, write_atomically

VERSION = 1  # raise it when the same arguments would give other rows


@dataclass(frozen=True)
class Plan:
    """`table` has one row per example: `start` and `length` of its spans in the token array, and `label`,
    `weight`.

    A span of length 0 is absent. `counts` is what the pass over the corpus used and dropped.
    """

    table: np.ndarray
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.table)


def row_type(spans: int) -> np.dtype:
    return np.dtype([("start", "<u8", spans), ("length", "<u4", spans), ("label", "u1"), ("weight", "u1")])


def load_or_build(part: Part, kind, seed: int, length: int, number: int) -> Plan:
    """The plan of these arguments. `kind.blocks(part, length, key)` yields its rows."""
    # The name of a plan on disk depends on `repr(kind)`: its class and its fields keep their names.
    key = key_of("plan", VERSION, part.identity, kind, seed, length, number)
    path = part.plans / f"{kind.name}-{length}-seed{seed}-{number}-{int(key):016x}.npy"
    facts_path = path.with_suffix(".json")
    facts = kept_facts(path, facts_path)
    if facts is None:
        counts: Counter[str] = Counter()
        with growing_array(path, row_type(kind.spans), shared=True) as rows:
            for table, of_block in kind.blocks(part, length, key):
                rows.append(table)
                counts.update(of_block)
        facts = hashes.sealed({"blake2b": file_hash(path), "counts": {**counts, "examples": rows.rows}})
        write_atomically(facts_path, json.dumps(facts), shared=True)
    return Plan(np.asarray(np.load(path, mmap_mode="r")), facts["counts"])


def kept_facts(path: Path, facts_path: Path) -> dict | None:
    """Those of a plan on disk; None where it is damaged or not there: a plan is a cache, and is built again."""
    try:
        facts = read_json(facts_path)
        return facts if hashes.is_sealed(facts) and facts["blake2b"] == file_hash(path) else None
    except (FileNotFoundError, BertJaxError):
        return None
