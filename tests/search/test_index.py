"""An index against brute force, bm25s and a fresh index; kills, damage, and two writers."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import bm25s
import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.search import candidates, nearest, segment_files
from bert_jax.search.documents import Document
from bert_jax.search.index import Index
from bert_jax.search.index_writer import open_writer
from bert_jax.search.segment import search_text
from bert_jax.search.segment_files import SegmentFiles
from tests.support.indexes import (
    INDEX_SETTINGS,
    MODEL_FACTS,
    change_index,
    file_contents,
    hashed_vectors,
    open_with_encoders,
    random_document,
)
from tests.support.project import ROOT


def asked(index: Index, top: int = 10) -> list:
    queries = ["w1 w2", "w3 w50 w3 and more", "w59", "nothing here", "?"]
    legs = [["keywords"], ["vectors"], ["sparse"], ["late_interaction"], None]
    return [index.search(queries, top, of_search) for of_search in legs]


def passages(index: Index) -> list[tuple[str, int, str, np.ndarray]]:
    """All that are there, by id and place: (id, start, what is read, vector)."""
    rows = [
        (*segment.document_position(n), search_text(*segment.read_passage(n)), segment.vectors[n])
        for segment in index.segments
        for n in range(len(segment.texts))
        if segment.live is None or segment.live[n]
    ]
    return sorted(rows, key=lambda row: row[:2])


@pytest.mark.slow
def test_after_any_changes_results_are_those_of_a_fresh_index_and_of_other_libraries(tmp_path):
    rng, there = random.Random(0), {}
    for step in range(8):
        new = [random_document(f"d{rng.randint(0, 80)}", rng) for _ in range(rng.randint(1, 30))]
        new = list({one.id: one for one in new}.values())
        gone = rng.sample(sorted(there), min(len(there), 5)) if step % 2 else []
        writer = change_index(tmp_path / "changed", new, gone, compact=step in (5, 7))
        there = {name: one for name, one in there.items() if name not in gone}
        there |= {one.id: one for one in new}
        if step not in (4, 5, 7):
            continue
        shuffled = rng.sample(list(there.values()), len(there))
        change_index(tmp_path / f"fresh{step}", shuffled)
        changed, fresh = (
            open_with_encoders(tmp_path / "changed"),
            open_with_encoders(tmp_path / f"fresh{step}"),
        )
        assert len(changed.segments) == (5 if step == 4 else 1 if step in (5, 7) else len(changed.segments))
        assert asked(changed) == asked(fresh) and asked(changed)[0][0]
        rows = passages(changed)
        assert [row[:3] for row in rows] == [row[:3] for row in passages(fresh)]

        theirs = bm25s.BM25()
        theirs.index(bm25s.tokenize([row[2] for row in rows], show_progress=False), show_progress=False)
        for query in ("w1 w2", "w3 w50 w3 and more"):
            (words,) = bm25s.tokenize([query], return_ids=False, show_progress=False)
            scores = theirs.get_scores(words)
            order = sorted(np.flatnonzero(scores), key=lambda n: -scores[n])[:10]
            hits = changed.search(query, retrievers=["keywords"])
            found = [(hit.id, hit.start, hit.score) for hit in hits]
            assert found == [(*rows[n][:2], float(scores[n])) for n in order]
            vectors = np.stack([row[3] for row in rows]).astype(np.float64)
            cosines = (vectors @ hashed_vectors([query])[0]).astype(np.float32)
            order = sorted(range(len(rows)), key=lambda n: -cosines[n])[:10]
            hits = changed.search(query, retrievers=["vectors"])
            assert [(hit.id, hit.start) for hit in hits] == [rows[n][:2] for n in order]
            np.testing.assert_allclose([hit.score for hit in hits], cosines[order], rtol=2e-7)
    assert writer.counts.encoded < len(rows) / 2  # a passage that is not new has its vector


@pytest.mark.parametrize(("name", "kind"), [("quantization", "binary"), ("approximate", "hnsw")])
def test_candidates_are_scored_exactly_and_their_recall_is_measured(name, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "MIN_PASSAGES", 100)
    documents = [Document(f"d{n:03}", "", f"word number {n}") for n in range(400)]
    path, settings = tmp_path / "index", replace(INDEX_SETTINGS, **{name: kind})
    change_index(path, documents[:350], settings=settings)
    # Few enough to be searched exactly.
    change_index(path, documents[350:], [f"d{n:03}" for n in range(0, 350, 7)])
    index, queries = open_with_encoders(path), hashed_vectors([f"query {n}" for n in range(20)])
    (rows, live), exact = (index.segments[0].vectors, index.segments[0].live), 0
    assert live.sum() == 300 and index.segments[1].bits is None and index.segments[1].hnsw is None
    for query, ranking in zip(queries, index.rank_nearest(queries, 10), strict=True):
        assert len(ranking) == 10 and not any(
            passage % 7 == 0 for segment, passage in ranking if segment == 0
        )
        all_rows = np.concatenate([rows[live], index.segments[1].vectors]).astype(np.float64)
        best = np.sort((all_rows @ query).astype(np.float32))[::-1][:10]
        found = np.array([*ranking.values()])
        assert np.isin(found[found >= best[-1]], best).all()
        exact += (found >= best[-1]).sum()
    assert (
        exact / 200 > 0.95
        and 0.95 < index.manifest.recall.recall <= 1
        and index.manifest.recall.queries == 200
    )
    monkeypatch.setattr(nearest, "find_candidates", lambda *some: nearest.find_exact_candidates(*some[:2], 1))
    assert nearest.measure_recall(index.segments).recall < 0.1  # who finds itself alone finds little
    monkeypatch.undo()
    change_index(path, compact=True, settings=replace(INDEX_SETTINGS, **{name: None}))
    assert open_with_encoders(path).manifest.exact


def test_fusion_is_that_of_the_scores_around_their_mean(tmp_path):
    change_index(tmp_path / "index", [random_document(f"d{n}", random.Random(n)) for n in range(60)])
    weights = {"keywords": 0.5, "vectors": 2.0, "sparse": 1.5, "late_interaction": 0.7}
    index = open_with_encoders(tmp_path / "index")
    alone = {leg: np.array([hit.score for hit in index.search("w1 w2 w9", 100, [leg])]) for leg in weights}
    hits = index.search("w1 w2 w9", 300, weights=weights)
    for hit in hits:
        sums = sum(
            weights[leg] * max(0, 0.5 + (hit.rankings[leg].score - scores.mean()) / (6 * scores.std()))
            for leg, scores in alone.items()
            if leg in hit.rankings
        )
        assert hit.score == hit.rankings["fusion"].score == pytest.approx(sums, rel=1e-12)
    assert {len(hit.rankings) for hit in hits} == {3, 5}
    assert len(alone["vectors"]) == 100 < sum("vectors" in hit.rankings for hit in hits)  # the first count
    for wrong, message in (
        ({"retrievers": ["words"]}, "words"),
        ({"weights": {"vector": 1}}, '"vector"'),
        ({"weights": {"vectors": -1}}, "vectors"),
        ({"top_k": 0}, "top_k"),
        ({"rerank_top": -1}, "rerank_top"),
    ):
        with pytest.raises(BertJaxError, match=message):
            open_with_encoders(tmp_path / "index").search("w1", **wrong)


def test_an_open_index_goes_on_while_documents_come_and_go(tmp_path):
    path = tmp_path / "index"
    change_index(path, [random_document(f"a{n}", random.Random(n)) for n in range(20)])
    reader = open_with_encoders(path)
    before = asked(reader)
    change_index(path, [random_document(f"b{n}", random.Random(n)) for n in range(20)], ["a1"], compact=True)
    assert not (path / "segments/000001").exists() and asked(reader) == before
    reader.refresh()
    assert asked(reader) == asked(open_with_encoders(path)) != before
    assert len(reader) == 39


def test_refreshing_forgets_the_encoder_of_another_model(tmp_path):
    path, documents = tmp_path / "index", [random_document("a", random.Random(0))]
    change_index(path, documents)
    reader = open_with_encoders(path)
    reader.refresh()
    assert reader.encoders
    shutil.rmtree(path)
    change_index(
        path, documents, settings=replace(INDEX_SETTINGS, model=replace(MODEL_FACTS, fingerprint="other"))
    )
    reader.refresh()
    assert not reader.encoders


def test_a_reader_goes_on_when_a_writer_removes_the_segment_that_it_opens(tmp_path, monkeypatch):
    monkeypatch.setattr(nearest, "MIN_PASSAGES", 100)
    path, settings, read = (
        tmp_path / "index",
        replace(INDEX_SETTINGS, approximate="hnsw"),
        candidates.open_hnsw,
    )
    change_index(path, [Document(f"d{n:03}", "", f"word number {n}") for n in range(150)], settings=settings)

    def compacting(files: SegmentFiles, *shape):
        monkeypatch.setattr(candidates, "open_hnsw", read)
        change_index(path, compact=True, settings=settings)
        return read(files, *shape)

    monkeypatch.setattr(candidates, "open_hnsw", compacting)
    assert Index.open(path).manifest.changes == 2
    (tmp_path / "hnsw.faiss").write_bytes(b"no index")
    with pytest.raises(BertJaxError, match="hnsw.faiss"):
        read(SegmentFiles(tmp_path), 150, 16)


KILLED = """
import os, pathlib, random, signal, sys, traceback
from bert_jax.search import cache, index_manifest
from tests.support import indexes
cache.tokens_per_batch, cache.PARTS = lambda: 8, 1
KILLS = {
    "encode": (indexes, "token_rows", 4),
    "commit": (index_manifest, "write_index_manifest", 1),
}

