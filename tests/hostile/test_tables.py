"""Tables that are odd: halves of characters and metadata of parquet files."""

import io
import json

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.core.errors import BertJaxError
from bert_jax.text import tables
from bert_jax.text.text_source import TextSource


def test_halves_of_characters(tmp_path):
    rows = [
        '{"text": "a whole \\ud83d\\ude00 one"}',
        '{"text": "a half \\ud83d one", "i\\udc00d": "\\ude00"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    with pytest.raises(BertJaxError, match="a.jsonl.*row 2"):
        list(tables.read_table_rows(str(tmp_path / "a.jsonl")))
    with pytest.raises(BertJaxError, match="a.jsonl.*row 2"):
        list(TextSource([tmp_path / "a.jsonl"], strict=True).documents())
    source = TextSource([tmp_path / "a.jsonl"])
    assert list(source.documents()) == ["a whole 😀 one", "a half \ufffd one"] and source.broken_lines == 1
    (tmp_path / "b.json").write_text("[" + ",".join(rows) + "]")
    with pytest.raises(BertJaxError, match="b.json"):
        list(tables.read_table_rows(str(tmp_path / "b.json")))


def written(path, rows: list[dict], metadata) -> str:
    table = pyarrow.Table.from_pylist(rows)
    file = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(metadata)}), file)
    path.write_bytes(file.getvalue())
    return str(path)


ROWS = [{"text": "a", "label": 1}, {"text": "b", "label": -1}]


def info(feature) -> dict:
    return {"info": {"features": {"label": feature}}}


@pytest.mark.parametrize(
    "metadata",
    [None, [], 3, {}, {"info": None}, {"info": {"features": [1]}}, info(None), info([]), info("feature"), info([[[]]]),
     info({"names": "xy"}), info({"names": [1, 2]}), info({"feature": {"feature": None}})],
)  # fmt: skip
def test_metadata_that_says_nothing(tmp_path, metadata):
    name = written(tmp_path / "a.parquet", ROWS, metadata)
    assert [row["label"] for _, row in tables.read_table_rows(name)] == [1, -1] and tables.source_class_names(
        name
    ) == {}


def test_classes_without_a_name(tmp_path):
    name = written(tmp_path / "a.parquet", ROWS, info({"names": ["no", "yes"]}))
    assert [row["label"] for _, row in tables.read_table_rows(name)] == ["yes", None]
    name = written(tmp_path / "b.parquet", [{"text": "a", "label": 7}], info({"names": ["no", "yes"]}))
    with pytest.raises(BertJaxError, match="row 1.*7.*2"):
        list(tables.read_table_rows(name))
    # Of a column that holds the names already.
    name = written(tmp_path / "c.parquet", [{"text": "a", "label": "no"}], info({"names": ["no", "yes"]}))
    assert [row["label"] for _, row in tables.read_table_rows(name)] == ["no"]


def test_a_column_twice_in_parquet(tmp_path):
    columns = pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    parquet.write_table(columns, tmp_path / "a.parquet")
    with pytest.raises(BertJaxError, match='"text"'):
        list(tables.read_table_rows(str(tmp_path / "a.parquet")))


def test_values_that_python_cannot_hold(tmp_path):
    far = pyarrow.array([2**60], pyarrow.timestamp("ms"))
    parquet.write_table(pyarrow.table({"text": ["a"], "when": far}), tmp_path / "a.parquet")
    with pytest.raises(BertJaxError, match="a.parquet"):
        list(tables.read_table_rows(str(tmp_path / "a.parquet")))
