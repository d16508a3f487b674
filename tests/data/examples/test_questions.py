"""Questions with their answers, of SQuAD's files and of tables."""

import json

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.questions import read_questions
from tests.support.labelled_files import PASSAGE, article, question, squad, write_source


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
        found = read_questions(write_source(tmp_path, name, content))
        assert [(e.id, e.label) for e in found] == [("7", ((0, "Ann"), (14, "Ann"))), ("8", ())]
        assert [e.document for e in found] == [PASSAGE, PASSAGE]


def test_answers_as_plain_texts_of_a_table(tmp_path):
    rows = [f'Who?,"{PASSAGE}",Ann,', f'Who?,"{PASSAGE}",Ann,14', f'Why?,"{PASSAGE}",,']
    for header, place in (("question,context,answer,answer_start", 14), ("question,context,answer,x", 0)):
        found = read_questions(write_source(tmp_path, "a.csv", "\n".join([header, *rows]) + "\n"))
        assert [e.label for e in found] == [((0, "Ann"),), ((place, "Ann"),), ()]
    with pytest.raises(BertJaxError, match='row 2.*"Eve"'):
        read_questions(write_source(tmp_path, "a.csv", f'question,context,answer\nWho?,"{PASSAGE}",Eve\n'))
    with pytest.raises(BertJaxError, match="row 2.*answer_start"):
        read_questions(
            write_source(
                tmp_path, "a.csv", f'question,context,answer,answer_start\nWho?,"{PASSAGE}",Ann,13\n'
            )
        )


@pytest.mark.parametrize(
    ("answered", "none"), [("False", "True"), ("0", "1"), ("", ""), ("no", " YES"), ("0.0", "1.0")]
)
def test_the_flag_of_a_csv_file_is_read_as_it_is_meant(answered, none, tmp_path):
    rows = [f'Who?,"{PASSAGE}",Ann,{answered}', f'Why?,"{PASSAGE}",,{none}']
    header = "question,context,answer,is_impossible"
    spec = write_source(tmp_path, "a.csv", "\n".join([header, *rows]) + "\n")
    assert [e.label for e in read_questions(spec)] == [((0, "Ann"),), ()]
    for flag, complaint in (
        ("true", "is_impossible true and 1 answers"),
        ("maybe", 'holds "maybe"; write true'),
    ):
        spec = write_source(tmp_path, "b.csv", f'{header}\nWho?,"{PASSAGE}",Ann,{flag}\n')
        with pytest.raises(BertJaxError, match=complaint):
            read_questions(spec)


ASKED = {"id": 1, "question": "Who?", "context": PASSAGE}


def test_rows_of_one_question_are_one_example_with_all_answers(tmp_path):
    other = ASKED | {"id": 2, "question": "Why?", "answer": ""}
    rows = [ASKED | {"answer": "Ann"}, other, ASKED | {"answer": "Ann sleeps"}, ASKED | {"answer": "Ann"}, other,
            ASKED | {"answer": ""}]  # fmt: skip
    found = read_questions(write_source(tmp_path, "a.jsonl", rows))
    assert [(e.id, e.label) for e in found] == [("1", ((0, "Ann"), (0, "Ann sleeps"))), ("2", ())]
    assert [e.where[-5:] for e in found] == ["row 1", "row 2"]
    # Without an id, rows are questions of their own.
    assert len(read_questions(write_source(tmp_path, "a.jsonl", [row | {"id": ""} for row in rows]))) == 6


@pytest.mark.parametrize("other", [{"question": "Who wakes?"}, {"context": PASSAGE + " Eve wakes."}])
def test_rows_of_one_id_that_are_not_one_question_are_refused(tmp_path, other):
    rows = [ASKED | {"answer": "Ann"}, ASKED | {"answer": "Ann"} | other]
    with pytest.raises(BertJaxError, match='row 2.*"1".*row 1'):
        read_questions(write_source(tmp_path, "a.jsonl", rows))


@pytest.mark.parametrize(
    ("questions", "complaint"),
    [
        # Counted in UTF-16, as by JavaScript, the second Ann starts at 15.
        ([question(start=15)], '"Ann"'),
        ([question(text="Eve")], "character 0"),
        ([question(start=-25)], "character -25"),
        ([question(start="0")], "character"),
        ([question(is_impossible=True)], "is_impossible"),
        ([question(answers=[], is_impossible=False)], "is_impossible"),
        ([question(answers=None)], '"answers"'),
        ([question(answers=7)], "number"),
        ([question(answers="Bob")], '"Bob"'),
        ([question(answers=[{"text": "Ann"}])], '"answer_start"'),
        ([question(), question(question="Why?")], '"q"'),
        ([question(question=" ")], '"question"'),
        (["Who?"], '"question"'),
    ],
)
def test_wrong_answers_are_told_in_one_line(tmp_path, questions, complaint):
    with pytest.raises(BertJaxError, match=complaint):
        read_questions(squad(tmp_path, article(*questions)))
