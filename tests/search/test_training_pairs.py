"""Training pairs of documents without labels: titles, neighbours and made-up queries."""

from pathlib import Path

import numpy as np
import pytest

from bert_jax.search.documents import Document
from bert_jax.search.passages import PassageCutter, WordCounter
from bert_jax.search.training_pairs import Passages, draw_equally, find_common_words
from tests.support import made_up_language

A, B = "Cats land on their feet. Few know why that is so.", "Dogs fall on their backs."


def pairs_of(folder: Path, *documents: Document, room: int = 11) -> dict[str, list[tuple[str, str]]]:
    passages = Passages.write(folder, PassageCutter(WordCounter(), room, 0)(documents))
    found: dict[str, list[tuple[str, str]]] = {"titles": [], "neighbours": [], "queries": []}
    for source, *pair in passages.pairs(passages.positives()):
        found[source].append(tuple(pair))
    return found


def test_titles_and_neighbours_stand_with_their_passages(tmp_path):
    found = pairs_of(tmp_path, Document("a", "Cats", f"{A} {B}"), Document("b", "", "Short."))
    first, *_, last = [positive for _, positive in found["queries"]]
    assert found["titles"] == [("Cats", first)] and found["neighbours"][0][0] == first
    assert A.startswith(first) and last == B, "in the order of the documents"


def test_a_title_that_many_documents_share_is_not_used(tmp_path):
    documents = [Document(f"d{n}", "Cats" if n < 4 else "Dogs", f"{B} {n}") for n in range(7)]
    assert pairs_of(tmp_path, *documents)["titles"] == [("Dogs", f"{B} {n}") for n in range(4, 7)]


def test_no_text_is_paired_with_itself(tmp_path):
    assert pairs_of(tmp_path, Document("a", "Rare words", "Rare words"))["titles"] == []
    assert pairs_of(tmp_path / "b", Document("b", "", "rare words"))["queries"] == []


def test_made_up_queries_are_words_of_one_sentence_that_few_passages_have(tmp_path):
    sentences = [
        f"The {word} of a{n} likes b{n} and c{n}, d{n} or e{n}."
        for n, word in enumerate(made_up_language.WORDS[:40])
    ]
    documents = [
        Document(str(n), "", f"{first} {second}")
        for n, (first, second) in enumerate(zip(sentences[::2], sentences[1::2], strict=True))
    ]
    common = Document("t", "", "The of and the.")
    asked = pairs_of(tmp_path, *documents, common, room=100)["queries"]
    assert [positive for _, positive in asked] == [document.text for document in documents]
    counts = set()
    for anchor, positive in asked:
        words = anchor.split()
        counts.add(len(words))
        of_one = [s for s in sentences if set(words) <= set(s.replace(",", "").replace(".", "").split())]
        assert len(of_one) == 1 and of_one[0] in positive
        assert sorted(words, key=of_one[0].index) == words, "in their order"
        assert not {"The", "of", "likes", "and", "or"} & set(words)
    assert min(counts) == 2 and len(counts) > 3
    assert pairs_of(tmp_path / "again", *documents, common, room=100)["queries"] == asked


def test_common_words_are_found_in_a_sample(monkeypatch):
    texts = ["The cat"] * 300 + ["a dog"] * 10
    assert find_common_words(texts) == {"the", "cat"}
    monkeypatch.setattr("bert_jax.search.training_pairs.COUNTED", 50)
    assert find_common_words(texts) == {"the", "cat"}
    assert find_common_words(["one text"]) == set()


@pytest.mark.parametrize(
    ("most", "counts"),
    [
        (9, (3, 3, 3)),
        (15, (4, 5, 6)),
        (31, (4, 7, 20)),
        (32, (4, 7, 20)),
        (2, (0, 1, 1)),
        (0, (0, 0, 0)),
    ],
)
def test_pairs_are_drawn_of_each_source_alike(most, counts):
    sizes = {"neighbours": 20, "titles": 4, "queries": 7}
    drawn = draw_equally({source: np.arange(size) * 2 for source, size in sizes.items()}, most)
    assert [*drawn] == [*sizes]
    assert tuple(len(drawn[source]) for source in ("titles", "queries", "neighbours")) == counts
    for source, numbers in drawn.items():
        assert (np.diff(numbers) > 0).all() and np.isin(numbers, np.arange(sizes[source]) * 2).all()
