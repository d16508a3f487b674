"""Cut a file into parts of so many rows, each a file of its format, so that a worker reads only the rows of its shard.

The parts in FOLDER/NAME.parts/ are removed when all of them are done; FOLDER/NAME.json keeps what they were.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, write_json
from bert_jax.core.output import atomic_directory, remove_path
from bert_jax.core.progress import Progress
from bert_jax.data.examples.row_parsing import peek
from bert_jax.data.shards.shard import Shard
from bert_jax.data.shards.shard_folder import InputFacts
from bert_jax.text.document_formats import WIKIEXTRACTOR_START
from bert_jax.text.input_files import decompress, file_extension
from bert_jax.text.line_reader import explain_read_errors
from bert_jax.text.tables import opened_parquet

HEADED = (".csv", ".tsv")
CUTTABLE = (*HEADED, ".txt", ".jsonl", ".ndjson", ".parquet")
REMEDY = "delete it, and repeat the command"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BATCH = 4096  # rows of a Parquet file that are copied at once


@dataclass(frozen=True)
class PartFacts:
    file: str
    rows: int
    size: int


@dataclass(frozen=True)
class CutFacts:
    """The content of NAME.json."""

    source: str
    input: InputFacts
    rows: int  # in each part but the last
    has_header: bool
    parts: list[PartFacts]


class CutFile:
    """A file, and the parts that it is cut into. `has_header`: the first line of a .csv or .tsv file names columns.
    `at_blank_lines`: blank lines separate documents, and each part of a .txt file but the last ends with one."""

    def __init__(
        self, shard: Shard, rows: int, folder: Path, has_header: bool = True, at_blank_lines: bool = False
    ):
        self.shard, self.rows = shard, rows
        self.directory, self.listing = folder / f"{shard.name}.parts", folder / f"{shard.name}.json"
        self.extension = file_extension(shard.source)
        self.has_header = has_header and self.extension in HEADED
        self.at_blank_lines = at_blank_lines and self.extension == ".txt"

    def list_parts(self) -> list[Shard]:
        """Return the parts as shards; cut the file if it was not cut before."""
        shards, first_row = list[Shard](), 0
        for number, part in enumerate((self.read_facts() or self.cut()).parts):
            path, name = self.directory / part.file, f"{self.shard.name}-{number:05d}"
            shards.append(Shard((str(path),), name, part.size, self.shard.source, first_row))
            first_row += part.rows
        return shards

    def read_facts(self) -> CutFacts | None:
        """Return what the parts are if the file was cut so before; refuse a file that has changed since."""
        try:
            facts: CutFacts = read_json(self.listing, CutFacts, REMEDY)
        except FileNotFoundError:
            return None
        if (facts.rows, facts.has_header) != (self.rows, self.has_header):
            return None
        if not facts.input.matches(self.shard):
            raise BertJaxError(
                f"{self.shard.source} has changed since it was cut into {self.listing.parent}; name a new folder"
            )
        return facts

    def restore(self) -> None:
        """Cut the file again if its parts were removed."""
        if not self.directory.is_dir():
            self.cut()

    def remove_parts(self) -> None:
        remove_path(self.directory)

    def cut(self) -> CutFacts:
        facts, parts = InputFacts.from_shard(self.shard, self.shard), list[PartFacts]()
        remove_path(self.directory)
        with Progress("rows", work="cutting") as progress, atomic_directory(self.directory) as new:
            write_parts = write_parquet_parts if self.extension == ".parquet" else write_line_parts
            for path, rows in write_parts(
                self, (new / f"{number:05d}{self.extension}" for number in count())
            ):
                parts.append(PartFacts(path.name, rows, path.stat().st_size))
                progress.advance(rows)
        whole = CutFacts(self.shard.source, facts, self.rows, self.has_header, parts)
        write_json(self.listing, asdict(whole))
        return whole


def write_line_parts(cut: CutFile, paths: Iterator[Path]) -> Iterator[tuple[Path, int]]:
    """Write the parts of a file, and yield each with the number of its rows."""
    first, rows = peek(read_rows(cut.shard.source, cut.extension))
    first_tells_format = tells_format(first or b"")
    header = next(rows, b"") if cut.has_header else b""

    def number_rows() -> Iterator[tuple[int, bytes]]:
        """Yield each row behind the number of its part. The first line of a part tells the format as that of the file
        does."""
        number, size, before = 0, 0, b""
        for row in rows:
            ends_document = not (cut.at_blank_lines and before.strip())
            if size >= cut.rows and ends_document and tells_format(row) == first_tells_format:
                number, size = number + 1, 0
            yield number, row
            size, before = size + 1, row

    for _, part in groupby(number_rows(), itemgetter(0)):
        path, size = next(paths), 0
        with open(path, "wb") as file:
            file.write(header)
            for size, (_, row) in enumerate(part, 1):  # noqa: B007
                file.write(row)
        yield path, size


def tells_format(line: bytes) -> bool:
    """Whether a first line like this tells that a file has JSON lines, or WikiExtractor's articles."""
    return line.removeprefix(BYTE_ORDER_MARK).lstrip().startswith((b"{", WIKIEXTRACTOR_START))


def read_rows(source: str, extension: str) -> Iterator[bytes]:
    """Yield the bytes of each row. A row of a .csv file goes on while a quote is open in it, unless tabs separate its
    cells, which are literal."""
    with explain_read_errors(source), open(source, "rb") as raw, decompress(source, raw) as file:
        first, lines = peek(file)
        is_quoted = extension == ".csv" and b"\t" not in (first or b"")
        row, quotes = b"", 0
        for line in lines:
            row += line
            quotes += line.count(b'"') if is_quoted else 0
            if quotes % 2 == 0:
                yield row
                row = b""
        if row:
            yield row


def write_parquet_parts(cut: CutFile, paths: Iterator[Path]) -> Iterator[tuple[Path, int]]:
    """Write the parts of a Parquet file, and yield each with the number of its rows."""
    from pyarrow import parquet

    with opened_parquet(cut.shard.source) as file:
        batches = file.iter_batches(batch_size=min(cut.rows, BATCH))
        ahead = next(batches, None)
        while ahead is not None:
            path, missing = next(paths), cut.rows
            with parquet.ParquetWriter(path, file.schema_arrow) as part:
                while ahead is not None and missing:
                    rows = ahead.slice(0, missing)
                    part.write_batch(rows)
                    missing -= len(rows)
                    ahead = ahead.slice(len(rows)) if len(rows) < len(ahead) else next(batches, None)
            yield path, cut.rows - missing
