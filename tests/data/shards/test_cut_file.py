"""A file that is cut into parts: each row once and in order, whatever its format, and errors name the file itself."""

import gzip
import json

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.unlabelled_texts import read_unlabelled
from bert_jax.data.shards.cut_file import CutFile
from bert_jax.data.shards.shard import list_shards
from bert_jax.text.tables import read_table_rows
from tests.hostile.subjects import as_parquet
from tests.support.indexes import file_contents
from tests.support.tables import write_csv, write_jsonl

ROWS = [{"text": f'text {n}, "quoted"\nin two lines', "label": str(n % 3)} for n in range(10)]
OF_LINES = [{"text": f"text {n}", "label": "a"} for n in range(10)]


def cut(path, folder, rows: int = 4, has_header: bool = True):
    (shard,) = list_shards(str(path))
    return CutFile(shard, rows, folder, has_header).list_parts()


def write_zipped(path, rows) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


FORMATS = {
    "rows.jsonl": write_jsonl,
    "rows.csv": lambda path, rows: write_csv(path, [row.values() for row in rows]),
    "rows.jsonl.gz": write_zipped,
    "rows.parquet": lambda path, rows: path.write_bytes(as_parquet(rows)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_parts_of_a_table_hold_its_rows(name, tmp_path):
    FORMATS[name](tmp_path / name, ROWS)
    whole = [row for _, row in read_table_rows(str(tmp_path / name))]
    assert len(whole) == 10
    parts = cut(tmp_path / name, tmp_path / "cut")
    assert [(part.name, part.first_row) for part in parts] == [
        ("rows-00000", 0),
        ("rows-00001", 4),
        ("rows-00002", 8),
    ]
    assert [row for part in parts for _, row in read_table_rows(part.source)] == whole


def test_a_table_without_a_header_keeps_its_first_row(tmp_path):
    write_csv(tmp_path / "rows.csv", [(n, f"text {n}") for n in range(9)], header=("first", "text first"))
    parts = cut(tmp_path / "rows.csv", tmp_path / "cut", has_header=False)
    texts = [row["1"] for part in parts for _, row in read_table_rows(part.source, numbered=True)]
    assert texts == ["text first", *(f"text {n}" for n in range(9))]


def test_lines_of_text_that_look_like_json_stay_text(tmp_path):
    lines = ["a", "b", '{"c": 1}', "{d", "e", "f"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    parts = cut(tmp_path / "lines.txt", tmp_path / "cut", rows=2)
    assert [text for part in parts for text in read_unlabelled(part.source)] == lines
    # `predict` takes a file whose first line begins so for JSON.
    assert [part.first_row for part in parts] == [0, 4]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_an_error_names_the_row_of_the_file(name, tmp_path):
    FORMATS[name](tmp_path / name, OF_LINES)
    content = (tmp_path / name).read_text().splitlines()
    place = 7 + content[0].startswith("text,label")
    content[place - 1] = "neither, JSON, nor two cells"
    (tmp_path / name).write_text("\n".join(content) + "\n")
    with pytest.raises(BertJaxError) as whole:
        list(read_table_rows(str(tmp_path / name)))
    messages = []
    for part in cut(tmp_path / name, tmp_path / "cut"):
        try:
            list(read_table_rows(part.source))
        except BertJaxError as error:
            messages.append(part.name_original_rows(str(error)))
    assert messages == [str(whole.value)] and f"{name} row {place}" in messages[0]


def test_a_file_is_cut_once_and_again_if_its_parts_are_gone(tmp_path):
    write_jsonl(tmp_path / "rows.jsonl", OF_LINES)
    parts = cut(tmp_path / "rows.jsonl", tmp_path / "cut")
    before = file_contents(tmp_path / "cut")
    (shard,) = list_shards(str(tmp_path / "rows.jsonl"))
    file = CutFile(shard, 4, tmp_path / "cut")
    file.remove_parts()
    assert file.list_parts() == parts and not (tmp_path / "cut/rows.parts").exists()
    file.restore()
    assert file_contents(tmp_path / "cut") == before
    write_jsonl(tmp_path / "rows.jsonl", OF_LINES[1:])
    with pytest.raises(BertJaxError, match="rows.jsonl has changed since it was cut"):
        file.list_parts()


def test_a_file_that_cannot_be_read_is_told_by_its_name(tmp_path):
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 1000)[:-20])
    with pytest.raises(BertJaxError, match=r"rows.jsonl.gz cannot be read \(Compressed file ended"):
        cut(tmp_path / "rows.jsonl.gz", tmp_path / "cut")
    assert not (tmp_path / "cut/rows.json").exists()
