"""Read a retrieval data set in BEIR's layout: documents, queries, and judgements of which documents are relevant.

corpus.jsonl     {"_id": ..., "title": ..., "text": ...}
queries.jsonl    {"_id": ..., "text": ...}
qrels.tsv        query-id, corpus-id, score, with a header; or qrels/SPLIT.tsv
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from bert_jax.core.errors import BertJaxError, suggest_name
from bert_jax.data.examples.cells import parse_number_cell, read_name_cell
from bert_jax.data.examples.column_names import BEIR_GRADE, BEIR_ID, BEIR_JUDGED, BEIR_TEXT, BEIR_TITLE
from bert_jax.text import tables
from bert_jax.text.tables import get_text_cell

CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels"


@dataclass(frozen=True)
class BeirDataset:
    """Documents and queries, with the judgements of documents."""

    documents: dict[str, str]  # id -> text
    queries: dict[str, str]  # id -> text, only of queries with a relevant document: others cannot be judged
    relevant: dict[str, dict[str, int]]  # query id -> document id -> grade, above 0 if relevant

    def note_missing(self, held: Container[str], where: object, remedy: str) -> list[str]:
        """Return a note on the relevant documents that are not `held`, if there are any; raise if all are missing. Like
        trec_eval, the measures count them as relevant documents that were not found."""
        wanted = {name for grades in self.relevant.values() for name, grade in grades.items() if grade > 0}
        missing = sorted(name for name in wanted if name not in held)
        if not missing:
            return []
        if len(missing) == len(wanted):
            raise BertJaxError(
                f'{where} has none of the {len(wanted):,} relevant documents, such as "{missing[0]}"; {remedy}'
            )
        return [
            f"{len(missing):,} of {len(wanted):,} relevant documents are not in {where} (the first: "
            f'"{missing[0]}"), and count as not found'
        ]


def is_beir(data) -> bool:
    """Whether a folder is in BEIR's layout."""
    return (Path(data) / CORPUS).is_file()


def read_beir(folder, split: str = "") -> BeirDataset:
    """Read a folder with the judgements of a `split`; "": those of qrels.tsv, or of the only split."""
    folder = Path(folder)
    if lacking := [name for name in (CORPUS, QUERIES) if not (folder / name).is_file()]:
        raise BertJaxError(
            f"{folder} has no {lacking[0]}; name a folder with {CORPUS}, {QUERIES} and qrels.tsv (or qrels/SPLIT.tsv)"
        )
    documents = dict(read_beir_texts(folder / CORPUS))
    queries = dict(read_beir_texts(folder / QUERIES))
    relevant: dict[str, dict[str, int]] = {}
    locations: dict[tuple[str, str], str] = {}
    path = judgements(folder, split)
    for where, row in tables.read_table_rows(str(path)):
        query, document = (read_name_cell(where, row, column) for column in BEIR_JUDGED)
        if query not in queries:
            raise BertJaxError(f'{where}: "{query}" is not in {QUERIES}; correct one of them')
        if not queries[query].strip():
            raise BertJaxError(f'{where}: the query "{query}" of {QUERIES} is blank; remove its judgements')
        grade = parse_number_cell(f'{where}: column "{BEIR_GRADE}"', tables.get_cell(where, row, BEIR_GRADE))
        if not grade.is_integer():
            raise BertJaxError(
                f"{where} has the grade {grade:g}; grades are whole numbers, 0 for not relevant"
            )
        first_location, grades = (
            locations.setdefault((query, document), where),
            relevant.setdefault(query, {}),
        )
        if grades.setdefault(document, int(grade)) != int(grade):
            raise BertJaxError(
                f'{where} gives the document "{document}" the grade {grade:g} for the query "{query}", and '
                f"{first_location} the grade {grades[document]}; keep one of them"
            )
    relevant = {query: grades for query, grades in relevant.items() if max(grades.values()) > 0}
    if not relevant:
        raise BertJaxError(f"{path}: no document is relevant (score above 0) for any query; check its scores")
    return BeirDataset(documents, {name: queries[name] for name in relevant}, relevant)


def read_beir_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, title and text joined) of each row. The text may be empty."""
    locations: dict[str, str] = {}
    for where, row in tables.read_table_rows(str(path)):
        name = read_name_cell(where, row, BEIR_ID)
        if locations.setdefault(name, where) != where:
            raise BertJaxError(f'{where} has the id "{name}" of {locations[name]}; ids must differ')
        parts = [
            get_text_cell(where, row, column)
            for column in (BEIR_TITLE, BEIR_TEXT)
            if column in row or column == BEIR_TEXT
        ]
        yield name, " ".join(part for part in parts if part.strip())


def judgements(folder: Path, split: str) -> Path:
    files = {path.stem: path for path in sorted((folder / JUDGEMENTS).glob("*.tsv"))}
    whole = folder / f"{JUDGEMENTS}.tsv"
    if not split and whole.is_file():
        return whole
    if not split and len(files) == 1:
        return next(iter(files.values()))
    if split in files:
        return files[split]
    if split and whole.is_file() and not files:
        raise BertJaxError(f"{folder} has one set of judgements, {whole.name}; leave --split out")
    if not files:
        raise BertJaxError(
            f"{folder} has no {whole.name} and no {JUDGEMENTS}/SPLIT.tsv with judgements; add one with the columns "
            f"{', '.join([*BEIR_JUDGED, BEIR_GRADE])}"
        )
    if not split:
        raise BertJaxError(f"{folder} has judgements of {', '.join(files)}; choose one, --split NAME")
    raise BertJaxError(f'{folder / JUDGEMENTS} has no "{split}.tsv"; {suggest_name(split, files)}')
