"""Evaluate on labelled texts: k-means finds as many clusters as there are labels; each should contain one label."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.cluster.vq import kmeans, vq

from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.groups import Group
from bert_jax.metrics.v_measure import score_clusters
from bert_jax.report.confusions import ConfusionMatrix
from bert_jax.report.embedders.embedder_eval_config import EmbedderEvalConfig
from bert_jax.report.embedders.embedder_results import (
    SHOWN,
    EmbedderResults,
    ExampleTable,
    ReportPicture,
    note_duplicates,
    picture_file_name,
)
from bert_jax.report.plots import MAX_LABELS, plot_confusion

STARTS = 10  # runs of k-means, of which the best is kept


class ClusteringData:
    units = "texts"

    def __init__(self, trial: EmbedderEvalConfig, groups: Sequence[Group]):
        counts = Counter(group.alike for group in groups)
        if len(counts) == 1:
            raise BertJaxError(
                f'{trial.data}: all {len(groups):,} texts have the label "{groups[0].alike}"; clusters need at least '
                "two labels"
            )
        if len(counts) == len(groups):
            raise BertJaxError(
                f"{trial.data}: no two texts have the same label, so no cluster can be right; name the column of "
                "labels with --label"
            )
        self.groups = groups
        self.labels = [label for label, _ in counts.most_common()]
        self.what = f"{len(groups):,} texts with {len(counts):,} labels of {trial.data}"
        texts, places = [group.texts[0] for group in groups], [group.where for group in groups]
        self.notes = [*note_duplicates(texts, places, "texts"), *note_contradictions(groups)]

    def measure(self, embedder) -> "ClusteringResults":
        vectors, notes = embedder.encode_texts([group.texts[0] for group in self.groups])
        cluster, distance = cluster_vectors(vectors, len(self.labels))
        sums = score_clusters(cluster.tolist(), [group.alike for group in self.groups])
        return ClusteringResults(embedder.name, sums, notes, self.groups, self.labels, cluster, distance)


def note_contradictions(groups: Sequence[Group]) -> list[str]:
    """Return a note on equal texts with different labels, if there are any."""
    first: dict[str, Group] = {}
    apart = [
        (group, other)
        for group in groups
        if (other := first.setdefault(group.texts[0], group)).alike != group.alike
    ]
    if not apart:
        return []
    group, other = apart[0]
    return [
        f'equal texts with different labels: {len(apart):,} (the first: {group.where} "{group.alike}", {other.where} '
        f'"{other.alike}"); not all of them can be right'
    ]


def cluster_vectors(vectors: np.ndarray, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the cluster of each vector, and the vector's distance from its centroid."""
    rng = np.random.default_rng(seed)
    middles, _ = min(
        (kmeans(vectors, choose_centroids(vectors, count, rng)) for _ in range(STARTS)), key=itemgetter(1)
    )
    return vq(vectors, middles)


def choose_centroids(vectors: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Choose the initial centroids from unit vectors by greedy k-means++: draw a few candidates, with probabilities
    proportional to the squared distance from the nearest chosen vector, and keep the candidate that leaves the smallest
    sum of these distances. (SciPy keeps the first candidate, which gives worse clusters, and recomputes all distances
    each time: 20 seconds for 77 of 10,000 vectors.)"""
    tries = 2 + int(np.log(count))
    chosen = [int(rng.integers(len(vectors)))]
    nearest = squared_distances(vectors, chosen)[:, 0]
    for _ in range(count - 1):
        edges = nearest.cumsum(dtype=np.float64)
        places = np.searchsorted(edges, rng.random(tries) * edges[-1], side="right")
        candidates = np.minimum(places, len(vectors) - 1)
        left = np.minimum(nearest[:, None], squared_distances(vectors, candidates))
        best = left.sum(0).argmin()
        chosen.append(int(candidates[best]))
        nearest = left[:, best]
    return vectors[chosen]


def squared_distances(vectors: np.ndarray, chosen) -> np.ndarray:
    """Return the squared distances of unit vectors to the chosen vectors, [N, chosen]."""
    return np.maximum(2 - 2 * (vectors @ vectors[chosen].T), 0)


@dataclass(frozen=True)
class ClusteringResults(EmbedderResults):
    groups: Sequence[Group]
    labels: Sequence[str]  # the most frequent first
    cluster: np.ndarray
    distance: np.ndarray  # of each text from the centroid of its cluster

    @cached_property
    def names(self) -> list[str]:
        """The most frequent label in the cluster of each text."""
        of_cluster: dict[int, Counter[str]] = defaultdict(Counter)
        for group, cluster in zip(self.groups, self.cluster.tolist(), strict=True):
            of_cluster[cluster][group.alike] += 1
        name = {cluster: counts.most_common(1)[0][0] for cluster, counts in of_cluster.items()}
        return [name[cluster] for cluster in self.cluster.tolist()]

    @cached_property
    def right(self) -> np.ndarray:
        return np.array([g.alike == name for g, name in zip(self.groups, self.names, strict=True)])

    @cached_property
    def confusions(self) -> ConfusionMatrix:
        pairs = [(g.alike, name) for g, name in zip(self.groups, self.names, strict=True)]
        return ConfusionMatrix.from_pairs(pairs, self.labels)

    @property
    def facts(self) -> dict[str, Any]:
        header = ("label", "cluster", "texts")
        return {"confusions": [dict(zip(header, x, strict=True)) for x in self.confusions.largest[:SHOWN]]}

    def pictures(self, directory: Path, other: Self | None = None) -> list[ReportPicture]:
        drawn = []
        for letter, side in self.sides(other).items():
            path = directory / picture_file_name("clusters", letter)
            counts, true, given = side.confusions.matrix(MAX_LABELS)
            file = plot_confusion(path, counts, true, given, ("label", "cluster, by its most frequent label"))
            note = f"{side.right.mean():.1%} of the texts have the most frequent label of their cluster."
            title = f"Clusters {letter}".strip()
            drawn.append(ReportPicture(title, "texts of each label in each cluster", file, note))
        return drawn

    @property
    def worst_examples(self) -> ExampleTable:
        wrong = [n for n in np.argsort(self.distance, kind="stable").tolist() if not self.right[n]]
        rows = [
            (self.groups[n].texts[0], self.groups[n].alike, self.names[n], float(self.distance[n]),
             self.groups[n].where) for n in wrong[:SHOWN]
        ]  # fmt: skip
        return ExampleTable(
            "Texts in clusters of another label",
            f"{len(wrong):,} of {len(self.right):,} texts; the nearest to the middle of their cluster first.",
            ("text", "label", "most frequent in its cluster", "distance from the middle", "where"),
            rows,
        )

    def compare_with(self, other: Self) -> tuple[ExampleTable, ExampleTable]:
        def shown(title: str, which: np.ndarray, distance: np.ndarray) -> ExampleTable:
            changed = [n for n in np.argsort(distance, kind="stable").tolist() if which[n]]
            rows = [
                (self.groups[n].texts[0], self.groups[n].alike, self.names[n], other.names[n],
                 self.groups[n].where) for n in changed[:SHOWN]
            ]  # fmt: skip
            note = f"{len(changed):,} of {len(which):,} texts; the nearest to the middle of the wrong cluster first."
            return ExampleTable(
                title, note, ("text", "label", "most frequent in its cluster of A", "of B", "where"), rows
            )

        better = shown("Better with B", ~self.right & other.right, self.distance)
        return better, shown("Worse with B", self.right & ~other.right, other.distance)
