"""The verb `adapt`: stages from documents to an embedder and a reranker; the result of each stage is kept and reused.

OUTPUT/adapt.json       the settings, and the hashes of the documents and the model
OUTPUT/pairs.jsonl      training pairs made from the documents: anchor, positive
OUTPUT/queries.jsonl    titles and a few words of passages, as people search: anchor, positive
OUTPUT/heldout/         queries of held-out documents, in BEIR's layout
OUTPUT/corpus/          the documents as a corpus, made from OUTPUT/text.txt, with --masked-lm
OUTPUT/language/        the run of masked language modelling, with --masked-lm
OUTPUT/mined.jsonl      the training pairs with negatives
OUTPUT/embedder/        the run that trains the embedder
OUTPUT/candidates.jsonl the queries with negatives that the adapted embedder finds
OUTPUT/reranker/        the run that trains the reranker
OUTPUT/scored.jsonl     the queries with negatives and the reranker's scores, with --distil
OUTPUT/distilled/       the run that trains the embedder on these scores
OUTPUT/index/           the index for the measurements, by the better embedder: of the documents, or of heldout/
OUTPUT/report/          the measurements
OUTPUT/result.json      the embedder to use, and the reranker if it is better than none, else null
"""

import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bert_jax.command import mine
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import read_json, to_json, write_json
from bert_jax.core.hashes import json_digest
from bert_jax.core.output import locked_directory, open_output, remove_path
from bert_jax.core.terminal import prefix_run_lines, print_line
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.data.examples.example import Example, sample_examples
from bert_jax.data.examples.groups import GroupColumns, read_groups
from bert_jax.data.examples.judged import read_beir
from bert_jax.data.examples.split import train_validation_split
from bert_jax.hub import directory as hub
from bert_jax.hub.sentence_transformers import EmbedderSettings
from bert_jax.metrics.retrieval import MAIN_METRIC
from bert_jax.models.config import EncoderConfig
from bert_jax.report import evaluate_index
from bert_jax.report.embedders import evaluate_embedders
from bert_jax.report.embedders.embedder_eval_config import EmbedderEvalConfig
from bert_jax.report.intervals import Interval, difference_intervals
from bert_jax.runs.run import run_from_config
from bert_jax.search import index_manifest as manifests
from bert_jax.search.cached_vectors import CachedEncoder, model_fingerprint
from bert_jax.search.documents import DocumentColumns, DocumentSource
from bert_jax.search.index_encoder import IndexEncoder
from bert_jax.search.index_manifest import INDEX_FILE as INDEX
from bert_jax.search.index_settings import IndexOptions, IndexSettings
from bert_jax.search.index_writer import open_writer
from bert_jax.search.mining import MiningLimits
from bert_jax.search.pair_scores import CachedPairScorer
from bert_jax.search.passages import PassageCutter
from bert_jax.search.structure import (
    PAIR_SOURCES,
    DocumentPair,
    Passage,
    list_passages,
    make_pairs,
    make_query_pairs,
    sample_equally,
    split_off_sentence,
    starts_document,
)
from bert_jax.text.readers import TextSource as TextSource
from bert_jax.training.stop_signal import StopSignal

FACTS, PAIRS, QUERIES, HELDOUT, MINED, CANDIDATES, SCORED = (
    "adapt.json", "pairs.jsonl", "queries.jsonl", "heldout", "mined.jsonl", "candidates.jsonl", "scored.jsonl",
)  # fmt: skip
JUDGED_BY = ("data", "split")  # settings that no training depends on, so they may change
SHARE = 0.1  # share of the documents that is held out
FEWEST = 100  # pairs to train on
MOST_HELDOUT = 500  # queries of held-out documents
NEGATIVES = 4
MARGIN = 0.05  # a negative's cosine is lower than the positive's by more than this share of it
CORPUS_ROWS = 128  # tokens of a row of masked language modelling
QUERY_ROOM = 64  # tokens that a row has in addition to the passage, for the query and special tokens
GENTLE_RATE = 2e-5
# Documents per query that the reranker learns from: the relevant one and the nearest negative. With all five, and with
# sentences as queries, training took longer and the reranker stayed at chance on Cranfield. Measurements use all five.
CONTRASTED = 2
PARTS = 4  # microbatches of a batch, so that one fits into a laptop's memory


@dataclass(frozen=True)
class Settings:
    documents: tuple[str, ...]
    model: str
    columns: DocumentColumns
    pairs: int
    epochs: float
    passage_tokens: int
    rate: float
    masked_lm: int
    distil: bool
    data: str
    split: str


