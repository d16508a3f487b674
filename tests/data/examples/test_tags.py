"""Tagged words, of files like CoNLL's and of tables."""

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.tagged_words import read_tags
from tests.support.labelled_files import texts_and_labels, write_source

CONLL = """EU NNP I-NP I-ORG
rejects VBZ I-VP O

Ann\u00a0B. NNP I-NP I-PER

-DOCSTART- -X- O O

Rare JJ I-NP O
-DOCSTART- -X- O O
Last NN I-NP O"""


def test_conll_columns(tmp_path):
    spec = write_source(tmp_path, "a.testa", CONLL)
    found = read_tags(spec)
    assert texts_and_labels(found) == [
        (("EU", "rejects"), ("I-ORG", "O")), (("Ann\u00a0B.",), ("I-PER",)), (("Rare",), ("O",)), (("Last",), ("O",)),
    ]  # fmt: skip
    assert [e.where for e in found] == [f"{spec} row {n}" for n in (1, 4, 8, 10)]
    assert [e.document[-1] for e in found] == ["1", "1", "2", "3"]
    tabs = write_source(tmp_path, "a.tsv", "New York\tB-LOC\r\nsleeps\tO\r\n\r\nYes\tO\r\n")
    assert texts_and_labels(read_tags(tabs)) == [(("New York", "sleeps"), ("B-LOC", "O")), (("Yes",), ("O",))]
    assert [e.document for e in read_tags(tabs)] == ["", ""]


def test_tags_in_tables(tmp_path):
    lines = write_source(tmp_path, "a.jsonl", [{"tokens": ["Ann", "sleeps"], "ner_tags": [1, 0]}])
    assert texts_and_labels(read_tags(lines)) == [(("Ann", "sleeps"), ("1", "0"))]
    csv = write_source(tmp_path, "a.csv", "words,tags\nAnn sleeps,I-PER O\n")
    assert texts_and_labels(read_tags(csv)) == [(("Ann", "sleeps"), ("I-PER", "O"))]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.conll", "EU NNP O\n\nrejects O\n", "row 3.*rejects O.*3 columns"),
        ("a.conll", "EU O\nrejects\n", "row 2.*rejects.*2 columns"),
        ("a.conll", "EU\nrejects\n", "row 1.*EU"),
        ("a.conll", "\n\n", "holds no example"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', "row 1.*2 words"),
        ("a.jsonl", '{"tokens": ["a", ""], "tags": ["O", "O"]}', "row 1.*''.*2"),
        ("a.jsonl", '{"tokens": [], "tags": []}', "row 1.*word"),
        ("a.csv", "tokens,tags\n\"['a', 'b']\",O O\n", "row 2.*list as text, \\['a', 'b'\\].*jsonl"),
        ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O", 1]}', "row 1.*mixed"),
        ("a.jsonl", '{"tokens": ["a"], "pos": ["O"]}', "row 1.*columns: tokens, pos"),
    ],
)
def test_wrong_tags_are_told_in_one_line(tmp_path, name, content, complaint):
    with pytest.raises(BertJaxError, match=complaint):
        read_tags(write_source(tmp_path, name, content))
