"""Plans: tables that say which spans of a corpus make up each example, computed from sentence lengths alone.

A plan is a function of (corpus, seed, length, number). Its table has one row per example, with the places of the
example's spans of tokens. It is built in one pass, kept on disk, and memory-mapped. Random draws are keyed by document,
so that they depend neither on block sizes nor on threads. The kinds of plan, in sentence_pairs.py and
full_sentences.py, make the rows of a block of documents at once.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import file_hash, read_json, write_atomically
from bert_jax.data.corpus.corpus_directory import CorpusSplit
from bert_jax.data.npy_writer import npy_writer
from bert_jax.data.randomness import random_key

BLOCK = 1 << 16  # documents in a block; bounds the memory
VERSION = 1  # increase it if the same arguments would give other rows


@dataclass(frozen=True)
class SegmentPlan:
    """A plan. `table` has one row per example: `start` and `length` of its spans in the token array, `label`, `weight`.

    A span of length 0 is absent. `counts` holds how much text was used and dropped.
    """

    table: np.ndarray
    counts: dict[str, int]

    def __len__(self) -> int:
        return len(self.table)


# What a kind of plan yields: rows of the table, and how much text they use and drop.
Part = tuple[np.ndarray, dict[str, int]]


def row_type(spans: int) -> np.dtype:
    return np.dtype([("start", "<u8", spans), ("length", "<u4", spans), ("label", "u1"), ("weight", "u1")])


def load_or_build(corpus_split: CorpusSplit, planner, seed: int, length: int, number: int) -> SegmentPlan:
    """Load the plan of these arguments, or build and save it."""
    # The name of a plan on disk depends on `repr(planner)`, so do not rename the class of `planner` or its fields.
    key = random_key("plan", VERSION, corpus_split.identity, planner, seed, length, number)
    path = corpus_split.plans / f"{planner.name}-{length}-seed{seed}-{number}-{int(key):016x}.npy"
    facts_path = path.with_suffix(".json")
    facts = kept_facts(path, facts_path)
    if facts is None:
        counts: Counter[str] = Counter()
        with npy_writer(path, row_type(planner.spans), shared=True) as rows:
            for first in range(0, corpus_split.count, BLOCK):
                documents = np.arange(first, min(first + BLOCK, corpus_split.count))
                for table, of_table in planner.make_rows(corpus_split, length, key, documents):
                    rows.append(table)
                    counts.update(of_table)
        facts = hashes.seal({"blake2b": file_hash(path), "counts": {**counts, "examples": rows.rows}})
        write_atomically(facts_path, json.dumps(facts), shared=True)
    return SegmentPlan(np.asarray(np.load(path, mmap_mode="r")), facts["counts"])


def kept_facts(path: Path, facts_path: Path) -> dict | None:
    """Read the facts of a plan on disk; None if it is damaged or absent: a plan is only a cache and is built again."""
    try:
        facts = read_json(facts_path)
        return facts if hashes.is_sealed(facts) and facts["blake2b"] == file_hash(path) else None
    except (FileNotFoundError, BertJaxError):
        return None
