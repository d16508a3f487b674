"""Damaged files of an index: what is done with it is refused in one line, or right."""

import json
import random
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from bert_jax.core import output
from bert_jax.core.errors import BertJaxError
from bert_jax.core.hashes import seal
from bert_jax.runs.integrity import check_directory
from bert_jax.search import nearest, segment_files
from bert_jax.search.index import Index
from tests.hostile.outcomes import LINE, RIGHT
from tests.support.cases import long_except
from tests.support.indexes import (
    INDEX_SETTINGS,
    change_index,
    file_contents,
    random_document,
)
from tests.support.processes import process_environment

QUERIES = ["w1 w2", "w3 w50 w3 and more", "w59", "nothing here"]
DOCUMENTS = [random_document(f"d{n:02}", random.Random(n)) for n in range(30)]


@pytest.fixture(autouse=True)
def small_and_fast(monkeypatch):
    monkeypatch.setattr(nearest, "MIN_PASSAGES", 20)
    monkeypatch.setattr(output, "sync_to_disk", lambda path: None)


def ask(index: Index) -> list:
    legs = [["keywords"], ["vectors"], ["sparse"], ["late_interaction"], None]
    return [index.search(QUERIES, 10, of_search) for of_search in legs]


def test_damage_of_large_files_is_not_copied(tmp_path, monkeypatch):
    """And where it would be read, it is refused: a text that is another, a passage that is none."""
    monkeypatch.setattr(segment_files, "SMALL", 0)
    change_index(tmp_path / "index", DOCUMENTS[:8])
    before = file_contents(tmp_path / "index")
    queries = [
        *QUERIES,
        DOCUMENTS[7].text.split()[-1],
        max(word for one in DOCUMENTS[:8] for word in one.text.split()),
    ]

    def search(path):
        Index.open(path).search(queries, 20, ["keywords"])

    def add(path):
        change_index(path, [replace(DOCUMENTS[3], id="again")])

    def compact(path):
        change_index(path, compact=True)

    for name, place, verbs in (
        ("vectors.npy", 300, [add, compact]),
        ("token_vectors.npy", 300, [add, compact]),
        ("token_vectors.starts.npy", 300, [add, compact, Index.open]),
        ("texts.npy", -1, [search, compact]),
        ("postings.npy", -1, [search, compact]),
        ("frequencies.npy", -1, [search, compact]),
        ("texts.npy", 20, [check_directory]),
        ("vectors.npy", 20, [Index.open]),  # of its header
        ("postings.npy", 20, [Index.open]),
        ("token_vectors.npy", 20, [Index.open]),
        ("token_encodings.npy", 20, [Index.open]),
    ):
        file = tmp_path / "index/segments/000001" / name
        whole = file.read_bytes()
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        file.write_bytes(damaged)
        for verb in verbs:
            with pytest.raises(BertJaxError, match=f"{name} is damaged"):
                verb(tmp_path / "index")
        file.write_bytes(whole)
    assert file_contents(tmp_path / "index") == before


OPENED_THEN_CUT = """
import json, os, sys
from pathlib import Path
from bert_jax.search import segment_files
from tests.hostile import test_index_damage as damage
from tests.support import indexes
from tests.hostile.fuzz_cases import tried

whole, held = Path(sys.argv[1]), sys.argv[2] == "held"
segment_files.SMALL = segment_files.SMALL if held else 0
outcomes = {}
for path in sorted(whole.rglob(sys.argv[3])):
    content = path.read_bytes()
    read, write = os.pipe()
    if not os.fork():  # a signal would end it
        index = indexes.open_with_encoders(whole)
        expected = damage.ask(index)
        os.truncate(path, 0)
        outcome = tried(lambda: damage.ask(index), lambda value: value == expected)
        os.write(write, json.dumps([outcome.kind, outcome.detail]).encode())
        os._exit(0)
    os.close(write)
    ended = os.waitstatus_to_exitcode(os.wait()[1])
    outcomes[path.name] = json.loads(os.read(read, 4096)) if not ended else ["signal", -ended]
    path.write_bytes(content)
print(json.dumps(outcomes))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidates", "kept", "files", "count", "kind"),
    long_except(
        [
            ("binary", "mapped", "postings*.npy", 2, LINE),
            ("binary", "mapped", "*.npy", 26, LINE),
            ("binary", "held", "*.npy", 26, RIGHT),
            ("hnsw", "mapped", "*.faiss", 1, LINE),
        ],
        [("binary", "mapped", "postings*.npy", 2, LINE)],
    ),
)
def test_an_open_index_whose_files_are_cut_in_place_says_so(tmp_path, candidates, kept, files, count, kind):
    """What is held in memory, because it is small, is searched as it was."""
    whole = tmp_path / "whole"
    setting = {"quantization" if candidates == "binary" else "approximate": candidates}
    change_index(whole, DOCUMENTS[:20], settings=replace(INDEX_SETTINGS, **setting))
    ran = subprocess.run(
        [sys.executable, "-c", OPENED_THEN_CUT, str(whole), kept, files],
        env=process_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout)
    assert len(outcomes) == count
    for name, (came, line) in outcomes.items():
        assert came == kind and (
            kept == "held" or f"{name} was shortened while the index was open" in line
        ), line


def test_an_index_whose_facts_cannot_be_is_refused(tmp_path):
    """Of a stranger, who seals what is wrong."""
    path = tmp_path / "index"
    change_index(path, DOCUMENTS[:8])
    change_index(path, remove=["d03", "d05"])
    whole = json.loads((path / "index.json").read_text())
    del whole["self"]
    for place, value, message in (
        (["segments", 1], whole["segments"][0], "lists segment 000001 twice"),
        (["segments", 0, "name"], "../segments/000001", "a segment '../segments/000001'"),
        (["segments", 0, "name"], "000003", "none of its 2 changes wrote"),
        (["segments", 0, "documents"], -8, "-8 documents"),
        (["segments", 0, "files"], {}, "files of segment 000001"),
        (["segments", 0, "files", "../../index.json"], {"bytes": 1, "blake2b": ""}, "not a file in it"),
        (["segments", 0, "removed", "name"], "/etc/passwd", "'/etc/passwd' as documents"),
        (["segments", 0, "removed", "documents"], 8, "8 documents were removed from the 8"),
        (["overlap"], 10**30, "neighbours share"),
        (["model", "dimensions"], 10**9, "vectors.npy is damaged"),
        (["approximate"], "hnswx", 'searched by "None" and "hnswx"'),
        (["language"], "klingon", 'its language is "klingon"'),
        (["sources"], "a", "is a text, not a list"),
    ):
        content = json.loads(json.dumps(whole))
        within = content
        for key in place[:-1]:
            within = within[key]
        if isinstance(within, list) and place[-1] == len(within):
            within.append(value)
        else:
            within[place[-1]] = value
        (path / "index.json").write_text(json.dumps(seal(content)))
        with pytest.raises(BertJaxError, match=re.escape(message)):
            check_directory(str(path))