class Adaptation:
    def __init__(self, output, settings: Settings):
        self.path, self.settings = Path(output), settings
        self.command = shlex.join(["bert-jax", *sys.argv[1:]])

    def run(self) -> None:
        with locked_directory(self.path):
            self.check()
            self.read_documents()
            begin = self.language()
            embedder = self.embedder(begin)
            reranker = self.reranker(embedder)
            if self.settings.distil:
                embedder = self.distilled(embedder, reranker)
            self.conclude(embedder, reranker)

    # Documents

    @cached_property
    def passages(self) -> list[Passage]:
        source, encoder = (
            DocumentSource(self.settings.documents, self.settings.columns),
            IndexEncoder(self.settings.model),
        )
        room = encoder.room(min(self.settings.passage_tokens, encoder.facts.max_length))
        passages = list(list_passages(PassageCutter(encoder.token_counter, room, 0)(source.documents())))
        for line in source.notes():
            print_line(line)
        return passages

    def check(self) -> None:
        """Refuse an output directory of other documents or settings, and judgements of none of the documents.

        Write adapt.json; if --data or --split changed, remove the index, which depends on them.
        """
        texts = [part for passage in self.passages for part in (passage.id, passage.title, passage.text)]
        hashes = {"passages": json_digest(texts), "fingerprint": model_fingerprint(self.settings.model)}
        facts = asdict(self.settings) | hashes
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
        path = self.path / FACTS
        before = read_json(path, dict[str, Any]) if path.exists() else facts
        for name, value in before.items():
            if facts.get(name) != value and name not in JUDGED_BY:
                raise BertJaxError(
                    f"{self.path} holds an adaptation with different {name}; name a new --output"
                )
        if self.settings.data:
            judged = read_beir(self.settings.data, self.settings.split)
            if not judged.names_relevant() & {passage.document for passage in self.passages}:
                raise BertJaxError(
                    f"{self.settings.data} judges none of these documents; adapt to its corpus.jsonl, or leave --data "
                    "out"
                )
        if before != facts:
            remove_path(self.path / "index")
        write_json(path, facts, indent=1)

    def read_documents(self) -> None:
        """Write the training pairs, the queries, and the queries of held-out documents, unless they exist."""
        if all((self.path / name).exists() for name in (QUERIES, f"{HELDOUT}/qrels.tsv")):
            return
        documents = [Example(passage.id, None, "", document=passage.document) for passage in self.passages]
        _, held = train_validation_split(documents, SHARE)
        names = {example.document for example in held}
        learnt = [pair for pair in make_pairs(self.passages) if pair.document not in names]
        if len(learnt) < FEWEST:
            raise BertJaxError(
                f"the documents give {len(learnt)} pairs to learn from, fewer than {FEWEST}; give more documents"
            )
        drawn = sample_equally(learnt, self.settings.pairs)
        write_pairs(self.path / PAIRS, drawn)
        queries = [pair for pair in make_query_pairs(self.passages) if pair.document not in names]
        if len(queries) < FEWEST:  # text without spaces between words
            queries = learnt
        shown = sample_equally(queries, self.settings.pairs)
        write_pairs(self.path / QUERIES, shown)
        self.write_heldout([passage for passage in self.passages if passage.document in names])
        print_line(
            f"{len(self.passages):,} passages give {len(learnt):,} pairs, {len(drawn):,} of them to learn from: "
            f"{of_sources(drawn)}; the reranker learns from {of_sources(shown)}"
        )

    def write_heldout(self, held: Sequence[Passage]) -> None:
        """Write a corpus of all passages, and queries and judgements for the held-out ones.

        A query is a sentence of a passage, which is removed from it, a few words of the rest, or the title.
        """
        clozes = {passage.id: cloze for passage in held if (cloze := split_off_sentence(passage))}
        left = [replace(p, text=clozes[p.id][1] if p.id in clozes else p.text) for p in held]
        queries = [(name, query) for name, (query, _) in clozes.items()]
        queries += [(pair.passage, pair.anchor) for pair in make_query_pairs(left)]
        examples = [Example(query, None, "", id=name) for name, query in queries]
        queries = [(example.id, str(example.text)) for example in sample_examples(examples, MOST_HELDOUT)]
        folder = self.path / HELDOUT
        folder.mkdir(exist_ok=True)
        texts = {p.id: clozes[p.id][1] if p.id in clozes else p.text for p in self.passages}
        write_rows(folder / "corpus.jsonl", ({"_id": name, "text": text} for name, text in texts.items()))
        write_rows(
            folder / "queries.jsonl", ({"_id": f"q{n}", "text": text} for n, (_, text) in enumerate(queries))
        )
        with open_output(folder / "qrels.tsv") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"q{n}\t{name}\t1\n" for n, (name, _) in enumerate(queries))

    # Stages

    def language(self) -> str:
        """Train by masked language modelling on the documents if asked to; return the model's directory."""
        steps = self.settings.masked_lm
        if not steps:
            return self.settings.model
        corpus = self.path / "corpus"
        if not corpus.exists():
            text = self.path / "text.txt"
            with open_output(text) as file:
                for n, passage in enumerate(self.passages):
                    between = "\n" if n and starts_document(self.passages, n) else ""
                    file.write(f"{between}{' '.join(passage.text.split())}\n")
            prepare_corpus(
                TextSource([str(text)]), hub.resolve_directory(self.settings.model), corpus, heldout=SHARE / 2
            )
        encoder = self.config
        self.train("language", {"task": "pretrain", "model": encoder.settings}, self.settings.model, f"steps={steps}",
                   f"data.corpora={corpus}", "data.sentence_objective=none", "data.length_ratios=(1.0,)",
                   "data.batch_size=32", f"data.lengths=({min(CORPUS_ROWS, encoder.max_positions)},)",
                   "optimizer.learning_rate=5e-5", "first_step=0", f"optimizer.warmup_steps={steps // 10}",
                   f"log.evaluate_every={max(steps // 4, 1)}", f"checkpoints.every={max(steps // 4, 1)}")  # fmt: skip
        return str(self.path / "language/model")

    def embedder(self, begin: str) -> str:
        self.mine(MINED, begin, PAIRS, MARGIN)
        return self.train("embedder", {"task": "embed"}, begin, f"data.train={self.path / MINED}", "data.batch_size=64",
                          f"data.max_length={self.longest}", *self.as_before, *self.gently)  # fmt: skip

    def reranker(self, embedder: str) -> str:
        self.mine(CANDIDATES, embedder, QUERIES, margin=0.0)
        longest = min(self.longest + QUERY_ROOM, self.config.max_positions)
        return self.train("reranker", {"task": "rerank"}, self.settings.model, f"data.train={self.path / CANDIDATES}",
                          f"data.max_documents_per_query={CONTRASTED}", f"data.max_length={longest}", "report=False",
                          *self.learning())  # fmt: skip

    def distilled(self, embedder: str, reranker: str) -> str:
        self.mine(SCORED, embedder, QUERIES, 0.0, reranker)
        return self.train("distilled", {"task": "embed"}, embedder, f"data.train={self.path / SCORED}",
                          "data.batch_size=32", f"data.max_length={self.longest}", "loss.name=margin_mse",
                          *self.as_before, *self.gently)  # fmt: skip

    @cached_property
    def config(self) -> EncoderConfig:
        return hub.read_layout(self.settings.model)[0].config

    @property
    def longest(self) -> int:
        return min(self.settings.passage_tokens, self.config.max_positions)

    def learning(self, epochs: float = 0.0, rate: float = 0.0) -> list[str]:
        """Return the settings of epochs, learning rate and microbatches.

        The user's epochs and rate come before these; 0 is the task's own default.
        """
        return [
            f"epochs={self.settings.epochs or epochs}", f"optimizer.learning_rate={self.settings.rate or rate}",
            f"mesh.gradient_accumulation_steps={PARTS}",
        ]  # fmt: skip

    @property
    def gently(self) -> list[str]:
        """Settings for an embedder, which is good already: long or fast training on noisy pairs may make it worse."""
        return self.learning(epochs=1.0, rate=GENTLE_RATE)

    @property
    def as_before(self) -> list[str]:
        """Settings that keep the embedder's pooling and normalization."""
        before = hub.read_layout(self.settings.model)[0].embedder or EmbedderSettings()
        return [f"model.pooling={before.pooling}", f"model.normalize={'yes' if before.normalize else 'no'}"]

    def mine(self, name: str, model: str, pairs: str, margin: float, reranker: str = "") -> None:
        path, cache = self.path / name, self.path / f"{name}.cache"
        if not path.exists():
            print_line(f"mining negatives with {model}")
            groups = read_groups(str(self.path / pairs), GroupColumns())
            counts = mine.write_mined(
                path, groups, [passage.text for passage in self.passages], CachedEncoder(model, cache),
                MiningLimits(NEGATIVES, margin=margin), CachedPairScorer(reranker, cache) if reranker else None,
                bool(reranker),
            )  # fmt: skip
            print_line(
                f"{counts.groups:,} pairs have {NEGATIVES} negatives; {counts.too_few:,} are left out because their "
                "two texts are no more similar than unrelated ones"
            )
        remove_path(cache)  # also one that a killed command left behind
        if not path.stat().st_size:
            raise BertJaxError(
                f"no pair has {NEGATIVES} passages that are less similar than its own two; give more documents"
            )

    def train(self, name: str, values: dict, init: str, *overrides: str) -> str:
        """Start or resume a run, train it to the end, and return the directory of its model."""
        workdir = self.path / name
        with prefix_run_lines(name):
            stopped = (
                run_from_config(values, [f"init={init}", *overrides], str(workdir), self.command) is None
            )
        if stopped or StopSignal.last_signal:
            raise BertJaxError(f"{workdir} was stopped; repeat the command to resume")
        print_line(f"{name}: the model is in {workdir / 'model'}")
        return str(workdir / "model")

    # The end

    def conclude(self, embedder: str, reranker: str) -> None:
        folder = self.settings.data or str(self.path / HELDOUT)
        if not self.settings.data:
            print_line(
                "no --data, so queries are sentences, titles and words of held-out documents, like the training pairs; "
                "real queries may gain less"
            )
        trial = EmbedderEvalConfig(folder, self.settings.split)
        _, (before, after) = evaluate_embedders.measure_embedders([self.settings.model, embedder], trial)
        gap = difference_intervals(before.sums, after.sums)[MAIN_METRIC]
        chosen = embedder if gap.low > 0 else self.settings.model
        print_line(
            f"embedder: {MAIN_METRIC} {before.sums.scores[MAIN_METRIC]:.4f} before, "
            f"{after.sums.scores[MAIN_METRIC]:.4f} after, by {folder}"
        )
        print_line(verdict(f"the adapted embedder, {embedder}", f"keep {self.settings.model}", gap))
        index = self.path / "index"
        self.index(index, chosen)
        index_trial = evaluate_index.IndexEvalConfig(
            str(index), folder, self.settings.split, reranker=reranker
        )
        report = str(self.path / "report")
        compared = evaluate_index.measure_and_write(index_trial, report, self.command)
        print("\n".join(evaluate_index.format_comparison(compared)), flush=True)
        gap = compared.differences[evaluate_index.FUSION, evaluate_index.RERANKED][MAIN_METRIC]
        print_line(verdict(f"the reranker, {reranker}", "leave it out", gap))
        write_json(
            self.path / "result.json", {"embedder": chosen, "reranker": reranker if gap.low > 0 else None}
        )
        print_line(f"the report is {report}/report.md")
        if self.settings.data:
            print_line(
                f"{index} is the index of the documents: {shlex.join(['bert-jax', 'search', str(index)])} QUERY"
            )
        else:
            documents = shlex.join([*self.settings.documents, "--model", chosen])
            print_line(f"to search the documents: bert-jax index {documents} --output INDEX")

    def index(self, path: Path, embedder: str) -> None:
        """Build or complete the index; replace an index of another embedder that an earlier attempt left."""
        if (path / INDEX).exists():
            before = manifests.read_index_manifest(path).model
            if before is None or before.fingerprint != model_fingerprint(embedder):
                remove_path(path)
        plan = IndexSettings(path, IndexOptions(embedder))
        with open_writer(path, plan.manifest) as writer:
            inputs = self.settings.documents if self.settings.data else [str(self.path / HELDOUT)]
            documents = DocumentSource(inputs, self.settings.columns).documents()
            writer.add(documents, plan.cutter, plan.encoder.documents if plan.encoder else None)


def verdict(what: str, otherwise: str, gap: Interval) -> str:
    interval = f"{gap.value:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"
    if gap.low > 0:
        return f"{what}, is better: {MAIN_METRIC} {interval}"
    word = "worse" if gap.high < 0 else "not better by more than chance"
    return f"{what}, is {word}: {MAIN_METRIC} {interval}; {otherwise}"


def of_sources(pairs: Sequence[DocumentPair]) -> str:
    counts = Counter(pair.source for pair in pairs)
    return ", ".join(
        f"{counts[source]:,} {what}" for source, what in PAIR_SOURCES.items() if source in counts
    )


def write_pairs(path: Path, pairs: Sequence[DocumentPair]) -> None:
    write_rows(path, ({"anchor": pair.anchor, "positive": pair.positive} for pair in pairs))


def write_rows(path: Path, rows) -> None:
    with open_output(path) as file:
        file.writelines(to_json(row) + "\n" for row in rows)
