"""Read questions about passages, from SQuAD's JSON or from tables in the layout of the `datasets` library."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from bert_jax.data.examples.cells import (
    empty_cell_error,
    parse_answers,
    parse_list,
    plain_answer,
    read_label_cell,
    read_name_cell,
)
from bert_jax.data.examples.column_names import (
    ANSWER_START,
    ANSWERS,
    CONTEXT,
    ID,
    IS_IMPOSSIBLE,
    QUESTION,
    TITLES,
)
from bert_jax.data.examples.columns import (
    AUTODETECT,
    ExampleColumns,
    LocatedRow,
    find_usual_column,
    question_and_passage,
)
from bert_jax.data.examples.example import Example, answers_of, collect_examples
from bert_jax.data.examples.row_parsing import parse_examples, peek_readable_row
from bert_jax.text import tables
from bert_jax.text.input_files import expand_inputs, file_extension
from bert_jax.text.tables import Row, get_cell, get_optional_cell, get_text_cell, match_columns


def read_questions(
    spec: str, columns: ExampleColumns = AUTODETECT, most: int = 0, need_label: bool = True
) -> list[Example]:
    """Read at most `most` examples, drawn at random; 0: all of them."""
    return collect_examples(spec, merged_answers(iterate_questions(spec, columns, need_label)), most)


def iterate_questions(spec: str, columns: ExampleColumns, need_label: bool) -> Iterator[Example]:
    for name in expand_inputs([spec]):
        if file_extension(name) != ".json":
            rows = tables.read_file_rows(name, columns.numbered, keep_broken=True)
            yield from parse_questions(rows, columns, need_label)
        elif articles := articles_in(value := tables.read_json_value(name)):
            squad_columns = ExampleColumns(skip_bad=columns.skip_bad)
            yield from parse_questions(flatten_squad(name, articles), squad_columns, need_label)
        else:
            yield from parse_questions(tables.rows_of_list(name, value), columns, need_label)


def articles_in(value) -> list:
    """Return the articles of SQuAD's JSON; [] if the file holds a table."""
    articles = value.get("data") if isinstance(value, dict) else None
    if isinstance(articles, list) and any(isinstance(a, dict) and "paragraphs" in a for a in articles):
        return articles
    return []


def is_squad_json(spec: str) -> bool:
    return any(
        file_extension(name) == ".json" and articles_in(tables.read_json_value(name))
        for name in expand_inputs([spec])
    )


def flatten_squad(name: str, articles: Iterable) -> Iterator[LocatedRow]:
    """Yield the nested questions of SQuAD's JSON as the rows of a table."""
    for a, article in enumerate(articles, 1):
        where = f"{name} article {a}"
        for p, paragraph in enumerate(parse_list(where, get_cell(where, article, "paragraphs")), 1):
            where = f"{name} article {a}, paragraph {p}"
            beside = {CONTEXT: get_cell(where, paragraph, CONTEXT), TITLES[0]: article.get(TITLES[0], "")}
            for q, question in enumerate(parse_list(where, get_cell(where, paragraph, "qas")), 1):
                location = f"{where}, question {q}"
                get_cell(location, question, QUESTION)
                yield location, {**question, **beside}


def parse_questions(
    rows: Iterable[LocatedRow], columns: ExampleColumns, need_label: bool
) -> Iterator[Example]:
    first, rows = peek_readable_row(rows)
    if first is None:
        return
    columns = columns.resolve(*first)
    names = question_and_passage(*first, columns, need_label)

    def parse_example(where: str, row: Row) -> Example:
        question, passage = (get_text_cell(where, row, name) for name in names)
        if not (question.strip() and passage.strip()):
            raise empty_cell_error(where, names[0] if passage.strip() else names[1])
        usual, title = (find_usual_column(where, row, names) for names in (ANSWERS, TITLES))
        start, impossible, id = match_columns(where, row, [ANSWER_START, IS_IMPOSSIBLE, ID])
        answers = read_label_cell(
            where, row, columns.label or usual or ANSWERS[0], need_label, may_be_blank=True
        )
        if isinstance(answers, str):
            answers = plain_answer(where, passage, answers, get_optional_cell(row, start))
        if answers is not None:
            answers = parse_answers(where, passage, answers, get_optional_cell(row, impossible))
        document = columns.group or (title if get_optional_cell(row, title) else "")
        # Questions about the same passage stay together if no document is named.
        within = read_name_cell(where, row, document) or passage
        id = read_name_cell(where, row, columns.id or id)
        return Example((question, passage), answers, where, id, within)

    yield from parse_examples(rows, parse_example, columns.skip_bad, is_whole=need_label)


def merged_answers(examples: Iterable[Example]) -> list[Example]:
    """Merge rows with the same id, question and passage: each holds one annotator's answer to the same question.

    Rows with the same id but another question or passage stay separate. An annotator who found no answer adds none.
    """
    questions: dict[object, Example] = {}
    for number, example in enumerate(examples):
        key = (example.id, example.text) if example.id else number
        if earlier := questions.get(key):
            answers = dict.fromkeys((*answers_of(earlier), *answers_of(example)))
            example = replace(earlier, label=tuple(answers))
        questions[key] = example
    return list(questions.values())
