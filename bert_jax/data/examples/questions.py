"""Read questions about passages, from SQuAD's JSON or from tables in the layout of the `datasets` library."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bert_jax.data.examples.cells import answers_in, blank, label_in, listed, name_in, plain_answer
from bert_jax.data.examples.columns import ANSWERS, EVIDENT, Columns, Located, question_and_passage
from bert_jax.data.examples.example import Example, answers_of, collect
from bert_jax.data.examples.rows import examples_in_rows, rows_begun
from bert_jax.text import tables
from bert_jax.text.inputs import ending, expand
from bert_jax.text.tables import Row, cell, columns_like, optional, text_in


def read_questions(
    spec: str, columns: Columns = EVIDENT, most: int = 0, need_label: bool = True
) -> list[Example]:
    """Read at most `most` examples, drawn at random; 0: all of them."""
    return collect(spec, merged_answers(questions_in(spec, columns, need_label)), most)


def questions_in(spec: str, columns: Columns, need_label: bool) -> Iterator[Example]:
    for name in expand([spec]):
        if ending(name) != ".json":
            yield from questions_in_rows(
                tables.rows_of_file(name, columns.numbered, keep_broken=True), columns, need_label
            )
            continue
        value = tables.json_of(name)
        if articles := articles_in(value):
            theirs = replace(EVIDENT, skip_bad=columns.skip_bad)
            yield from questions_in_rows(squad(name, articles), theirs, need_label)
        else:
            yield from questions_in_rows(tables.rows_of_list(name, value), columns, need_label)


def articles_in(value) -> list:
    """Return the articles of SQuAD's JSON; [] if the file holds a table."""
    articles = value.get("data") if isinstance(value, dict) else None
    if isinstance(articles, list) and any(isinstance(a, dict) and "paragraphs" in a for a in articles):
        return articles
    return []


def is_nested(spec: str) -> bool:
    """Whether a file is SQuAD's JSON."""
    return any(ending(name) == ".json" and articles_in(tables.json_of(name)) for name in expand([spec]))


def squad(name: str, articles: Iterable) -> Iterator[Located]:
    """Yield the nested questions of SQuAD's JSON as the rows of a table."""
    for a, article in enumerate(articles, 1):
        where = f"{name} article {a}"
        for p, paragraph in enumerate(listed(where, cell(where, article, "paragraphs")), 1):
            where = f"{name} article {a}, paragraph {p}"
            beside = {"context": cell(where, paragraph, "context"), "title": article.get("title", "")}
            for q, question in enumerate(listed(where, cell(where, paragraph, "qas")), 1):
                place = f"{where}, question {q}"
                cell(place, question, "question")
                yield place, {**question, **beside}


def questions_in_rows(
    rows: Iterable[Located], columns: Columns = EVIDENT, need_label: bool = True
) -> Iterator[Example]:
    first, rows = rows_begun(rows)
    if first is None:
        return
    columns = columns.of(*first)
    names = question_and_passage(*first, columns, need_label)

    def example_in(where: str, row: Row) -> Example:
        question, passage = (text_in(where, row, name) for name in names)
        if not (question.strip() and passage.strip()):
            raise blank(where, names[0] if passage.strip() else names[1])
        evident = columns_like(where, row, [*ANSWERS, "answer_start", "is_impossible", "id", "title"])
        many, single, start, impossible, id, title = evident
        answers = label_in(
            where, row, columns.label or many or single or ANSWERS[0], need_label, may_be_blank=True
        )
        if isinstance(answers, str):
            answers = plain_answer(where, passage, answers, optional(row, start))
        if answers is not None:
            answers = answers_in(where, passage, answers, optional(row, impossible))
        document = columns.document or (title if optional(row, title) else "")
        # Questions about the same passage stay together if no document is named.
        within = name_in(where, row, document) or passage
        return Example((question, passage), answers, where, name_in(where, row, columns.id or id), within)

    yield from examples_in_rows(rows, example_in, columns, is_whole=need_label)


def merged_answers(examples: Iterable[Example]) -> list[Example]:
    """Merge rows with the same id, question and passage: each holds one annotator's answer to the same question.

    Rows with the same id but another question or passage stay separate. An annotator who found no answer adds none.
    """
    questions: dict[object, Example] = {}
    for number, example in enumerate(examples):
        key = (example.id, example.text) if example.id else number
        before = questions.get(key)
        if before is not None:
            answers = dict.fromkeys((*answers_of(before), *answers_of(example)))
            example = replace(before, label=tuple(answers))
        questions[key] = example
    return list(questions.values())
