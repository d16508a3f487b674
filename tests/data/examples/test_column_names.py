"""One table of the usual names of columns, which all verbs read."""

import ast
from collections.abc import Iterator

import pytest

from bert_jax.data.examples import column_names
from bert_jax.data.examples.candidates import CandidateColumns, read_candidates
from bert_jax.data.examples.column_names import PAIRS, PASSAGES, QUERIES
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.group_columns import GroupColumns, order_texts
from bert_jax.data.examples.groups import read_groups
from bert_jax.predictions.kinds.classes import Classes
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.predictions.prediction_input import PredictionInput
from tests.support.project import PACKAGE
from tests.support.tables import write_jsonl

# Functions that take the name of a column, or several.
READERS = {
    "match_column", "match_columns", "find_usual_column", "get_cell", "get_text_cell", "get_optional_cell",
    "read_name_cell", "read_label_cell",
}  # fmt: skip
TABLES = {"column_names.py", "glue.py"}  # glue.py has the names of GLUE's own files
NO_COLUMNS = {
    "finetuning/inspect_groups.py: anchor, positive, negative",  # what `inspect` calls the texts
    "report/prediction_page.py: text, labels",  # the header of a table in the report
    "data/examples/questions.py: paragraphs",  # a key of SQuAD's nested JSON
}


def strings_in(value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple | set):
        for part in value:
            yield from strings_in(part)


def constants(node: ast.AST) -> list:
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]


def names_written_in(tree: ast.AST, usual: set[str]) -> Iterator[str]:
    """Lists of usual names, and usual names of which a cell is asked."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(node.elts) > 1:
            if all(isinstance(part, ast.Constant) and part.value in usual for part in node.elts):
                yield ", ".join(constants(node))
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in READERS:
                yield from (value for given in node.args for value in constants(given) if value in usual)


def test_no_usual_name_is_listed_outside_the_table():
    usual = {name for key, value in vars(column_names).items() if key.isupper() for name in strings_in(value)}
    written = {
        f"{path.relative_to(PACKAGE)}: {names}"
        for path in PACKAGE.rglob("*.py")
        if path.name not in TABLES
        for names in names_written_in(ast.parse(path.read_text(encoding="utf-8")), usual)
    }
    assert "query-id" in usual and written == NO_COLUMNS


def test_a_query_is_the_first_text_to_every_verb(tmp_path):
    """And a name like that of a document is the second, also in the pairs that a classifier reads."""
    assert not {*QUERIES} & {*PASSAGES}
    for first, second in PAIRS:
        assert first not in PASSAGES and second not in QUERIES
        assert (
            first not in QUERIES or second not in PASSAGES or order_texts([second, first]) == [first, second]
        )
    rows = [{"Document": f"d{n}", "query": f"q{n}", "label": n % 2} for n in range(4)]
    path, expected = write_jsonl(tmp_path / "t.jsonl", rows), [(f"q{n}", f"d{n}") for n in range(4)]
    for labelled in (
        read_groups(path, GroupColumns()),
        read_candidates(path, CandidateColumns()),
        Classes.read_examples(path),
        Relevance.read_examples(path),
    ):
        assert [example.text for example in labelled] == expected
    for kind in (Classes(("a", "b")), Relevance(("LABEL_0",))):
        assert [example.text for example in PredictionInput(path).examples(AUTODETECT, kind)] == expected


@pytest.mark.parametrize(
    "names", [("answer", "question"), ("note", "Positive", "anchor"), ("label", "passage", "query")]
)
def test_a_cross_encoder_predicts_from_the_columns_it_learns_from(names, tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{name: f"{name} {n}" for name in names} for n in range(2)])
    examples = PredictionInput(path).examples(AUTODETECT, Relevance(("LABEL_0",)))
    assert [example.text for example in examples] == [
        (f"{names[-1]} {n}", f"{names[-2]} {n}") for n in range(2)
    ]
