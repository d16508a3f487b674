"""The data that embedders are evaluated on, and how texts are read."""

from dataclasses import dataclass

from bert_jax.data.examples.group_columns import GroupColumns


@dataclass(frozen=True)
class EmbedderEvalConfig:
    data: str  # a folder in BEIR's layout, or a table
    split: str = ""  # split of a folder's relevance judgements
    columns: GroupColumns = GroupColumns()  # of a table
    dimensions: int | None = None  # to keep of each vector; None keeps all
    long_texts: str = "truncate"
