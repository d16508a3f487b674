"""Labelled texts: read as they stand, refused where something is wrong, split without leaks."""

import hashlib
import json
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples import glue, texts
from bert_jax.data.examples.columns import AUTODETECT, ExampleColumns, source_labels
from bert_jax.data.examples.example import Example, check_labels, label_names
from bert_jax.data.examples.groups import GroupColumns, read_unpaired
from bert_jax.data.examples.questions import read_questions
from bert_jax.data.examples.split import train_validation_split
from bert_jax.data.examples.tags import read_tags
from bert_jax.predictions.kind import KINDS


def read_texts(spec, columns=AUTODETECT, kind="classes", most=0, need_label=True):
    return texts.read_labelled_texts(spec, columns, KINDS[kind].label_format, most, need_label)


def written(tmp_path, name: str, content) -> str:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else "\n".join(map(json.dumps, content)), "utf-8")
    return str(path)


def seen(examples):
    return [(example.text, example.label) for example in examples]


# texts


def test_columns_by_name_by_number_and_evident(tmp_path):
    csv = written(tmp_path, "a.csv", "key,text,second,label\n7,good,very,yes\n8,bad,so,no\n")
    assert read_texts(csv) == [
        Example("good", "yes", f"{csv} row 2"),
        Example("bad", "no", f"{csv} row 3"),
    ]
    pairs = read_texts(csv, ExampleColumns(text="text", pair="second", id="key"))
    assert pairs[0] == Example(("good", "very"), "yes", f"{csv} row 2", "7")
    tsv = written(tmp_path, "a.txt", "\ufeff1\tx\tA dog.\tThe dog.\n")
    assert seen(read_texts(tsv, ExampleColumns("2", "3", "0"))) == [(("A dog.", "The dog."), "1")]
    row = {"premise": "a", "hypothesis": "b", "text": "c", "label": 2.0}
    evident = written(tmp_path, "a.jsonl", [row])
    assert seen(read_texts(evident)) == [(("a", "b"), "2")]
    assert seen(read_texts(evident, ExampleColumns(pair="premise"))) == [(("c", "a"), "2")]


def test_labels_of_every_kind(tmp_path):
    lines = [{"text": "a", "label": True}, {"text": "b", "label": False}]
    assert [e.label for e in read_texts(written(tmp_path, "a.jsonl", lines))] == ["true", "false"]
    lines = [{"text": "a", "labels": [3, 10]}, {"text": "b", "labels": []}]
    several = read_texts(written(tmp_path, "a.jsonl", lines), kind="labels")
    assert [e.label for e in several] == [("3", "10"), ()]
    assert label_names(several) == ("3", "10")
    csv = written(tmp_path, "a.csv", 'text,label\na,"joy, fear"\nb,\n')
    assert [e.label for e in read_texts(csv, kind="labels")] == [("joy", "fear"), ()]
    csv = written(tmp_path, "a.csv", "text,label\na,joy|fear\n")
    assert read_texts(csv, ExampleColumns(separator="|"), "labels")[0].label == ("joy", "fear")
    csv = written(tmp_path, "a.csv", "text,score\na,4.25\nb,-3\n")
    assert [e.label for e in read_texts(csv, kind="number")] == [4.25, -3.0]


