"""Read the cell of a table as a label, as tags or as answers; refuse a bad cell with one line that says why."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.column_names import ANSWER_KEYS, IS_IMPOSSIBLE
from bert_jax.text.tables import BadRowError, get_cell, get_optional_cell, type_name


def empty_cell_error(where: str, column: str) -> BadRowError:
    return BadRowError(f'{where}: column "{column}" is empty; fill it in or leave the row out')


def read_name_cell(where: str, row: Mapping, column: str) -> str:
    """Read an id or the name of a document; "" if no column is given."""
    value = get_cell(where, row, column) if column else ""
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise BadRowError(f'{where}: column "{column}" holds {type_name(value)}, not a name or number')
    return str(value)


def read_label_cell(where: str, row: Mapping, column: str, need_label: bool, may_be_blank: bool = False):
    """Return the cell of the label; None if it is empty or missing and no label is needed."""
    value = get_cell(where, row, column) if need_label else get_optional_cell(row, column)
    is_nan = isinstance(value, float) and math.isnan(value)  # a missing value in pandas
    if value is None or is_nan or (isinstance(value, str) and not value.strip() and not may_be_blank):
        if need_label:
            raise BadRowError(f'{where}: no label in column "{column}"; fill it in or leave the row out')
        return None
    return value


class ClassParser:
    """Convert classes to text. A table may give them as text or as numbers, but not as both."""

    def __init__(self) -> None:
        self.first: dict[type, tuple[str, object]] = {}  # type -> (where it first occurs, the value there)

    def __call__(self, where: str, value) -> str:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, float) and math.isfinite(value):
            raise BertJaxError(
                f'{where} holds {value}, not a class; use problem_type "regression" for such labels'
            )
        if not isinstance(value, str | int):
            raise BertJaxError(f"{where} holds {value if value != value else type_name(value)}, not a class")
        self.first.setdefault(type(value), (where, value))
        if len(self.first) > 1:
            (location, first), _ = self.first.values()
            types = f"{value!r} is {type_name(value)} but {first!r} of {location} is {type_name(first)}"
            raise BertJaxError(
                f"{where}: mixed label types, {types}; write all of them as text or all as numbers"
            )
        return str(value).lower() if isinstance(value, bool) else str(value).strip()


@dataclass(frozen=True)
class LabelFormat:
    kind: str  # of the labels: the same names as `GlueTask.kind`
    make_parser: Callable[[str], Callable[[str, Any], Any]]  # separator -> function (place, value) -> label
    may_be_blank: bool = False


CLASS_FORMAT = LabelFormat("classes", lambda separator: ClassParser())


def parse_labels(where: str, value, separator: str, parse_class: ClassParser) -> tuple[str, ...]:
    """Read several labels, from a list or from a text with separators, without duplicates."""
    if isinstance(value, str):
        refuse_written_list(where, value, f'"{separator}"')
        value = [part for part in value.split(separator) if part.strip()]
    return tuple(dict.fromkeys(parse_class(where, part) for part in parse_list(where, value)))


def split_label(label: str) -> list[str]:
    """Split a cell that seems to hold several labels, at any usual separator."""
    return re.split(r"[;|,]", label)


def parse_number_cell(where: str, value) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRowError(f"{where} holds {value!r}, not a number; correct it or leave the row out")
    return number


WRITTEN_LIST = re.compile(r"""\s*\[["'].*["']\]\s*""", re.DOTALL)


def refuse_written_list(where: str, value: str, separator: str) -> None:
    """Refuse a list that was written to a cell as text, as pandas' `to_csv` does, which would be split wrongly."""
    if WRITTEN_LIST.fullmatch(value):
        raise BadRowError(
            f"{where} holds a list as text, {value.strip():.20}...; put {separator} between its parts instead, or "
            "write the table as .jsonl or parquet"
        )


def parse_list(where: str, value) -> Sequence:
    """Return a list as it is, or a text as the list of its words."""
    if isinstance(value, str):
        refuse_written_list(where, value, "spaces")
        value = value.split()
    if not isinstance(value, list | tuple):
        raise BadRowError(f"{where} holds {type_name(value)}, not a list")
    return value


def parse_words(where: str, value) -> tuple[str, ...]:
    words = parse_list(where, value)
    for number, word in enumerate(words, 1):
        if not isinstance(word, str) or not word.strip():
            raise BadRowError(f"{where}: {word!r}, number {number} of its list, is not a word")
    if not words:
        raise BadRowError(f"{where} holds no word; leave the row out")
    return tuple(words)


def plain_answer(where: str, passage: str, text: str, start) -> list[dict]:
    """Read an answer given as text only, "" for no answer.

    Without a start in the table, the answer starts where its text first occurs in the passage."""
    if not text.strip():
        return []
    if start is None or start == "":
        start = passage.find(text)
        if start < 0:
            raise BadRowError(f'{where}: answer "{text}" is not in its passage; correct one of them')
    if isinstance(start, str) and start.strip().isdecimal():
        start = int(start)
    return [{"text": text, "answer_start": start}]


FLAGS = dict.fromkeys(("true", "yes", "1", "1.0"), True) | dict.fromkeys(("false", "no", "0", "0.0"), False)


def parse_flag(where: str, value, column: str) -> bool | None:
    """Read a flag from JSON, parquet or csv; None if the cell is empty."""
    if not isinstance(value, str):
        return None if value is None or value != value else bool(value)
    if not (word := value.strip().lower()):
        return None
    if word not in FLAGS:
        raise BadRowError(f'{where}: column "{column}" holds "{value:.40}"; write true or false')
    return FLAGS[word]


def parse_answers(where: str, passage: str, value, impossible) -> tuple[tuple[int, str], ...]:
    """Read ((start, text), ...) from SQuAD's list of answers, or from the lists of texts and starts of `datasets`."""
    if isinstance(value, Mapping):
        texts, starts = (get_cell(where, value, name) for name in ANSWER_KEYS)
        if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
            raise BadRowError(f"{where}: text and answer_start of its answers must be lists of equal length")
    elif isinstance(value, list):
        texts, starts = ([get_cell(where, answer, name) for answer in value] for name in ANSWER_KEYS)
    else:
        wanted = '{"text": [...], "answer_start": [...]}'
        raise BadRowError(f"{where}: its answers are {type_name(value)}, not {wanted}")
    if parse_flag(where, impossible, IS_IMPOSSIBLE) == bool(texts):  # they contradict each other
        flag, count = str(bool(texts)).lower(), len(texts)
        raise BadRowError(f"{where} has is_impossible {flag} and {count} answers; correct one of them")
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(text, str) or not text.strip() or type(start) is not int:
            problem = f"an answer is a text and the character it starts at, not {text!r}, {start!r}"
            raise BadRowError(f"{where}: {problem}")
        if start < 0 or not passage.startswith(text, start):
            positions = [match.start() for match in re.finditer(re.escape(text), passage)]
            closest = min(positions, key=lambda position: abs(position - start), default=None)
            hint = "nor anywhere else in it" if closest is None else f"but at {closest}; correct answer_start"
            raise BadRowError(f'{where}: answer "{text}" is not in its passage at character {start}, {hint}')
    return tuple(zip(starts, texts, strict=True))
