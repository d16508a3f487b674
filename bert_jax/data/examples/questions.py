"""Questions about passages, from SQuAD's JSON or from tables in the shape that the `datasets` library gives it."""

from collections.abc import Iterable, Iterator

from bert_jax.data.examples.cells import answers_in, blank, label_in, listed, name_in, plain_answer
from bert_jax.data.examples.columns import ANSWERS, EVIDENT, Columns, Located
from bert_jax.data.examples.example import Example, collect
from bert_jax.text import tables
from bert_jax.text.inputs import ending, expand
from bert_jax.text.tables import cell, text_in


def read_questions(
    spec: str, columns: Columns = EVIDENT, most: int = 0, need_label: bool = True
) -> list[Example]:
    """At most `most` examples, drawn at random, 0: all of them."""
    return collect(spec, questions_in(spec, columns, need_label), most)


def questions_in(spec: str, columns: Columns, need_label: bool) -> Iterator[Example]:
    for name in expand([spec]):
        if ending(name) != ".json":
            yield from questions_in_rows(tables.rows_of_file(name, columns.numbered), columns, need_label)
            continue
        value = tables.json_of(name)
        articles = value.get("data") if isinstance(value, dict) else None
        if isinstance(articles, list) and any(isinstance(a, dict) and "paragraphs" in a for a in articles):
            yield from squad(name, articles, need_label)
        else:
            yield from questions_in_rows(tables.rows_of_list(name, value), columns, need_label)


def squad(name: str, articles: Iterable, need_label: bool = True) -> Iterator[Example]:
    for a, article in enumerate(articles, 1):
        where = f"{name} article {a}"
        for p, paragraph in enumerate(listed(where, cell(where, article, "paragraphs")), 1):
            where = f"{name} article {a}, paragraph {p}"
            beside = {"context": cell(where, paragraph, "context"), "title": article.get("title", "")}
            for q, question in enumerate(listed(where, cell(where, paragraph, "qas")), 1):
                place = f"{where}, question {q}"
                cell(place, question, "question")
                yield from questions_in_rows([(place, {**question, **beside})], EVIDENT, need_label)


def questions_in_rows(
    rows: Iterable[Located], columns: Columns = EVIDENT, need_label: bool = True
) -> Iterator[Example]:
    for where, row in rows:
        names = columns.text or "question", columns.pair or "context"
        question, passage = (text_in(where, row, name) for name in names)
        if not (question.strip() and passage.strip()):
            raise blank(where, names[0] if passage.strip() else names[1])
        column = columns.label or next((name for name in ANSWERS if name in row), ANSWERS[0])
        answers = label_in(where, row, column, need_label, may_be_blank=True)
        if isinstance(answers, str):
            answers = plain_answer(where, passage, answers, row.get("answer_start"))
        if answers is not None:
            answers = answers_in(where, passage, answers, row.get("is_impossible"))
        id = columns.id or ("id" if "id" in row else "")
        document = columns.document or ("title" if row.get("title") else "")
        # Questions about one passage stay together, whatever it is called.
        within = name_in(where, row, document) or passage
        yield Example((question, passage), answers, where, name_in(where, row, id), within)
