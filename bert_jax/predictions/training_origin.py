"""Where a fine-tuned model comes from: the training command, the data, and the names of its columns.

`origin.json` in the model's directory stores it, so that files with the same columns are read without naming them
again.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from bert_jax.core.files import read_json, write_json
from bert_jax.data.examples.columns import AUTODETECT, ColumnsFromTraining, ExampleColumns

FILE = "origin.json"
REMEDY = "delete it, or train again"


@dataclass(frozen=True)
class TrainingOrigin:
    command: str = ""
    examples: int = 0
    data: dict[str, str] = field(default_factory=dict)  # hashes of the training data
    columns: ExampleColumns = AUTODETECT  # the columns that the user named

    def complete_columns(self, columns: ExampleColumns) -> ExampleColumns:
        """Return the columns, completed by those of the training data where they name none."""
        return ColumnsFromTraining(**vars(columns), training_columns=self.columns)


UNKNOWN_ORIGIN = TrainingOrigin()


def save_origin(directory, origin: TrainingOrigin) -> None:
    if origin != UNKNOWN_ORIGIN:
        write_json(Path(directory) / FILE, asdict(origin), indent=1)


def read_origin(directory) -> TrainingOrigin:
    path = Path(directory) / FILE
    if not path.is_file():
        return UNKNOWN_ORIGIN
    return read_json(path, TrainingOrigin, REMEDY)
