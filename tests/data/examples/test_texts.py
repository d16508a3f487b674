"""Labelled texts: read as they stand, refused where something is wrong."""

import json

import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns, source_labels
from bert_jax.data.examples.example import Example, label_names
from bert_jax.data.examples.questions import read_questions
from bert_jax.data.examples.tagged_words import read_tags
from tests.support.labelled_files import read_texts, texts_and_labels, write_source


def test_columns_by_name_by_number_and_evident(tmp_path):
    csv = write_source(tmp_path, "a.csv", "key,text,second,label\n7,good,very,yes\n8,bad,so,no\n")
    assert read_texts(csv) == [
        Example("good", "yes", f"{csv} row 2"),
        Example("bad", "no", f"{csv} row 3"),
    ]
    pairs = read_texts(csv, ExampleColumns(text="text", text_pair="second", id="key"))
    assert pairs[0] == Example(("good", "very"), "yes", f"{csv} row 2", "7")
    tsv = write_source(tmp_path, "a.txt", "\ufeff1\tx\tA dog.\tThe dog.\n")
    assert texts_and_labels(read_texts(tsv, ExampleColumns("2", "3", "0"))) == [(("A dog.", "The dog."), "1")]
    row = {"premise": "a", "hypothesis": "b", "text": "c", "label": 2.0}
    evident = write_source(tmp_path, "a.jsonl", [row])
    assert texts_and_labels(read_texts(evident)) == [(("a", "b"), "2")]
    assert texts_and_labels(read_texts(evident, ExampleColumns(text_pair="premise"))) == [(("c", "a"), "2")]


def test_labels_of_every_kind(tmp_path):
    lines = [{"text": "a", "label": True}, {"text": "b", "label": False}]
    assert [e.label for e in read_texts(write_source(tmp_path, "a.jsonl", lines))] == ["true", "false"]
    lines = [{"text": "a", "labels": [3, 10]}, {"text": "b", "labels": []}]
    several = read_texts(write_source(tmp_path, "a.jsonl", lines), kind="labels")
    assert [e.label for e in several] == [("3", "10"), ()]
    assert label_names(several) == ("3", "10")
    csv = write_source(tmp_path, "a.csv", 'text,label\na,"joy, fear"\nb,\n')
    assert [e.label for e in read_texts(csv, kind="labels")] == [("joy", "fear"), ()]
    csv = write_source(tmp_path, "a.csv", "text,score\na,4.25\nb,-3\n")
    assert [e.label for e in read_texts(csv, kind="number")] == [4.25, -3.0]


