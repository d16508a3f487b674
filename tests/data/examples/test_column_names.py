"""One table of the usual names of columns, which all verbs read."""

import pytest

from bert_jax.data.examples.candidates import CandidateColumns, read_candidates
from bert_jax.data.examples.column_names import PAIRS, PASSAGES, QUERIES
from bert_jax.data.examples.columns import AUTODETECT
from bert_jax.data.examples.group_columns import GroupColumns, order_texts
from bert_jax.data.examples.groups import read_groups
from bert_jax.predictions.kinds.classes import Classes
from bert_jax.predictions.kinds.relevance import Relevance
from bert_jax.predictions.prediction_input import PredictionInput
from tests.support.tables import write_jsonl


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
        Classes.reader.read(path),
        Relevance.reader.read(path),
    ):
        assert [example.text for example in labelled] == expected
    for kind in (Classes(("a", "b")), Relevance(("LABEL_0",))):
        assert [
            example.text for example in PredictionInput(path).examples(AUTODETECT, kind.reader)
        ] == expected


@pytest.mark.parametrize(
    "names", [("answer", "question"), ("note", "Positive", "anchor"), ("label", "passage", "query")]
)
def test_a_cross_encoder_predicts_from_the_columns_it_learns_from(names, tmp_path):
    path = write_jsonl(tmp_path / "t.jsonl", [{name: f"{name} {n}" for name in names} for n in range(2)])
    examples = PredictionInput(path).examples(AUTODETECT, Relevance.reader)
    assert [example.text for example in examples] == [
        (f"{names[-1]} {n}", f"{names[-2]} {n}") for n in range(2)
    ]
