"""Rows of files as people write them: with quotes, without a header, with a BOM, compressed, broken."""

import bz2
import gzip
import io
import json
import lzma
import sys

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from bert_jax.core.errors import BertJaxError
from bert_jax.text.input_files import register_tables
from bert_jax.text.line_reader import read_lines
from bert_jax.text.tables import (
    BrokenRow,
    get_optional_cell,
    match_columns,
    read_table_rows,
    source_class_names,
)

TABLE = [{"text": 'Zoë said "no", twice', "label": "1"}, {"text": "a; b\tc", "label": "0"}]


def read(tmp_path, name, content, numbered=False):
    """(row numbers, rows)"""
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = list(read_table_rows(str(path), numbered))
    numbers = [int(where.removeprefix(f"{path} row ")) for where, _ in found]
    return numbers, [row for _, row in found]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", 'text,label\r\n"Zoë said ""no"", twice",1\r\na; b\tc,0\r\n'),
        ("a.csv", '\ufefftext;label\n"Zoë said ""no"", twice";1\n"a; b\tc";0'),
        ("a.jsonl", "\n".join(map(json.dumps, TABLE))),
        ("A.CSV", 'text,label\n"Zoë said ""no"", twice",1\na; b\tc,0\n'),
        ("a.json", json.dumps(TABLE)),
        ("a.json", json.dumps({"version": 1, "data": TABLE})),
    ],
)
def test_one_table_in_many_forms(tmp_path, name, content):
    first = 2 if name.lower() == "a.csv" else 1
    assert read(tmp_path, name, content) == ([first, first + 1], TABLE)


@pytest.mark.parametrize(
    ("ending", "compress"),
    [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress),
     ("zst", zstandard.ZstdCompressor().compress)],
)  # fmt: skip
def test_compressed(tmp_path, ending, compress):
    content = compress("\n".join(map(json.dumps, TABLE)).encode())
    assert read(tmp_path, f"a.jsonl.{ending}", content)[1] == TABLE
    assert read(tmp_path, f"A.JSONL.{ending.upper()}", content)[1] == TABLE
    altered = content[:10] + bytes(255 - byte for byte in content[10:20]) + content[20:]
    for broken in (content[:-9], altered):
        with pytest.raises(BertJaxError, match="cannot be read .* fetch it again"):
            read(tmp_path, f"a.jsonl.{ending}", broken)


def test_lines_of_any_file(tmp_path, monkeypatch):
    """What `embed` and `fill-mask` read: decompressed, and refused where it is no text."""
    for raw, refused in (
        (b"\xef\xbb\xbfZo\xc3\xab\r\n\nlast", ""),
        (b"\xef\xbb\xbfZo\xc3\xab\r\n\nna\xefve\nlast", "line 3 is not UTF-8 .its byte 3.; convert it"),
        ("Zoë\n".encode("utf-16"), "line 1 is not UTF-8 .its byte 1."),
        ("cat\n".encode("utf-16-le"), "line 1 has NUL bytes: binary or UTF-16, not UTF-8 text"),
        (
            b"PK\3\4 w1\n",
            "is a zip archive .as .xlsx and .docx are., not a text file; convert it to UTF-8 text",
        ),
        (gzip.compress(b"cat"), "line 1 is not UTF-8 .its byte 2."),
        (b"\x89PNG\r\n", "line 1 is not UTF-8 .its byte 1."),
    ):
        (tmp_path / "a.txt.gz").write_bytes(gzip.compress(raw))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        for source, name in ((str(tmp_path / "a.txt.gz"), "a.txt.gz"), ("-", "standard input")):
            if refused:
                with pytest.raises(BertJaxError, match=f"{name} {refused}"):
                    list(read_lines(source))
            else:
                assert list(read_lines(source)) == ["Zoë", "", "last"]
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(BertJaxError, match="empty.txt"):
        list(read_lines(str(tmp_path / "empty.txt")))
    with pytest.raises(BertJaxError, match="a.txt"):
        list(read_lines(str(tmp_path / "a.txt")))


