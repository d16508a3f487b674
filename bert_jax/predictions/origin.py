"""Where a fine-tuned model comes from, as `origin.json` of its directory tells: the command that trained it, the data,
and the names of their columns, so that files of the same shape are read without naming them again."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from bert_jax import hashes
from bert_jax.data.examples.columns import EVIDENT, Columns, Remembered
from bert_jax.files import read_json, write_json

FILE = "origin.json"


@dataclass(frozen=True)
class Origin:
    command: str = ""
    examples: int = 0
    data: dict[str, str] = field(default_factory=dict)  # hashes of what it was trained on
    columns: Columns = EVIDENT  # those that were named

    def remembered(self, columns: Columns) -> Columns:
        """The columns, and for what they do not name those of the training data."""
        return Remembered(**vars(columns), before=self.columns)


UNKNOWN = Origin()


def save(directory, origin: Origin) -> None:
    if origin == UNKNOWN:
        return
    path = Path(directory) / FILE
    write_json(path, asdict(origin), indent=1)
    hashes.update(path.parent, FILE)


def read(directory) -> Origin:
    path = Path(directory) / FILE
    return read_json(path, Origin, "delete it, or train again") if path.is_file() else UNKNOWN