def test_fewer_examples_are_a_sample_of_the_whole_file(tmp_path):
    """Whose labels are sorted, as those of many files."""
    rows = [{"text": f"text {n}", "label": n // 500} for n in range(1000)]
    spec = write_source(tmp_path, "a.jsonl", rows)
    places = [int(example.text.split()[1]) for example in read_texts(spec, most=100)]
    assert places == sorted(places) and len(set(places)) == 100
    assert 35 < sum(place < 500 for place in places) < 65 and min(places) < 50 and max(places) > 950
    assert set(places) < {int(example.text.split()[1]) for example in read_texts(spec, most=200)}
    # A run that goes on has the examples that it began with.
    assert places[:5] == [17, 18, 26, 38, 48]
    assert len(read_texts(spec, most=5000)) == len(read_texts(spec)) == 1000


def test_case_and_outer_spaces_of_a_column_do_not_matter(tmp_path):
    csv = write_source(tmp_path, "a.csv", "ID,Text, LABEL\n7,good,yes\n")
    expected = [Example("good", "yes", f"{csv} row 2", "7")]
    assert read_texts(csv, ExampleColumns(id="id")) == expected
    assert read_texts(csv, ExampleColumns(text="TEXT", label="Label", id="Id")) == expected
    # Of two that differ by it alone, the one that is written so is meant.
    both = write_source(tmp_path, "d.csv", "text,Text,label\na,b,1\n")
    assert [read_texts(both, ExampleColumns(text=name))[0].text for name in ("text", "Text")] == ["a", "b"]
    with pytest.raises(BertJaxError, match='row 2.*"TEXT".*"text".*"Text"'):
        read_texts(both, ExampleColumns(text="TEXT"))


def test_names_of_classes_are_known_in_whatever_case_their_column_is(tmp_path):
    features = {"features": {"Label": {"names": ["zzz", "awake"]}}}
    table = pyarrow.table({"text": ["a"], "Label": [1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": features})})
    parquet.write_table(table, spec := str(tmp_path / "a.parquet"))
    assert texts_and_labels(read_texts(spec)) == [("a", "awake")]
    assert source_labels(spec) == source_labels(spec, ExampleColumns(label="LABEL")) == ("zzz", "awake")


@pytest.mark.parametrize(("first", "second"), [("Text", "pair"), ("sentence", "hypothesis")])
def test_a_second_text_is_read_by_its_usual_names(first, second, tmp_path):
    csv = write_source(tmp_path, "a.csv", f"label,{first},{second}\nyes,a,b\n")
    with pytest.warns(match=f'"{first}" and "{second}" are read as a pair of texts'):
        assert texts_and_labels(read_texts(csv)) == [(("a", "b"), "yes")]
    with pytest.warns(match=f'column "{second}" is ignored; if it holds a second text'):
        assert texts_and_labels(read_texts(csv, ExampleColumns(text=first))) == [("a", "yes")]


@pytest.mark.parametrize(
    ("read", "header", "columns", "complaint"),
    [
        (read_texts, "body,stars", {}, "which the label. its columns: body, stars; name them with --text and --label"),
        (read_texts, "body,stars", {"text": "bdy", "label": "star", "id": "key"},
         'no column "bdy" and no column "star" and no column "key"; did you mean "body".,? did you mean "stars".'),
        (read_texts, "body,stars", {"text": "bdy"}, 'no column "bdy"; .*"body".; which column holds the label. its'),
        (read_tags, "body,stars", {}, "which column holds the words. and which the tags"),
        (read_questions, "body,stars", {},
         'no column "question" and no column "context"; .*; which column holds the answers'),
    ],
)  # fmt: skip
def test_all_missing_columns_are_told_at_once(tmp_path, read, header, columns, complaint):
    with pytest.raises(BertJaxError, match="a.csv:? .*" + complaint):
        read(write_source(tmp_path, "a.csv", f"{header}\na,b\n"), ExampleColumns(**columns))


def test_data_without_labels(tmp_path):
    csv = write_source(tmp_path, "a.csv", "text\na\n")
    assert read_texts(csv, need_label=False)[0].label is None
    indexed = write_source(tmp_path, "b.csv", ",text\n0,a\n1,b\n")  # as pandas writes its index
    assert texts_and_labels(read_texts(indexed, need_label=False)) == [("a", None), ("b", None)]
    words = write_source(tmp_path, "a.conll", "Ann\nsleeps\n")
    assert texts_and_labels(read_tags(words, need_label=False)) == [(("Ann", "sleeps"), None)]
    asked = write_source(tmp_path, "a.jsonl", [{"question": "Who?", "context": "Ann."}])
    assert read_questions(asked, need_label=False)[0].label is None


ROW = '{"text": "a", "label": 1}\n'


@pytest.mark.parametrize(
    ("name", "content", "columns", "kind", "complaint"),
    [
        ("a.csv", "txet,label\na,1\n", {"text": "text"}, "classes", 'did you mean "txet"'),
        ("a.csv", "text,stars\na,1\n", {}, "classes", "columns: text, stars"),
        ("a.csv", "text,label\na,1\n", {"text": "0", "label": "1"}, "classes", "row 1.*header"),
        ("a.jsonl", ROW + '{"text": 5, "label": 1}', {}, "classes", 'row 2.*"text"'),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\t\t1\n", {}, "classes", 'row 2.*"sentence2"'),
        ("a.csv", "text,label\na,\n", {}, "classes", 'row 2.*"label"'),
        ("a.jsonl", ROW + '{"text": "b", "label": "1"}', {}, "classes", "row 2.*mixed.*row 1"),
        ("a.jsonl", ROW + '{"text": "b", "label": 0.5}', {}, "classes", 'row 2.*"regression"'),
        ("a.jsonl", ROW + '{"text": "b", "label": [1]}', {}, "classes", "row 2.*list"),
        ("a.jsonl", ROW, {}, "labels", "row 1.*list"),
        ("a.csv", "text,labels\nA,\"['joy', 'fear']\"\n", {}, "labels", 'row 2.*list as text.*put ","'),
        ("a.csv", "text,label\na,nan\n", {}, "number", "row 2.*'nan'"),
        ("a.jsonl", '{"text": "a", "label": Infinity}', {}, "number", "row 1.*inf"),
        ("a.csv", "text,label,id\na,1,x\nb,0,y\nc,1,x\n", {"id": "id"}, "classes", 'row 4.*"x".*row 2'),
        ("a.csv", "text,label\n", {}, "classes", "holds no example"),
    ],
)  # fmt: skip
def test_wrong_texts_are_told_in_one_line(tmp_path, name, content, columns, kind, complaint):
    spec = write_source(tmp_path, name, content)
    with pytest.raises(BertJaxError, match=complaint) as raised:
        read_texts(spec, ExampleColumns(**columns), kind)
    assert "\n" not in str(raised.value)
