"""What embedders are measured on, and how texts are read."""

from dataclasses import dataclass

from bert_jax.data.examples.groups import GroupColumns


@dataclass(frozen=True)
class Trial:
    data: str  # a folder in BEIR's layout, or a table
    split: str = ""  # of the judgements of a folder
    columns: GroupColumns = GroupColumns()  # of a table
    dimensions: int | None = None  # of the vectors; None: all
    long: str = "cut"
