"""Rows that cannot be used: refused with their count, or skipped where that was asked for."""

import json
from dataclasses import replace

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.data.examples.groups import read_unpaired
from bert_jax.data.examples.questions import read_questions
from bert_jax.data.examples.tagged_words import read_tags
from tests.support.labelled_files import article, question, read_texts, squad, write_source

GOOD = {"text": "a", "label": 1}


BAD = [{"text": " ", "label": 1}, {"text": "b", "label": None}, {"label": 1}, {"text": "c", "label": float("nan")},
       {"text": 5, "label": 1}]  # fmt: skip


SKIPPING = replace(AUTODETECT, skip_bad=True)


def test_bad_rows_are_counted_where_the_first_is_refused(tmp_path):
    spec = write_source(tmp_path, "a.jsonl", [GOOD, *BAD, GOOD])
    advice = r"which --skip-bad skips"
    with pytest.raises(BertJaxError, match=f'row 2: column "text" is empty.*; bad rows: 5 of 7, {advice}'):
        read_texts(spec)
    with pytest.raises(BertJaxError, match='"label"'):
        read_texts(write_source(tmp_path, "b.jsonl", [BAD[1], GOOD]))
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
    assert [group.shared_label for group in groups] == ["0", "1"]


def test_bad_rows_are_skipped_and_counted(tmp_path):
    spec = write_source(tmp_path, "a.jsonl", [GOOD, *BAD, GOOD])
    with pytest.warns(match='row 2.*"text"'):
        found = read_texts(spec, SKIPPING)
    assert [example.where for example in found] == [f"{spec} row 1", f"{spec} row 7"]
    words = [{"tokens": ["Ann"], "tags": ["O"]}, {"tokens": ["Ann"], "tags": []}, {"tokens": [], "tags": []}]
    with pytest.warns(match="2 of 3"):
        assert len(read_tags(write_source(tmp_path, "b.jsonl", words), SKIPPING)) == 1
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
        read_texts(write_source(tmp_path, "a.jsonl", rows), SKIPPING)