def test_rows_in_memory_are_refused_as_those_of_files_are(tmp_path):
    rows = [{"text": "\ud800"}, {"a\udfff": [1]}, {"tags": ["B", "\udc00"]}, {"text": "\U0001f600"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with register_tables({"rows": [(f"rows[{n}]", row) for n, row in enumerate(rows)]}):
        for name, place in (("memory:rows", r"rows\[0\]"), (str(tmp_path / "a.jsonl"), "row 1")):
            with pytest.raises(BertJaxError, match=f"{place} has a lone surrogate"):
                list(read_table_rows(name))
            kept = [row for _, row in read_table_rows(name, keep_broken=True)]
            assert [isinstance(row, BrokenRow) for row in kept] == [True, True, True, False]
            assert kept[3] == rows[3]


def test_the_index_that_pandas_writes_is_no_column_that_is_absent(tmp_path):
    _, (row,) = read(tmp_path, "a.csv", ",text\n7,good\n")
    assert match_columns("row 2", row, ["text", "label", ""]) == ["text", "", ""]
    assert (get_optional_cell(row, "text"), get_optional_cell(row, "")) == ("good", None)
    assert match_columns("row 2", {" ": "7"}, [""]) == [""]


def test_rows_of_csv_are_counted_as_a_spreadsheet_does(tmp_path):
    numbers, found = read(tmp_path, "a.csv", 'text,label\n"two\nlines",1\n\nlast,0\n')
    assert numbers == [2, 4] and [row["text"] for row in found] == ["two\nlines", "last"]


def test_quotes_are_text_between_tabs(tmp_path):
    for name in ("a.tsv", "a.txt", "a.csv"):
        numbers, found = read(tmp_path, name, 'text\tlabel\n" it, said\t1\n"no"\t0\n')
        assert numbers == [2, 3] and [row["text"] for row in found] == ['" it, said', '"no"'], name


def test_columns_by_number(tmp_path):
    content = "\ufeff1\t702\tA dog.\n0\t705\tNo dog.\tsource\n"
    numbers, found = read(tmp_path, "a.txt", content, numbered=True)
    assert numbers == [1, 2] and [(row["0"], row["2"]) for row in found] == [
        ("1", "A dog."),
        ("0", "No dog."),
    ]
    # pandas writes such a header where columns have no name
    assert read(tmp_path, "a.csv", "0,1\ngood,1\n", numbered=True) == ([2], [{"0": "good", "1": "1"}])


def test_parquet(tmp_path):
    table = pyarrow.Table.from_pylist(
        [{"text": "a", "label": 1, "tags": [0, 1]}, {"text": "b", "label": -1, "tags": []}]
    )
    parquet.write_table(table, tmp_path / "plain.parquet")
    assert [row["label"] for _, row in read_table_rows(str(tmp_path / "plain.parquet"))] == [1, -1]
    # as the `datasets` library names classes; -1 is a hidden one
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "tags": {"feature": {"names": ["O", "I-PER"], "_type": "ClassLabel"}, "_type": "Sequence"},
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    named = str(tmp_path / "named.parquet")
    parquet.write_table(table.replace_schema_metadata(metadata), named)
    assert list(read_table_rows(named)) == [
        (f"{named} row 1", {"text": "a", "label": "pos", "tags": ["O", "I-PER"]}),
        (f"{named} row 2", {"text": "b", "label": None, "tags": []}),
    ]
    assert source_class_names(named) == {"label": ("neg", "pos"), "tags": ("O", "I-PER")}


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.csv", "text,label\ngood,1\nbad, very,0\n", "row 3.*3 columns"),
        ("a.csv", "text,label\ngood\n", "row 2.*1 columns"),
        ("a.tsv", "text\tlabel\ngood\tor\t1\n", "row 2.*3 columns"),
        ("a.csv", 'text,label\ngood,1\n"bad,0\nnice,1\n', "row 3.*quotes"),
        ("a.csv", 'text,label\n"two\nlines",1\n"a" b,0\n', "row 3.*quotes"),
        ("a.csv", "text,text\ngood,1\n", "twice"),
        ("a.csv", b"text,label\ngood,1\nna\xefve,0\n", "line 3.*byte 3"),
        ("a.jsonl", '{"text": "a"}\n\n{"text": \n', "row 3.*character 10"),
        ("a.jsonl", '["a"]\n', "row 1.*object"),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', ".jsonl"),
        ("a.json", '{"text": "a"}', "list"),
        ("a.parquet", "text", "parquet"),
        ("a.xlsx", "text", "a.xlsx"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(tmp_path, name, content, complaint):
    with pytest.raises(BertJaxError, match=complaint) as raised:
        read(tmp_path, name, content)
    assert name in str(raised.value) and "\n" not in str(raised.value)


def test_no_file(tmp_path):
    with pytest.raises(BertJaxError, match="file"):
        list(read_table_rows(str(tmp_path / "a.csv")))