def test_fewer_examples_are_a_sample_of_the_whole_file(tmp_path):
    """Whose labels are sorted, as those of many files."""
    rows = [{"text": f"text {n}", "label": n // 500} for n in range(1000)]
    spec = written(tmp_path, "a.jsonl", rows)
    places = [int(example.text.split()[1]) for example in read_texts(spec, most=100)]
    assert places == sorted(places) and len(set(places)) == 100
    assert 35 < sum(place < 500 for place in places) < 65 and min(places) < 50 and max(places) > 950
    assert set(places) < {int(example.text.split()[1]) for example in read_texts(spec, most=200)}
    # A run that goes on has the examples that it began with.
    assert places[:5] == [17, 18, 26, 38, 48]
    assert len(read_texts(spec, most=5000)) == len(read_texts(spec)) == 1000


def test_case_and_outer_spaces_of_a_column_do_not_matter(tmp_path):
    csv = written(tmp_path, "a.csv", "ID,Text, LABEL\n7,good,yes\n")
    expected = [Example("good", "yes", f"{csv} row 2", "7")]
    assert read_texts(csv, ExampleColumns(id="id")) == expected
    assert read_texts(csv, ExampleColumns(text="TEXT", label="Label", id="Id")) == expected
    words = written(tmp_path, "b.csv", "Tokens,NER\nAnn sleeps,I-PER O\n")
    assert seen(read_tags(words)) == [(("Ann", "sleeps"), ("I-PER", "O"))]
    asked = written(
        tmp_path, "c.csv", f'Id,Question,CONTEXT,Answer,Answer_Start,Title\n5,Who?,"{PASSAGE}",Ann,14,T\n'
    )
    assert read_questions(asked) == [Example(("Who?", PASSAGE), ((14, "Ann"),), f"{asked} row 2", "5", "T")]
    # Of two that differ by it alone, the one that is written so is meant.
    both = written(tmp_path, "d.csv", "text,Text,label\na,b,1\n")
    assert [read_texts(both, ExampleColumns(text=name))[0].text for name in ("text", "Text")] == ["a", "b"]
    with pytest.raises(BertJaxError, match='row 2.*"TEXT".*"text".*"Text"'):
        read_texts(both, ExampleColumns(text="TEXT"))


def test_names_of_classes_are_known_in_whatever_case_their_column_is(tmp_path):
    features = {"features": {"Label": {"names": ["zzz", "awake"]}}}
    table = pyarrow.table({"text": ["a"], "Label": [1]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": features})})
    parquet.write_table(table, spec := str(tmp_path / "a.parquet"))
    assert seen(read_texts(spec)) == [("a", "awake")]
    assert source_labels(spec) == source_labels(spec, ExampleColumns(label="LABEL")) == ("zzz", "awake")


def test_a_second_text_is_read_by_its_usual_names(tmp_path):
    for first, second in (
        ("sentence1", "sentence2"),
        ("Text", "pair"),
        ("text", "text2"),
        ("sentence", "hypothesis"),
    ):
        csv = written(tmp_path, "a.csv", f"label,{first},{second}\nyes,a,b\n")
        known = first == "sentence1"
        with (
            nullcontext()
            if known
            else pytest.warns(match=f'"{first}" and "{second}" are read as a pair of texts')
        ):
            assert seen(read_texts(csv)) == [(("a", "b"), "yes")]
        with pytest.warns(
            match=f'column "{second}" is ignored; if it holds a second text, name it with --pair'
        ):
            assert seen(read_texts(csv, ExampleColumns(text=first))) == [("a", "yes")]


def test_columns_that_are_named_are_read_without_a_word(tmp_path):
    csv = written(tmp_path, "a.csv", "label,text,pair\nyes,a,b\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert seen(read_texts(csv, ExampleColumns(text="text", pair="pair"))) == [(("a", "b"), "yes")]
        assert seen(read_texts(written(tmp_path, "b.csv", "label,text,n\nyes,a,b\n"))) == [("a", "yes")]
        nli = written(tmp_path, "c.csv", "premise,hypothesis,label\na,b,yes\n")
        assert seen(read_texts(nli, ExampleColumns(text="Hypothesis"))) == [("b", "yes")]


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
        read(written(tmp_path, "a.csv", f"{header}\na,b\n"), ExampleColumns(**columns))


GOOD = {"text": "a", "label": 1}
BAD = [{"text": " ", "label": 1}, {"text": "b", "label": None}, {"label": 1}, {"text": "c", "label": float("nan")},
       {"text": 5, "label": 1}]  # fmt: skip
SKIPPING = replace(AUTODETECT, skip_bad=True)


def test_bad_rows_are_counted_where_the_first_is_refused(tmp_path):
    spec = written(tmp_path, "a.jsonl", [GOOD, *BAD, GOOD])
    advice = r"which --skip-bad skips"
    with pytest.raises(BertJaxError, match=f'row 2: column "text" is empty.*; bad rows: 5 of 7, {advice}'):
        read_texts(spec)
    with pytest.raises(BertJaxError, match='"label"'):
        read_texts(written(tmp_path, "b.jsonl", [BAD[1], GOOD]))
    # Where the rest cannot be counted, the first bad row is still what is told.
    broken = tmp_path / "c.csv"
    broken.write_text('text,label\n ,1\na,1\n"a,1\n')
    with pytest.raises(BertJaxError, match='row 2.*"text".*--skip-bad'):
        read_texts(str(broken))


@pytest.mark.parametrize("place", [0, 1, 2])
def test_lines_that_are_not_json_are_bad_rows(place, tmp_path):
    rows = [json.dumps(GOOD | {"label": n}) for n in range(2)]
    (tmp_path / "a.jsonl").write_text("\n".join([*rows[:place], '{"text": "a', *rows[place:]]))
    spec = str(tmp_path / "a.jsonl")
    fault = f"row {place + 1} is not JSON .it ends inside the string that begins at character 10.; write one object"
    with pytest.raises(BertJaxError, match=f"{fault}.*; bad rows: 1 of 3, which --skip-bad"):
        read_texts(spec)
    with pytest.warns(match=f"skipped 1 of 3 rows, the first: .* {fault}"):
        assert len(read_texts(spec, SKIPPING)) == 2
    with pytest.warns(match="1 of 3"):
        groups = read_unpaired(spec, GroupColumns(skip_bad=True))
    assert [group.alike for group in groups] == ["0", "1"]


def test_bad_rows_are_skipped_and_counted(tmp_path):
    spec = written(tmp_path, "a.jsonl", [GOOD, *BAD, GOOD])
    with pytest.warns(match='row 2.*"text"'):
        found = read_texts(spec, SKIPPING)
    assert [example.where for example in found] == [f"{spec} row 1", f"{spec} row 7"]
    words = [{"tokens": ["Ann"], "tags": ["O"]}, {"tokens": ["Ann"], "tags": []}, {"tokens": [], "tags": []}]
    with pytest.warns(match="2 of 3"):
        assert len(read_tags(written(tmp_path, "b.jsonl", words), SKIPPING)) == 1
    with pytest.warns(match='"Eve"'):
        spec = squad(tmp_path, article(question(), question("r", text="Eve"), question("s")))
        assert [example.id for example in read_questions(spec, SKIPPING)] == ["q", "s"]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        (BAD, 'row 1.*"text"'),
        ([{"body": "a", "label": 1}, GOOD], "row 1.*column"),
        ([GOOD, GOOD | {"label": "1"}], "row 2.*mixed"),
        ([GOOD, GOOD | {"label": 0.5}], "row 2.*class"),
    ],
)
def test_what_is_wrong_with_the_whole_table_is_not_skipped(tmp_path, rows, complaint):
    with pytest.raises(BertJaxError, match=complaint):
        read_texts(written(tmp_path, "a.jsonl", rows), SKIPPING)


def test_data_without_labels(tmp_path):
    csv = written(tmp_path, "a.csv", "text\na\n")
    assert read_texts(csv, need_label=False)[0].label is None
    indexed = written(tmp_path, "b.csv", ",text\n0,a\n1,b\n")  # as pandas writes its index
    assert seen(read_texts(indexed, need_label=False)) == [("a", None), ("b", None)]
    words = written(tmp_path, "a.conll", "Ann\nsleeps\n")
    assert seen(read_tags(words, need_label=False)) == [(("Ann", "sleeps"), None)]
    asked = written(tmp_path, "a.jsonl", [{"question": "Who?", "context": "Ann."}])
    assert read_questions(asked, need_label=False)[0].label is None


ROW = '{"text": "a", "label": 1}\n'


@pytest.mark.parametrize(
    ("name", "content", "columns", "kind", "complaint"),
    [
        ("a.csv", "txet,label\na,1\n", {"text": "text"}, "classes", 'did you mean "txet"'),
        ("a.csv", "body,label\na,1\n", {}, "classes", "a.csv"),
        ("a.csv", "text,lable\na,1\n", {"label": "label"}, "classes", 'did you mean "lable"'),
        ("a.csv", "text,stars\na,1\n", {}, "classes", "columns: text, stars"),
        ("a.csv", "text,label\na,1\n", {"text": "0", "label": "1"}, "classes", "row 1.*header"),
        ("a.jsonl", ROW + '{"label": 1}', {}, "classes", 'row 2.*"text"'),
        ("a.jsonl", ROW + '{"text": 5, "label": 1}', {}, "classes", 'row 2.*"text"'),
        ("a.csv", "text,label\na,1\n  ,1\n", {}, "classes", 'row 3.*"text"'),
        ("a.jsonl", ROW + '{"text": null, "label": 1}', {}, "classes", 'row 2.*"text"'),
        ("a.tsv", "sentence1\tsentence2\tlabel\na\t\t1\n", {}, "classes", 'row 2.*"sentence2"'),
        ("a.csv", "text,label\na,\n", {}, "classes", 'row 2.*"label"'),
        ("a.jsonl", ROW + '{"text": "b", "label": null}', {}, "classes", 'row 2.*"label"'),
        ("a.jsonl", ROW + '{"text": "b", "label": "1"}', {}, "classes", "row 2.*mixed.*row 1"),
        ("a.jsonl", ROW + '{"text": "b", "label": true}', {}, "classes", "row 2.*mixed"),
        ("a.jsonl", ROW + '{"text": "b", "label": 0.5}', {}, "classes", 'row 2.*"number"'),
        ("a.jsonl", ROW + '{"text": "b", "label": [1]}', {}, "classes", "row 2.*list"),
        ("a.jsonl", ROW, {}, "labels", "row 1.*list"),
        ("a.csv", "text,label\na,nan\n", {}, "number", "row 2.*'nan'"),
        ("a.jsonl", '{"text": "a", "label": Infinity}', {}, "number", "row 1.*inf"),
        ("a.jsonl", ROW.replace("1", "true"), {}, "number", "row 1.*True"),
        ("a.csv", "text,label\na,good\n", {}, "number", "row 2.*'good'"),
        ("a.csv", "text,label,id\na,1,x\nb,0,y\nc,1,x\n", {"id": "id"}, "classes", 'row 4.*"x".*row 2'),
        ("a.csv", "text,label\n", {}, "classes", "holds no example"),
        ("a.csv", "text,label\na,1\n", {}, "class", 'did you mean "classes"'),
    ],
)  # fmt: skip
def test_wrong_texts_are_told_in_one_line(tmp_path, name, content, columns, kind, complaint):
    spec = written(tmp_path, name, content)
    with pytest.raises(BertJaxError, match=complaint) as raised:
        read_texts(spec, ExampleColumns(**columns), kind)
    assert "\n" not in str(raised.value)


# GLUE


def test_glue_files(tmp_path):
    cola = written(tmp_path, "CoLA/train.tsv", 'gj04\t1\t\tThey "sang.\ngj04\t0\t*\tSang they.\n')
    assert seen(read_texts(cola)) == [('They "sang.', "acceptable"), ("Sang they.", "unacceptable")]
    assert source_labels(cola) == ("unacceptable", "acceptable")
    test = written(tmp_path, "CoLA/test.tsv", "index\tsentence\n0\tThey sing.\n")
    assert seen(read_texts(test, need_label=False)) == [("They sing.", None)]
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    mrpc = written(tmp_path, "MRPC/dev.tsv", header + "1\t5\t6\tA dog.\tOne dog.\n")
    assert seen(read_texts(mrpc)) == [(("A dog.", "One dog."), "equivalent")]
    qqp = written(tmp_path, "QQP/dev.tsv", "id\tquestion1\tquestion2\tis_duplicate\n5\tWhy?\t\t0\n")
    assert seen(read_texts(qqp)) == [(("Why?", ""), "not_duplicate")]
    header = "index\tsentence1\tsentence2\tlabel1\tgold_label\n"
    mnli = written(tmp_path, "MNLI/dev_matched.tsv", header + "0\ta\tb\tneutral\tentailment\n")
    assert seen(read_texts(mnli)) == [(("a", "b"), "entailment")]
    stsb = written(tmp_path, "STS-B/dev.tsv", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t3.800\n")
    assert seen(read_texts(stsb, kind="number")) == [(("a", "b"), 3.8)]
    with pytest.raises(BertJaxError, match='"number".*"classes"'):
        read_texts(stsb)
    with pytest.raises(BertJaxError, match='did you mean "mrpc"'):
        read_texts("tfds:glue/mprc:train")


def test_glue_is_nine_tasks():
    assert len(glue.GLUE_TASKS) == 9
    assert Counter(len(task.labels) for task in glue.GLUE_TASKS.values()) == {2: 7, 3: 1, 0: 1}


@pytest.mark.slow
def test_tensorflow_datasets(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    from bert_jax.text.host_tensorflow import tf  # noqa: F401

    rows = [
        {"tokens": ["Zoë", "sleeps"], "ner": ["I-PER", "O"], "text": "Zoë sleeps", "label": "zzz", "score": 1.5},
        {"tokens": ["Yes"], "ner": ["O"], "text": "Yes", "label": -1, "score": -0.5},
    ]  # fmt: skip
    answers = [{"text": ["sleeps"], "answer_start": [4]}, {"text": [], "answer_start": []}]

    class MadeUpLabels(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self):
            names = tfds.features.ClassLabel
            features = {
                "tokens": tfds.features.Sequence(tfds.features.Text()),
                "ner": tfds.features.Sequence(names(names=["O", "I-PER"])),
                "text": tfds.features.Text(),
                "label": names(names=["zzz", "awake"]),
                "score": tfds.features.Scalar(np.float32),
                "question": tfds.features.Text(),
                "answers": tfds.features.Sequence(
                    {"text": tfds.features.Text(), "answer_start": tfds.features.Scalar(np.int32)}
                ),
            }
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, _):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i, (row, found) in enumerate(zip(rows, answers, strict=True)):
                yield i, {**row, "question": "Who?", "answers": found}

    MadeUpLabels(data_dir=tmp_path / "tfds").download_and_prepare()
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path / "tfds"))
    spec = "tfds:made_up_labels:train"
    found = read_texts(spec, ExampleColumns("text"), need_label=False)
    assert sorted((e.text, e.label or "") for e in found) == [("Yes", ""), ("Zoë sleeps", "zzz")]
    assert source_labels(spec) == ("zzz", "awake") == label_names(found, source_labels(spec))
    assert sorted(e.label for e in read_texts(spec, ExampleColumns("text", label="score"), "number")) == [
        -0.5,
        1.5,
    ]
    assert sorted(seen(read_tags(spec))) == [(("Yes",), ("O",)), (("Zoë", "sleeps"), ("I-PER", "O"))]
    asked = read_questions(spec, ExampleColumns(pair="text"))
    assert sorted(e.label for e in asked) == [(), ((4, "sleeps"),)]


# tags

CONLL = """EU NNP I-NP I-ORG
rejects VBZ I-VP O

Ann\u00a0B. NNP I-NP I-PER

-DOCSTART- -X- O O

Rare JJ I-NP O
-DOCSTART- -X- O O
Last NN I-NP O"""


def test_conll_columns(tmp_path):
    spec = written(tmp_path, "a.testa", CONLL)
    found = read_tags(spec)
    assert seen(found) == [
        (("EU", "rejects"), ("I-ORG", "O")), (("Ann\u00a0B.",), ("I-PER",)), (("Rare",), ("O",)), (("Last",), ("O",)),
    ]  # fmt: skip
    assert [e.where for e in found] == [f"{spec} row {n}" for n in (1, 4, 8, 10)]
    assert [e.document[-1] for e in found] == ["1", "1", "2", "3"]
    tabs = written(tmp_path, "a.tsv", "New York\tB-LOC\r\nsleeps\tO\r\n\r\nYes\tO\r\n")
    assert seen(read_tags(tabs)) == [(("New York", "sleeps"), ("B-LOC", "O")), (("Yes",), ("O",))]
    assert [e.document for e in read_tags(tabs)] == ["", ""]


def test_tags_in_tables(tmp_path):
    lines = written(tmp_path, "a.jsonl", [{"tokens": ["Ann", "sleeps"], "ner_tags": [1, 0]}])
    assert seen(read_tags(lines)) == [(("Ann", "sleeps"), ("1", "0"))]
    csv = written(tmp_path, "a.csv", "words,tags\nAnn sleeps,I-PER O\n")
    assert seen(read_tags(csv)) == [(("Ann", "sleeps"), ("I-PER", "O"))]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.conll", "EU NNP O\n\nrejects O\n", "row 3.*rejects O.*3 columns"),
        ("a.conll", "EU O\nrejects\n", "row 2.*rejects.*2 columns"),
        ("a.tsv", "EU\tO\nrejects\t\n", "row 2.*2 columns"),
        ("a.conll", "EU\nrejects\n", "row 1.*EU"),
        ("a.conll", "\n\n", "holds no example"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "row 1.*2 words"),
        (
            "a.jsonl",
            '{"tokens": ["a", ""], "tags": ["O", "O"]}',
            "row 1.*''.*2",
        ),
        (
            "a.jsonl",
            '{"tokens": ["a", 5], "tags": ["O", "O"]}',
            "row 1.* 5.*2",
        ),
        ("a.jsonl", '{"tokens": [], "tags": []}', "row 1.*word"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O", 1]}', "row 1.*mixed"),
        ("a.jsonl", '{"tokens": ["a"], "tags": "O O"}', "row 1.*2 tags"),
        (
            "a.jsonl",
            '{"tokens": ["a"], "pos": ["O"]}',
            "row 1.*columns: tokens, pos",
        ),
    ],
)
def test_wrong_tags_are_told_in_one_line(tmp_path, name, content, complaint):
    with pytest.raises(BertJaxError, match=complaint):
        read_tags(written(tmp_path, name, content))


# answers

PASSAGE = "Ann sleeps. 😀 Ann wakes."


def article(*questions, title="Ann"):
    return {"title": title, "paragraphs": [{"context": PASSAGE, "qas": list(questions)}]}


def question(id="q", start=0, text="Ann", **more):
    return {"id": id, "question": "Who?", "answers": [{"text": text, "answer_start": start}], **more}


def squad(tmp_path, *articles) -> str:
    return written(tmp_path, "dev.json", json.dumps({"version": "x", "data": articles}))


def test_squad_of_both_versions(tmp_path):
    none = {"id": "n", "question": "Why?", "answers": [], "is_impossible": True}
    spec = squad(tmp_path, article(question(start=14)), article(none, question("r"), title="Eve"))
    found = read_questions(spec)
    assert [e.label for e in found] == [((14, "Ann"),), (), ((0, "Ann"),)]
    assert [(e.id, e.document) for e in found] == [("q", "Ann"), ("n", "Eve"), ("r", "Eve")]
    assert found[1].text == ("Why?", PASSAGE)
    assert found[2].where == f"{spec} article 2, paragraph 1, question 2"


def test_answers_in_tables(tmp_path):
    answers = {"text": ["Ann", "Ann"], "answer_start": [0, 14]}
    rows = [{"id": 7, "question": "Who?", "context": PASSAGE, "answers": answers},
            {"id": 8, "question": "Why?", "context": PASSAGE, "answers": {"text": [], "answer_start": []}}]  # fmt: skip
    for name, content in (("a.jsonl", rows), ("a.json", json.dumps(rows))):
        found = read_questions(written(tmp_path, name, content))
        assert [(e.id, e.label) for e in found] == [("7", ((0, "Ann"), (14, "Ann"))), ("8", ())]
        assert [e.document for e in found] == [PASSAGE, PASSAGE]


def test_answers_as_plain_texts_of_a_table(tmp_path):
    rows = [f'Who?,"{PASSAGE}",Ann,', f'Who?,"{PASSAGE}",Ann,14', f'Why?,"{PASSAGE}",,']
    for header, place in (("question,context,answer,answer_start", 14), ("question,context,answer,x", 0)):
        found = read_questions(written(tmp_path, "a.csv", "\n".join([header, *rows]) + "\n"))
        assert [e.label for e in found] == [((0, "Ann"),), ((place, "Ann"),), ()]
    indexed = (
        f',question,context,answer\n7,Who?,"{PASSAGE}",Ann\n8,Why?,"{PASSAGE}",\n'  # as pandas writes it
    )
    assert [e.label for e in read_questions(written(tmp_path, "b.csv", indexed))] == [((0, "Ann"),), ()]
    with pytest.raises(BertJaxError, match='row 2.*"Eve"'):
        read_questions(written(tmp_path, "a.csv", f'question,context,answer\nWho?,"{PASSAGE}",Eve\n'))
    with pytest.raises(BertJaxError, match="row 2.*answer_start"):
        read_questions(
            written(tmp_path, "a.csv", f'question,context,answer,answer_start\nWho?,"{PASSAGE}",Ann,13\n')
        )


@pytest.mark.parametrize(
    ("answered", "none"), [("False", "True"), ("0", "1"), ("", ""), ("no", " YES"), ("0.0", "1.0")]
)
def test_the_flag_of_a_csv_file_is_read_as_it_is_meant(answered, none, tmp_path):
    rows = [f'Who?,"{PASSAGE}",Ann,{answered}', f'Why?,"{PASSAGE}",,{none}']
    header = "question,context,answer,is_impossible"
    spec = written(tmp_path, "a.csv", "\n".join([header, *rows]) + "\n")
    assert [e.label for e in read_questions(spec)] == [((0, "Ann"),), ()]
    for flag, complaint in (
        ("true", "is_impossible true and 1 answers"),
        ("maybe", 'holds "maybe"; write true'),
    ):
        spec = written(tmp_path, "b.csv", f'{header}\nWho?,"{PASSAGE}",Ann,{flag}\n')
        with pytest.raises(BertJaxError, match=complaint):
            read_questions(spec)


ASKED = {"id": 1, "question": "Who?", "context": PASSAGE}


def test_rows_of_one_question_are_one_example_with_all_answers(tmp_path):
    other = ASKED | {"id": 2, "question": "Why?", "answer": ""}
    rows = [ASKED | {"answer": "Ann"}, other, ASKED | {"answer": "Ann sleeps"}, ASKED | {"answer": "Ann"}, other,
            ASKED | {"answer": ""}]  # fmt: skip
    found = read_questions(written(tmp_path, "a.jsonl", rows))
    assert [(e.id, e.label) for e in found] == [("1", ((0, "Ann"), (0, "Ann sleeps"))), ("2", ())]
    assert [e.where[-5:] for e in found] == ["row 1", "row 2"]
    # Without an id, rows are questions of their own.
    assert len(read_questions(written(tmp_path, "a.jsonl", [row | {"id": ""} for row in rows]))) == 6


@pytest.mark.parametrize("other", [{"question": "Who wakes?"}, {"context": PASSAGE + " Eve wakes."}])
def test_rows_of_one_id_that_are_not_one_question_are_refused(tmp_path, other):
    rows = [ASKED | {"answer": "Ann"}, ASKED | {"answer": "Ann"} | other]
    with pytest.raises(BertJaxError, match='row 2.*"1".*row 1'):
        read_questions(written(tmp_path, "a.jsonl", rows))


@pytest.mark.parametrize(
    ("questions", "complaint"),
    [
        # Counted in UTF-16, as by JavaScript, the second Ann starts at 15.
        ([question(start=15)], '"Ann"'),
        ([question(text="Eve")], "character 0"),
        ([question(start=-25)], "character -25"),
        ([question(text="")], "character"),
        ([question(start="0")], "character"),
        ([question(is_impossible=True)], "is_impossible"),
        ([question(answers=[], is_impossible=False)], "is_impossible"),
        ([question(answers=None)], '"answers"'),
        ([question(answers=7)], "number"),
        ([question(answers="Bob")], '"Bob"'),
        ([question(answers=[{"text": "Ann"}])], '"answer_start"'),
        ([question(), question(question="Why?")], '"q"'),
        ([question(question=" ")], '"question"'),
        ([{"id": "q", "answers": []}], '"question"'),
        (["Who?"], '"question"'),
    ],
)
def test_wrong_answers_are_told_in_one_line(tmp_path, questions, complaint):
    with pytest.raises(BertJaxError, match=complaint):
        read_questions(squad(tmp_path, article(*questions)))


# labels and splits


def examples(labels, document=lambda i: ""):
    return [
        Example(f"text {i}", label, f"a.csv row {i + 2}", "", document(i)) for i, label in enumerate(labels)
    ]


def test_names_and_unknown_labels():
    assert label_names(examples(["10", "9", "-1", "9"])) == ("-1", "9", "10")
    assert label_names(examples([("O", "I-PER"), ("B-LOC",)])) == ("B-LOC", "I-PER", "O")
    assert label_names(examples(["a", "b"]), ("b", "c", "a")) == ("b", "c", "a")
    assert label_names(examples([1.5, 2.5])) == ()
    check_labels(examples(["good", "bad"]), ("bad", "good"))
    with pytest.raises(BertJaxError, match='a.csv.*row 3.*"god".*"good"'):
        check_labels(examples(["good", "god"]), ("bad", "good"))
    with pytest.raises(BertJaxError, match='a.csv.*row 2.*"I-PRE".*"I-PER"'):
        check_labels(examples([("O", "I-PRE")]), ("I-PER", "O"))
    with pytest.raises(BertJaxError, match='a.csv.*row 2.*"good"'):
        check_labels(examples(["good", "good"]), ("good",))


def test_a_split_keeps_documents_and_labels_apart():
    labels = ["rare" if i % 50 == 0 else "often" for i in range(1000)]
    train, held = train_validation_split(examples(labels), 0.1, seed=1)
    assert Counter(e.label for e in held) == {"often": 98, "rare": 2}
    assert sorted(e.where for e in train + held) == sorted(e.where for e in examples(labels))
    assert (train, held) == train_validation_split(examples(labels), 0.1, seed=1)
    other = train_validation_split(examples(labels), 0.1, seed=2)[1]
    assert len(other) == 100 and len({e.text for e in other} & {e.text for e in held}) < 50

    train, held = train_validation_split(examples(labels, document=lambda i: f"document {int(i**0.5)}"), 0.2)
    assert not {e.document for e in train} & {e.document for e in held}
    assert 150 < len(held) < 250

    twice = examples(["a", "b"] * 50) + examples(["a", "b"] * 50)
    train, held = train_validation_split(twice, 0.2)
    assert len(held) == 40 and not {e.text for e in train} & {e.text for e in held}

    train, held = train_validation_split(examples([float(37 * i % 100) for i in range(100)]), 0.1)
    assert [int(label // 10) for label in sorted(e.label for e in held)] == list(range(10))
    assert train_validation_split(examples(labels), 0)[1] == []
    # A run that goes on is judged by the examples that it began with.
    mixed = [
        Example(f"text {i}", "rare" if i % 7 == 0 else "often", "", "", f"d{i // 3}" * (i % 2))
        for i in range(200)
    ]
    held = repr([e.text for e in train_validation_split(mixed, 0.2, 3)[1]])
    assert hashlib.sha256(held.encode()).hexdigest()[:16] == "2c452e153b899bc3"
    for few, share in ((examples(labels, document=lambda i: "one"), 0.2), (examples(labels)[:3], 0.1)):
        with pytest.raises(BertJaxError, match="cannot be split"):
            train_validation_split(few, share)