def kill_at(module, name, calls):
    function, left = getattr(module, name), list(range(calls))
    def counted(*arguments):
        left.pop()
        return function(*arguments) if left else os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, counted)

def add(place, at):
    if at:
        kill_at(*KILLS[at])
    documents = [indexes.random_document(f"d{n}", random.Random(n)) for n in range(30)]
    writer = indexes.change_index(pathlib.Path(place), documents)
    pathlib.Path(place + ".count").write_text(str(writer.counts.encoded))

def run(place, at):
    process = os.fork()
    if not process:
        try:
            add(place, at)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(process, 0)[1] == (signal.SIGKILL if at else 0), (place, at)

for place in sys.argv[1:]:
    run(place, KILLS.get(pathlib.Path(place).name) and pathlib.Path(place).name)
"""


def run_killed(folder: Path, *places: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", KILLED, *(str(folder / place) for place in places)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_killed_it_resumes_to_the_same_bytes(tmp_path):
    kills = ("encode", "commit")
    change_index(tmp_path / "before", [random_document(name, random.Random(100)) for name in ("d1", "e")])
    for place in ("whole", *kills):
        shutil.copytree(tmp_path / "before", tmp_path / place)
    run_killed(tmp_path, "whole", *kills)
    for at in kills:
        assert asked(open_with_encoders(tmp_path / at, verify=True)) == asked(
            open_with_encoders(tmp_path / "before")
        )
        assert any((tmp_path / at / "building").iterdir())
        (tmp_path / at).rename(tmp_path / f"{at} again")
    run_killed(tmp_path, *(f"{at} again" for at in kills))
    whole = int((tmp_path / "whole.count").read_text())
    for at in kills:
        assert file_contents(tmp_path / f"{at} again") == file_contents(tmp_path / "whole")
        left = (
            whole - 24 if at == "encode" else 0
        )  # all vectors, all sparse ones and three windows of token vectors were finished
        assert int((tmp_path / f"{at} again.count").read_text()) == left


def test_a_flipped_byte_is_noticed(tmp_path, capsys, monkeypatch):
    path = tmp_path / "index"
    change_index(path, [random_document(f"d{n}", random.Random(n)) for n in range(20)])
    change_index(path, remove=["d3", "d7"])
    for name in ("index.json", "removed/000001-000002.npy", *(f"segments/000001/{n}.npy" for n in (
        "ids", "spans", "documents", "order", "lengths", "vectors", "postings", "frequencies", "texts", "words",
    ))):  # fmt: skip
        whole = (path / name).read_bytes()
        broken = bytearray(whole)
        broken[len(whole) * 3 // 4] ^= 1
        (path / name).write_bytes(broken)
        is_small = Path(name).stem not in ("vectors", "postings", "frequencies", "texts")
        with pytest.raises(BertJaxError, match=r"hash differs|not valid JSON"):
            Index.open(path)
        with monkeypatch.context() as patched:
            patched.setattr(segment_files, "SMALL", 0)
            if not is_small:
                Index.open(path)
            for command in (["check", path], ["search", path, "w1", "--retrievers", "keywords", "--verify"]):
                assert main([*map(str, command)]) == 1
                error = capsys.readouterr().err
                assert error.count("\n") == 1 and Path(name).name in error
        (path / name).write_bytes(whole)
    whole = (path / "index.json").read_text()
    (path / "index.json").write_text(whole.replace('"overlap": 3', '"overlap": 4'))
    with pytest.raises(BertJaxError, match="index.json"):
        Index.open(path)
    (path / "index.json").write_text(whole.replace('"version": 2', '"version": 0'))
    with pytest.raises(BertJaxError, match="has version 0, but 2 is needed"):
        Index.open(path)
    (path / "index.json").write_text(whole)
    (path / "segments/000001/vectors.npy").write_bytes(b"")
    with pytest.raises(BertJaxError, match="vectors.npy"):
        Index.open(path)


def test_a_second_writer_is_refused_and_what_is_not_there_cannot_be_removed(tmp_path):
    path = tmp_path / "index"
    change_index(path, [random_document("a", random.Random(0))])
    with open_writer(path), pytest.raises(BertJaxError, match="another process"):
        change_index(path, [random_document("b", random.Random(1))])
    with pytest.raises(BertJaxError, match='"b"'):
        change_index(path, remove=["b"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").touch()
    with pytest.raises(BertJaxError, match="letter.txt"):
        change_index(tmp_path / "mine", [random_document("b", random.Random(1))])
    change_index(path, remove=["a"])
    assert len(Index.open(path)) == 0 and asked(open_with_encoders(path)) == [[[]] * 5] * 5
