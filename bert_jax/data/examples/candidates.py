"""Read queries with graded documents, the training examples of a reranker, from the rows of tables.

A table has one of these sets of columns:

query, document, label                how relevant the document is: 0 or 1, or a grade; rows may come in any order
query, documents, labels              lists in the cells of a row
query, positive, negatives            one relevant document and irrelevant ones
query, positive, negatives, scores    also a teacher's score of each document

group_columns.py finds the columns. No column is that of the group, unless the user names one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.example import Example, collect_examples
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.data.examples.groups import Group, parse_groups
from bert_jax.data.randomness import random_key
from bert_jax.text.tables import BadRowError

RELEVANT = 0.5  # a document with at least this grade is relevant


@dataclass(frozen=True)
class CandidateColumns(GroupColumns):
    """The columns of the query, of its document or documents, and of irrelevant documents."""

    # columns of query, document and irrelevant documents, as '"Asked (raw)","Answer"'; (): all columns that hold text,
    # except those that hold only numbers; usual names of queries and documents come first
    texts: tuple[str, ...] = ()
    score: str = ""  # column of the label or score of a document; "": found by its usual name
    # column that groups queries: those with the same value are never split between training and validation; "": each
    # query alone
    group: str = ""
    usual_groups: ClassVar[tuple[str, ...]] = ()
    roles: ClassVar[tuple[str, ...]] = ("query", "document", "not relevant")
    repeating: ClassVar[int] = 1

    def default_document(self, texts: Sequence[str]) -> str:
        return texts[0]


@dataclass(frozen=True, slots=True)
class Candidates(Example):
    """A query with its documents. `text` holds the query, followed by the documents."""

    grades: tuple[float, ...] = ()  # of each document
    scores: tuple[float, ...] = ()  # a teacher's score of each document; () without a teacher
    locations: tuple[str, ...] = ()  # where each document comes from, for messages

    @property
    def query(self) -> str:
        return self.text[0]

    @property
    def documents(self) -> tuple[str, ...]:
        return tuple(self.text[1:])

    def pairs(self) -> list[Example]:
        """Return an example for each document: the pair of query and document, labelled with the grade."""
        rows = zip(self.documents, self.grades, self.locations, strict=True)
        return [
            Example((self.query, text), grade, where, document=self.document) for text, grade, where in rows
        ]


def read_candidates(spec: str, columns: CandidateColumns, most: int = 0) -> list[Candidates]:
    """Read the candidates of at most `most` queries, drawn at random; 0: of all queries."""
    rows = parse_groups(spec, columns, make_candidates)
    return collect_examples(spec, merged_by_query(list(rows)), most)


def make_candidates(group: Group) -> Candidates:
    documents = group.texts[1:]
    where, scores, count = group.where, group.scores, len(documents)
    if not documents:
        raise BadRowError(f"{where} holds one text; a query and documents for it are needed")
    is_tuple = count > 1 and not group.listed
    grades: tuple[float, ...] = (1.0, *[0.0] * (count - 1))
    teacher_scores: tuple[float, ...] = ()
    if scores and len(scores) != count:
        raise BadRowError(f"{where} has {count} documents and {len(scores)} scores; give each document one")
    if scores and is_tuple:
        teacher_scores = scores
    elif scores:
        grades = scores
        if (minimum := min(grades)) < 0:
            raise BadRowError(
                f"{where}: the label is {minimum:g}; use 0 for not relevant and above 0 for relevant"
            )
    locations = (where,) * count
    return Candidates(group.texts, None, where, "", group.document, grades, teacher_scores, locations)


def merged_by_query(rows: Iterable[Candidates]) -> list[Candidates]:
    """Merge the rows of each query, and keep each document once."""
    # query -> text of a document -> (grade, a teacher's score, place)
    lists: dict[str, dict[str, tuple[float, tuple[float, ...], str]]] = {}
    first: dict[str, Candidates] = {}
    for row in rows:
        first.setdefault(row.query, row)
        known = lists.setdefault(row.query, {})
        for n, (text, grade, where) in enumerate(zip(row.documents, row.grades, row.locations, strict=True)):
            before, _, location = known.setdefault(text, (grade, row.scores[n : n + 1], where))
            if before != grade:
                raise BertJaxError(
                    f'{where}: the document "{text[:40]}" has the label {grade:g}, and {before:g} in {location} for '
                    "the same query; correct one of them"
                )
    merged = []
    for query, row in first.items():
        grades, scores, locations = zip(*lists[query].values(), strict=True)
        scores = tuple(chain.from_iterable(scores))
        merged.append(
            replace(row, text=(query, *lists[query]), grades=grades, scores=scores, locations=locations)
        )
    return merged


def add_random_negatives(lists: Sequence[Candidates], count: int) -> list[Candidates]:
    """Add `count` random documents of other queries to each query, or all if there are fewer.

    They count as irrelevant."""
    documents = list(dict.fromkeys(text for candidates in lists for text in candidates.documents))
    return [add_drawn_negatives(candidates, documents, n, count) for n, candidates in enumerate(lists)]


def add_drawn_negatives(
    candidates: Candidates, documents: Sequence[str], number: int, count: int
) -> Candidates:
    own, drawn = set(candidates.documents), dict[str, None]()
    turn = 0
    while len(drawn) < count and len(own) + len(drawn) < len(documents):
        text = documents[int(random_key("other", number, turn)) % len(documents)]
        turn += 1
        if text not in own:
            drawn[text] = None
    return replace(
        candidates,
        text=(*candidates.text, *drawn),
        grades=(*candidates.grades, *[0.0] * len(drawn)),
        locations=(*candidates.locations, *[candidates.where] * len(drawn)),
    )
