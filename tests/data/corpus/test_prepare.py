"""Corpora from every kind of input, and from inputs that are wrong."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus import chunks, join_chunks
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.text.sentences import split_sentences
from bert_jax.text.text_source import LONGEST_LINE, TextSource
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.support.made_up_language import random_documents, save_tokenizer, token_ids
from tests.support.project import ROOT

DOCUMENTS = random_documents(40, seed=9)
TEXTS = ["\n".join(" ".join(sentence) for sentence in document) for document in DOCUMENTS]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("vocabulary"))


def write_folder(root: Path) -> Path:
    (root / "folder" / "deeper").mkdir(parents=True)
    for i, text in enumerate(TEXTS):
        (root / "folder" / ("deeper" if i >= 20 else ".") / f"{i:03d}.txt").write_text(text)
    (root / "folder" / ".hidden").write_text("not this")
    return root / "folder"


def write_parquet(root: Path) -> Path:
    parquet.write_table(pyarrow.table({"n": range(len(TEXTS)), "text": TEXTS}), root / "x.parquet")
    return root / "x.parquet"


def writer(name: str, content: str, pack=lambda raw: raw):
    def write(root: Path) -> Path:
        (root / name).write_bytes(pack(content.encode()))
        return root / name

    return write


PLAIN = "\n\n".join(TEXTS) + "\n"
ROWS = "".join(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(TEXTS))
INPUTS = {
    "blank lines, gz": (writer("x.txt.gz", PLAIN, gzip.compress), "blank"),
    "one sentence a line": (writer("x.txt", PLAIN), "sentences"),
    "windows": (writer("x.txt", "\ufeff" + PLAIN.replace("\n", "\r\n")), "blank"),
    "a file each": (write_folder, "file"),
    "jsonl": (writer("x.jsonl", ROWS), "blank"),
    "jsonl.zst": (writer("x.jsonl.zst", ROWS, zstandard.compress), "blank"),
    "parquet": (write_parquet, "blank"),
}


def arrays(directory, part="train"):
    return {name: np.load(directory / part / f"{name}.npy") for name in ("tokens", "sentences", "documents")}


def prepare(source: TextSource, vocabulary, output, validation_ratio: float = 0) -> dict:
    return prepare_corpus(source, vocabulary, output, validation_ratio=validation_ratio, processes=1)[
        "counts"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_input_gives_the_same_corpus(kind, vocabulary, tmp_path):
    write, layout = INPUTS[kind]
    prepare(TextSource([write(tmp_path)], layout), vocabulary, tmp_path / "corpus")
    found = arrays(tmp_path / "corpus")
    sentences = [token_ids(sentence) for document in DOCUMENTS for sentence in document]
    assert found["tokens"].dtype == np.uint16
    assert found["tokens"].tolist() == [i for sentence in sentences for i in sentence]
    assert found["sentences"].tolist() == np.cumsum([0, *map(len, sentences)]).tolist()
    assert found["documents"].tolist() == np.cumsum([0, *map(len, DOCUMENTS)]).tolist()


def test_many_inputs_at_once_and_hard_wrapped_paragraphs(vocabulary, tmp_path):
    (tmp_path / "a.txt").write_text("w1 w2\nw3. W4 w5\n\nw6 w7\n")
    (tmp_path / "b.txt").write_text("w8 w9\nw10\n")
    inputs = [str(tmp_path / "[ab].txt"), str(tmp_path / "a.txt")]
    prepare(TextSource(inputs, "file"), vocabulary, tmp_path / "corpus")
    tokenizer, found = Corpus(tmp_path / "corpus").tokenizer, arrays(tmp_path / "corpus")
    sentences = np.split(found["tokens"], found["sentences"][1:-1].astype(int))
    texts = ("w1 w2 w3.", "W4 w5", "w6 w7", "w8 w9", "w10")
    assert [s.tolist() for s in sentences] == tokenizer.ids(texts)
    assert found["documents"].tolist() == [0, 3, 5]


def test_sentences_with_wide_spaces():
    """sentencex panics on them, and takes the worker along."""
    text = "So W\xa0.D. Harrigan did. So\u2003did A\u3000. Another."
    assert "".join(split_sentences(text, "blank", "en")).replace(" ", "") == "".join(text.split())


def test_duplicates_are_dropped_and_lines_counted(vocabulary, tmp_path, monkeypatch):
    monkeypatch.setattr(join_chunks, "SLICE", 7)  # many slices and chunks, as of a large corpus
    monkeypatch.setattr(chunks, "CHUNK", 2000)
    texts = [*TEXTS, TEXTS[3], f"  {TEXTS[5]}\n", TEXTS[3], TEXTS[7] + "\nw1"]
    (tmp_path / "x.txt").write_text("\n\n".join(texts))
    counts = prepare(TextSource([tmp_path / "x.txt"]), vocabulary, tmp_path / "corpus")
    assert counts["duplicate_documents"] == 3 and counts["train"]["documents"] == len(TEXTS) + 1
    lines = [line.strip() for text in texts for line in text.strip().split("\n")]
    assert (counts["lines"], counts["repeated_lines"]) == (len(lines), len(lines) - len(set(lines)))


@pytest.mark.slow
def test_documents_are_held_out_whole_and_by_their_text(vocabulary, tmp_path):
    held = []
    for name, texts in (("a", TEXTS), ("b", TEXTS[::-1])):
        (tmp_path / f"{name}.txt").write_text("\n\n".join(texts))
        counts = prepare(TextSource([tmp_path / f"{name}.txt"]), vocabulary, tmp_path / name, 0.1)
        assert [counts[part]["documents"] for part in ("train", "validation")] == [36, 4]
        found = arrays(tmp_path / name, "validation")
        bounds = found["sentences"][found["documents"][1:-1].astype(int)].astype(int)
        held.append({tuple(document) for document in np.split(found["tokens"], bounds)})
    documents = {tuple(sum(map(token_ids, document), [])) for document in DOCUMENTS}
    assert held[0] == held[1] and held[0] < documents


def run(*arguments) -> int:
    return main(["prepare", *map(str, arguments)])


BAD = {
    "empty file": ("x.txt", b"", [], "every input is empty"),
    "empty file, strict": ("x.txt", b" \n\n", ["--strict"], "x.txt is empty; remove it"),
    "binary": ("x.txt", b"\x89PNG\0\1\2", [], "x.txt line 1 has NUL bytes: binary or UTF-16"),
    "archive": ("x.tar.gz", gzip.compress(b"x.txt\0"), [], "unpack the archive, and name its files"),
    "broken UTF-8, strict": ("x.txt", b"fine\nbr\xffken\n", ["--strict"], "(its byte 3)"),
    "a long line": ("x.txt", b"a " * (50 << 20), [], f"line 1 is longer than {LONGEST_LINE >> 20} MB"),
    "no zstd": ("x.txt.zst", b"no zstd", [], "x.txt.zst cannot be read"),
    "missing column": ("x.jsonl", b'{"txet": "a"}\n', [], 'no column "text"; did you mean "txet"'),
    "column of numbers": ("x.jsonl", b'{"text": 3}\n', [], "holds a number, not text"),
    "duplicates only": ("x.txt", b"w1 w2\n\n" * 50, [], "all 50 documents are the same text"),
    "too few to hold out": ("x.txt", b"w1 w2\n\nw3\n", [], "2 documents are too few for a validation set"),
    "nothing there": ("y.txt", b"", ["--input", "nowhere.txt"], "no file at nowhere.txt"),
    "no tokenizer": ("x.txt", b"w1\n", ["--tokenizer", "nowhere"], "nowhere"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_one_clear_line(kind, vocabulary, tmp_path, capsys):
    name, content, flags, complaint = BAD[kind]
    (tmp_path / name).write_bytes(content)
    arguments = ["--input", tmp_path / name, "--tokenizer", vocabulary, "--output", tmp_path / "out", *flags]
    assert run(*arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and complaint in printed.err
    assert not (tmp_path / "out").exists()


def test_a_column_is_that_of_the_tables_alone(tmp_path):
    table, text = str(write_parquet(tmp_path)), str(tmp_path / "a.txt")
    assert [*TextSource([table], column="TEXT").documents()] == [*TEXTS]
    with pytest.raises(BertJaxError, match='did you mean "text"'):
        [*TextSource([table], column="txt").documents()]
    Path(text).write_text("w1 w2\n")
    with pytest.raises(BertJaxError, match=r'a.txt has no column "body": files of text have none'):
        TextSource([text], column="body")
    assert TextSource([text, table], column="body").files


def test_odd_input_is_counted_and_said(vocabulary, tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(PLAIN.encode() + b"\nw1 \xff\xfe w2\n")
    (tmp_path / "b.txt").write_bytes(b"")
    inputs = ["--input", tmp_path / "a.txt", tmp_path / "b.txt"]
    assert run(*inputs, "--tokenizer", vocabulary, "--output", tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "1 lines of broken UTF-8, bad bytes replaced" in printed and "1 empty files" in printed
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["source"]["broken_lines"] == 1


def test_a_corpus_in_a_bucket(vocabulary, tmp_path, monkeypatch):
    """file:// stands in for gs://, both are file systems of pyarrow."""
    (tmp_path / "x.txt").write_text(PLAIN)
    made = prepare_corpus(TextSource([tmp_path / "x.txt"]), vocabulary, tmp_path / "corpus", processes=1)
    shutil.copytree(tmp_path / "corpus", tmp_path / "bucket")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket = f"file://{tmp_path}/bucket"
    for name in (bucket, f"{bucket}/"):
        corpus = Corpus(name)
        assert np.array_equal(corpus.train.tokens, Corpus(tmp_path / "corpus").train.tokens)
    (local,) = (tmp_path / "cache/bert_jax/corpora").iterdir()
    (local / next(iter(made["files"]))).write_bytes(b"cut")
    (local.parent / f".{local.name}.abcdefgh.partial").mkdir()  # of a copy that was killed
    assert np.array_equal(Corpus(bucket).train.tokens, corpus.train.tokens)
    assert [*local.parent.iterdir()] == [local]
    (tmp_path / "bucket" / list(made["files"])[-1]).unlink()
    shutil.rmtree(local)
    for name in (bucket, f"file://{tmp_path}/elsewhere", "nowhere://bucket", "gs://a bucket"):
        with pytest.raises(BertJaxError, match="the corpus cannot be copied"):
            Corpus(name)
    assert not [*local.parent.iterdir()]


def test_a_chunk_is_on_the_disk_before_it_has_its_name(vocabulary, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(
        chunks, "sync_to_disk", lambda path: calls.append((path.name, path.stat().st_size > 0))
    )
    recipe = chunks.ChunkSettings(str(vocabulary), "", False, "blank", "en")
    path = tmp_path / "a.npz"
    monkeypatch.setattr(os, "replace", lambda old, new: calls.append((old.name, new.name)))
    chunks.make_chunk(TEXTS[:2], path, recipe, open_tokenizer(vocabulary))
    assert calls == [("a.npz.partial", True), ("a.npz.partial", "a.npz")]


@pytest.mark.slow
def test_a_script_without_a_guard_is_not_run_again_by_the_workers(vocabulary, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS))
    script = tmp_path / "script.py"
    script.write_text(
        f"import bert_jax\nbert_jax.prepare('text.txt', {str(vocabulary)!r}, 'corpus')\nprint('once', __file__)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout) == (0, f"once {script}\n"), ran.stderr
