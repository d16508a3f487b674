"""Hard negatives for the pairs of a table, from the models in directories: `bert-jax mine`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import to_json
from bert_jax.core.output import open_output
from bert_jax.core.terminal import pluralize
from bert_jax.data.examples.group_columns import GroupColumns, describe_columns, positive_column
from bert_jax.data.examples.groups import Group, read_groups, read_text_column
from bert_jax.hub.model_directory import ModelDirectory
from bert_jax.search import mining
from bert_jax.search.cached_vectors import CachedEncoder
from bert_jax.search.mining import MiningCounts, MiningLimits
from bert_jax.search.pair_scores import CachedPairScorer

RANGES = {"margin": (0, 1), "min_score": (-1, 1), "max_score": (-1, 1)}  # of cosines


@dataclass(frozen=True)
class MiningSettings:
    """What to mine: tables of pairs and of further texts, the models, and where they keep what they computed."""

    data: str
    model: str | ModelDirectory
    cache: Path
    limits: MiningLimits
    columns: GroupColumns = GroupColumns()
    corpus: str = ""
    rescore: str | ModelDirectory = ""
    scores: bool = False  # add the scores to each row


class MinedTable:
    """The rows of anchors, positives and negatives; the table is read and the models are loaded at the start."""

    def __init__(self, settings: MiningSettings):
        data, columns = settings.data, settings.columns
        self.settings, self.counts = settings, MiningCounts()
        self.groups = read_groups(data, columns)
        check_pairs(data, self.groups)
        preferred, plain = positive_column(data, columns), GroupColumns(skip_bad=columns.skip_bad)
        self.corpus = read_text_column(settings.corpus, plain, preferred) if settings.corpus else []
        self.vectors = CachedEncoder(settings.model, settings.cache)
        self.scorer = CachedPairScorer(settings.rescore, settings.cache) if settings.rescore else None

    def describe_columns(self) -> str:
        return describe_columns(self.settings.data, self.settings.columns, "--text and --text-pair", most=2)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the mined rows, and count them."""
        limits = self.settings.limits
        for row in mining.mine_hard_negatives(
            self.groups, self.corpus, self.vectors, limits, self.counts, self.scorer
        ):
            given = row.pop("scores")
            if self.settings.scores:
                row["scores"] = [round(score, 6) for score in given]
            yield row

    def describe_anchors_left_out(self) -> str:
        """Say how many anchors have too few negatives; "" if there are none."""
        if not self.counts.too_few:
            return ""
        anchors = pluralize(self.counts.too_few, "anchor")
        return (
            f"{anchors} with fewer than {self.settings.limits.negatives} negatives within the limits left out: "
            "a higher --range-max or a lower --margin keeps more"
        )


def write_rows(output: Path, rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Write the rows as lines of JSON, and yield each; refuse to write none."""
    row = None
    with open_output(output) as file:
        for row in rows:
            file.write(to_json(row) + "\n")
            yield row
        if row is None:
            raise BertJaxError(
                f"{output} is not written, because no anchor has enough negatives within the limits; raise "
                "--range-max, or lower --margin or --negatives"
            )


def score_bounds(given: dict[str, float | None], rescored: bool) -> dict[str, float]:
    """Return the margin, and the limits of scores that the user gave."""
    bounds = {name: value for name, value in given.items() if value is not None}
    for name, value in bounds.items():
        low, high = RANGES[name]
        if not rescored and not low <= value <= high:
            raise BertJaxError(
                f"--{name.replace('_', '-')} {value:g} is out of range for cosines; give a number from {low} to {high}"
            )
    return {"margin": 0.0 if rescored else 0.05} | bounds


def check_pairs(data: str, groups: list[Group]) -> None:
    """Refuse data without positives."""
    if all(group.texts[0] == group.texts[1] for group in groups):
        raise BertJaxError(f"{data} has one text per row; give anchors and positives")
    if len(groups[0].texts) == 2 and groups[0].scores:
        raise BertJaxError(
            f"{data} has a score for each pair, so some second texts are not positives; remove the pairs with low "
            "scores, and the column of scores"
        )
