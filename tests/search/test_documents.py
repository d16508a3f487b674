"""Documents of every kind of file, good and hostile."""

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.search.documents import DocumentSource
from bert_jax.text import document_formats
from tests.support.document_files import read_documents


def test_documents_of_every_kind(tmp_path):
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    files = {
        "a.txt": "\ufeffThe cat sat.".encode(),
        "deep/b.MD": b"---\nlang: en\n---\n# Cats\n",
        "deep/new\nline.txt": b"x",
        "c.html": b"<html><head><title>A &amp;\n B</title><script>if (a<b) {}</script></head><p>One<br>two<!-- <p>no",
        "rows.jsonl": b'{"_id": 7, "title": null, "text": "seven"}\n\n{"_id": "8", "title": "Eight", "text": ""}\n'
        b'{"_id": "9", "text": "half \\ud83d of one"}\n',
        "MORE.JSONL": b'{"_id": "10", "text": "ten \\ud83d"}\n',
        "rows.csv": b'Text,stars\n"one, two",1\nthree,2\n',
        "broken.txt": b"caf\xe9 \xff",
        "zero.txt": b"",
        "blank.md": b" \n\t",
        "utf16.txt": "text".encode("utf-16"),
        "x.pdf": b"%PDF",
        "noending": b"",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    read, notes = read_documents(folder)
    assert read == {
        "a.txt": ("", "The cat sat."),
        "deep/b.MD": ("", "Cats"),
        "deep/new\nline.txt": ("", "x"),
        "c.html": ("A & B", "One\ntwo"),
        "7": ("", "seven"),
        "8": ("", "Eight"),
        "9": ("", "half \ufffd of one"),
        "10": ("", "ten \ufffd"),
        "rows.csv:2": ("", "one, two"),
        "rows.csv:3": ("", "three"),
        "broken.txt": ("", "caf\ufffd \ufffd"),
    }
    assert notes == [
        f"2 documents without text left out ({folder}/blank.md and others)",
        "files of other kinds are left out: no ending (1), .pdf (1)",
        f"1 file ({folder}/utf16.txt) with NUL bytes left out: binary or UTF-16, not UTF-8 text",
        f"3 files ({folder}/MORE.JSONL and others) not entirely UTF-8; invalid characters are read as U+FFFD",
    ]
    (folder / "corpus.jsonl").write_text('{"_id": "d", "title": "T", "text": "t"}\n')
    assert read_documents(folder)[0] == {"d": ("T", "t")}  # BEIR's layout
    assert read_documents(folder / "rows.csv", text="TEXT", id="stars")[0].keys() == {"1", "2"}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "The cat sat.\n" * 10, "a.txt: a text of .* is too long; split it"),
        ("a.txt", "The cat sat.\n" * 100, "a.txt: a file of more than .* split it"),
        ("a.txt", "x" * 500, "a.txt line 1 is longer than"),
        (
            "a.jsonl",
            '{"text": "The cat"}\n{"text": "' + "x" * 120 + '"}\n',
            "row 2: a text of .* is too long",
        ),
    ],
)
def test_a_document_has_a_longest_length(name, content, message, tmp_path, monkeypatch):
    monkeypatch.setattr(document_formats, "LONGEST_DOCUMENT", 100)
    monkeypatch.setattr(document_formats, "LONGEST_FILE", 400)
    (tmp_path / name).write_text(content)
    with pytest.raises(BertJaxError, match=message):
        read_documents(tmp_path / name)


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    (tmp_path / "docs/deep").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt"):
        (tmp_path / "docs" / name).write_text("The cat sat.")
    docs = str(tmp_path / "docs")
    source = DocumentSource([docs, f"{docs}/a.txt", f"{docs}/deep/*", docs])
    assert [document.id for document in source.documents()] == ["a.txt", "deep/b.txt"]


def test_the_index_that_pandas_writes_is_no_title(tmp_path):
    (tmp_path / "a.csv").write_text(",text\n7,one\n")
    assert read_documents(tmp_path / "a.csv") == ({"a.csv:2": ("", "one")}, [])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}\n', 'row 2.*"1".*a.jsonl.*row 1'),
        ("a.jsonl", '{"id": 1}\n', "row 1.*columns: id"),
        ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', 'row 2.*"text"'),
        ("a.jsonl", "{", "row 1.*JSON"),
        ("a.parquet", "PAR1", "parquet"),
        ("a.txt.gz", "text", "a.txt"),
        ("a.exe", "", "unknown.*.txt"),
    ],
)
def test_what_cannot_be_read_is_one_line(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(BertJaxError, match=message):
        read_documents(tmp_path / name)
