"""What the verb `adapt` runs: stages from documents to an embedder and a reranker, each kept and never repeated.

OUTPUT/adapt.json       what was asked for, and of which documents and model
OUTPUT/pairs.jsonl      what the documents give by themselves: anchor, positive
OUTPUT/queries.jsonl    titles and a few words of passages, as people ask: anchor, positive
OUTPUT/heldout/         queries of held-out documents, in BEIR's layout
OUTPUT/language/        masked language modelling, where asked for: a run
OUTPUT/mined.jsonl      pairs with negatives
OUTPUT/embedder/        the training of the embedder: a run
OUTPUT/candidates.jsonl queries with the negatives that the adapted embedder finds
OUTPUT/reranker/        the training of the reranker: a run
OUTPUT/scored.jsonl     the candidates with the reranker's scores, where asked for
OUTPUT/distilled/       the training of the embedder on them: a run
OUTPUT/index/           what they are measured on, by the better embedder: of the documents, or of heldout/
OUTPUT/report/          how all of them do
OUTPUT/result.json      what is better than before
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
from bert_jax.data.corpus.prepare import prepare
from bert_jax.data.examples.example import Example, sample
from bert_jax.data.examples.groups import GroupColumns, read_groups
from bert_jax.data.examples.judged import read_judged
from bert_jax.data.examples.split import split
from bert_jax.errors import BertJaxError
from bert_jax.files import read_json, to_json, write_json
from bert_jax.hashes import digest
from bert_jax.hub import directory as hub
from bert_jax.hub.sentence_transformers import Embedder
from bert_jax.models.config import EncoderConfig
from bert_jax.output import holding, remove, streaming
from bert_jax.report import legs
from bert_jax.report.embedders import evaluate
from bert_jax.report.embedders.trial import Trial
from bert_jax.report.intervals import Interval, differences
from bert_jax.retrieval import BEST
from bert_jax.runs.run import run
from bert_jax.search import manifest as manifests
from bert_jax.search.documents import Columns, Source
from bert_jax.search.encoder import Encoder
from bert_jax.search.indexing import writing
from bert_jax.search.manifest import FILE as INDEX
from bert_jax.search.mining import Limits
from bert_jax.search.passages import Cutter
from bert_jax.search.scores import Scores
from bert_jax.search.settings import Asked as IndexAsked
from bert_jax.search.settings import Plan
from bert_jax.search.structure import (
    SOURCES,
    Pair,
    Passage,
    in_equal_shares,
    is_first,
    pairs_of,
    passages_of,
    queries_of,
    without_a_sentence,
)
from bert_jax.search.vectors import Vectors, fingerprint
from bert_jax.terminal import part_of_run, say
from bert_jax.text.readers import Source as TextSource
from bert_jax.train.stop import Stop

FACTS, PAIRS, QUERIES, HELDOUT, MINED, CANDIDATES, SCORED = (
    "adapt.json", "pairs.jsonl", "queries.jsonl", "heldout", "mined.jsonl", "candidates.jsonl", "scored.jsonl",
)  # fmt: skip
JUDGED_BY = ("data", "split")  # no training depends on them
SHARE = 0.1  # of the documents, held out
FEWEST = 100  # pairs
MOST_HELDOUT = 500  # queries of held-out documents
NEGATIVES = 4
MARGIN = 0.05  # by this share of its pair's cosine a negative is less alike
CORPUS_ROWS = 128  # tokens
QUERY_ROOM = 64  # tokens beside a passage, for a query and what stands between
GENTLE_RATE = 2e-5
# Documents of a query that the reranker learns from, the relevant one and the nearest of its negatives: with all five,
# and sentences for queries, it took longer and was still at chance on Cranfield. It is measured with all five.
CONTRASTED = 2
PARTS = 4  # of a batch of groups or lists, so that a laptop's memory holds one


@dataclass(frozen=True)
class Asked:
    documents: tuple[str, ...]
    model: str
    columns: Columns
    pairs: int
    epochs: float
    passage_tokens: int
    rate: float
    masked_lm: int
    distil: bool
    data: str
    split: str


class Adaptation:
    def __init__(self, output, asked: Asked):
        self.path, self.asked = Path(output), asked
        self.command = shlex.join(["bert-jax", *sys.argv[1:]])

    def run(self) -> None:
        with holding(self.path):
            self.check()
            self.read_documents()
            begin = self.language()
            embedder = self.embedder(begin)
            reranker = self.reranker(embedder)
            if self.asked.distil:
                embedder = self.distilled(embedder, reranker)
            self.conclude(embedder, reranker)

    # Documents

    @cached_property
    def passages(self) -> list[Passage]:
        source, encoder = Source(self.asked.documents, self.asked.columns), Encoder(self.asked.model)
        room = encoder.room(min(self.asked.passage_tokens, encoder.facts.max_length))
        passages = list(passages_of(Cutter(encoder.ruler, room, 0)(source.documents())))
        for line in source.notes():
            say(line)
        return passages

    def check(self) -> None:
        """Refuse the directory of other documents or settings, and judgements that cannot be read."""
        texts = [part for passage in self.passages for part in (passage.id, passage.title, passage.text)]
        facts = asdict(self.asked) | {"passages": digest(texts), "fingerprint": fingerprint(self.asked.model)}
        facts = {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
        path = self.path / FACTS
        before = read_json(path, dict[str, Any]) if path.exists() else facts
        for name, value in before.items():
            if facts.get(name) != value and name not in JUDGED_BY:
                raise BertJaxError(f"{self.path} holds an adaptation with other {name}; name a new --output")
        if self.asked.data:
            judged = read_judged(self.asked.data, self.asked.split)
            if not judged.names_relevant() & {passage.document for passage in self.passages}:
                raise BertJaxError(
                    f"{self.asked.data} judges none of these documents; adapt to its corpus.jsonl, or leave --data out"
                )
        if before != facts:
            remove(self.path / "index")
        write_json(path, facts, indent=1)

    def read_documents(self) -> None:
        """The pairs, and queries of the documents that are held out."""
        if all((self.path / name).exists() for name in (QUERIES, f"{HELDOUT}/qrels.tsv")):
            return
        documents = [Example(passage.id, None, "", document=passage.document) for passage in self.passages]
        _, held = split(documents, SHARE)
        names = {example.document for example in held}
        learnt = [pair for pair in pairs_of(self.passages) if pair.document not in names]
        if len(learnt) < FEWEST:
            raise BertJaxError(
                f"the documents give {len(learnt)} pairs to learn from, fewer than {FEWEST}; give more documents"
            )
        drawn = in_equal_shares(learnt, self.asked.pairs)
        write_pairs(self.path / PAIRS, drawn)
        queries = [pair for pair in queries_of(self.passages) if pair.document not in names]
        if len(queries) < FEWEST:  # text without spaces between words
            queries = learnt
        shown = in_equal_shares(queries, self.asked.pairs)
        write_pairs(self.path / QUERIES, shown)
        self.write_heldout([passage for passage in self.passages if passage.document in names])
        say(
            f"{len(self.passages):,} passages give {len(learnt):,} pairs, {len(drawn):,} of them to learn from: "
            f"{of_sources(drawn)}; the reranker learns from {of_sources(shown)}"
        )

    def write_heldout(self, held: Sequence[Passage]) -> None:
        """A query is a sentence of a passage, which is taken out of it, a few words of the rest, or the title above."""
        clozes = {passage.id: cloze for passage in held if (cloze := without_a_sentence(passage))}
        left = [replace(p, text=clozes[p.id][1] if p.id in clozes else p.text) for p in held]
        asked = [(name, query) for name, (query, _) in clozes.items()]
        asked += [(pair.passage, pair.anchor) for pair in queries_of(left)]
        asked = [
            (example.id, str(example.text))
            for example in sample([Example(query, None, "", id=name) for name, query in asked], MOST_HELDOUT)
        ]
        folder = self.path / HELDOUT
        folder.mkdir(exist_ok=True)
        texts = {p.id: clozes[p.id][1] if p.id in clozes else p.text for p in self.passages}
        write_rows(folder / "corpus.jsonl", ({"_id": name, "text": text} for name, text in texts.items()))
        write_rows(
            folder / "queries.jsonl", ({"_id": f"q{n}", "text": text} for n, (_, text) in enumerate(asked))
        )
        with streaming(folder / "qrels.tsv") as file:
            file.write("query-id\tcorpus-id\tscore\n")
            file.writelines(f"q{n}\t{name}\t1\n" for n, (name, _) in enumerate(asked))

    # Stages

    def language(self) -> str:
        """The encoder after masked language modelling on the documents, or as it is."""
        steps = self.asked.masked_lm
        if not steps:
            return self.asked.model
        corpus = self.path / "corpus"
        if not corpus.exists():
            text = self.path / "text.txt"
            with streaming(text) as file:
                for n, passage in enumerate(self.passages):
                    between = "\n" if n and is_first(self.passages, n) else ""
                    file.write(f"{between}{' '.join(passage.text.split())}\n")
            prepare(TextSource([str(text)]), hub.existing(self.asked.model), corpus, heldout=SHARE / 2)
        encoder = self.config
        self.train("language", {"task": "pretrain", "model": encoder.settings}, self.asked.model, f"steps={steps}",
                   f"data.corpora={corpus}", "data.examples=full_sentences", "data.shares=(1.0,)", "data.batch=32",
                   f"data.lengths=({min(CORPUS_ROWS, encoder.max_positions)},)", "optimizer.rate=5e-5", "first_step=0",
                   f"optimizer.warmup={steps // 10}", f"log.evaluate_every={max(steps // 4, 1)}",
                   f"checkpoints.every={max(steps // 4, 1)}")  # fmt: skip
        return str(self.path / "language/model")

    def embedder(self, begin: str) -> str:
        self.mine(MINED, begin, PAIRS, MARGIN)
        return self.train("embedder", {"task": "embed"}, begin, f"data.train={self.path / MINED}", "data.batch=64",
                          f"data.max_length={self.longest}", *self.as_before, *self.gently)  # fmt: skip

    def reranker(self, embedder: str) -> str:
        self.mine(CANDIDATES, embedder, QUERIES, margin=0.0)
        longest = min(self.longest + QUERY_ROOM, self.config.max_positions)
        return self.train("reranker", {"task": "rerank"}, self.asked.model, f"data.train={self.path / CANDIDATES}",
                          f"data.documents={CONTRASTED}", f"data.max_length={longest}", "report=False",
                          *self.learning())  # fmt: skip

    def distilled(self, embedder: str, reranker: str) -> str:
        self.mine(SCORED, embedder, QUERIES, 0.0, reranker)
        return self.train("distilled", {"task": "embed"}, embedder, f"data.train={self.path / SCORED}",
                          "data.batch=32", f"data.max_length={self.longest}", "loss.name=margin_mse",
                          *self.as_before, *self.gently)  # fmt: skip

    @cached_property
    def config(self) -> EncoderConfig:
        return hub.survey(self.asked.model)[0].config

    @property
    def longest(self) -> int:
        return min(self.asked.passage_tokens, self.config.max_positions)

    def learning(self, epochs: float = 0.0, rate: float = 0.0) -> list[str]:
        """As it was asked for, or else by these; 0 is the task's own default."""
        return [
            f"epochs={self.asked.epochs or epochs}", f"optimizer.rate={self.asked.rate or rate}",
            f"mesh.accumulate={PARTS}",
        ]  # fmt: skip

    @property
    def gently(self) -> list[str]:
        """For an embedder, which is good before: long or fast training on noisy pairs may make it worse."""
        return self.learning(epochs=1.0, rate=GENTLE_RATE)

    @property
    def as_before(self) -> list[str]:
        """How the embedder pools, in settings."""
        before = hub.survey(self.asked.model)[0].embedder or Embedder()
        return [f"model.pooling={before.pooling}", f"model.normalize={'yes' if before.normalize else 'no'}"]

    def mine(self, name: str, model: str, pairs: str, margin: float, reranker: str = "") -> None:
        path, cache = self.path / name, self.path / f"{name}.cache"
        if not path.exists():
            say(f"mining negatives with {model}")
            groups = read_groups(str(self.path / pairs), GroupColumns())
            counts = mine.write(
                path, groups, [passage.text for passage in self.passages], Vectors(model, cache),
                Limits(NEGATIVES, margin=margin), Scores(reranker, cache) if reranker else None, bool(reranker),
            )  # fmt: skip
            say(
                f"{counts.groups:,} pairs have {NEGATIVES} negatives; {counts.too_few:,} are left out because their "
                "two texts are no more similar than unrelated ones"
            )
        remove(cache)  # that a killed command left, too
        if not path.stat().st_size:
            raise BertJaxError(
                f"no pair has {NEGATIVES} passages that are less alike than its own two; give more documents"
            )

    def train(self, name: str, values: dict, init: str, *overrides: str) -> str:
        """A run, from where it is; the directory of its model."""
        workdir = self.path / name
        with part_of_run(name):
            stopped = run(values, [f"init={init}", *overrides], str(workdir), self.command) is None
        if stopped or Stop.last_signal:
            raise BertJaxError(f"{workdir} was stopped; repeat the command to resume")
        say(f"{name}: the model is in {workdir / 'model'}")
        return str(workdir / "model")

    # The end

    def conclude(self, embedder: str, reranker: str) -> None:
        folder = self.asked.data or str(self.path / HELDOUT)
        if not self.asked.data:
            say(
                "no --data, so queries are sentences, titles and words of held-out documents, as they were learnt; "
                "real queries may gain less"
            )
        _, (before, after) = evaluate.measure([self.asked.model, embedder], Trial(folder, self.asked.split))
        gap = differences(before.sums, after.sums)[BEST]
        chosen = embedder if gap.low > 0 else self.asked.model
        say(
            f"embedder: {BEST} {before.sums.scores[BEST]:.4f} before, {after.sums.scores[BEST]:.4f} after, by {folder}"
        )
        say(verdict(f"the adapted embedder, {embedder}", f"keep {self.asked.model}", gap))
        index = self.path / "index"
        self.index(index, chosen)
        trial = legs.Trial(str(index), folder, self.asked.split, reranker=reranker)
        report = str(self.path / "report")
        compared = legs.measured_and_written(trial, report, self.command)
        print("\n".join(legs.in_lines(compared)), flush=True)
        gap = compared.differences[legs.FUSION, legs.RERANKED][BEST]
        say(verdict(f"the reranker, {reranker}", "leave it out", gap))
        write_json(
            self.path / "result.json", {"embedder": chosen, "reranker": reranker if gap.low > 0 else None}
        )
        say(f"the report is {report}/report.md")
        if self.asked.data:
            say(
                f"{index} is the index of the documents: {shlex.join(['bert-jax', 'search', str(index)])} QUERY"
            )
        else:
            documents = shlex.join([*self.asked.documents, "--model", chosen])
            say(f"to search the documents: bert-jax index {documents} --output INDEX")

    def index(self, path: Path, embedder: str) -> None:
        """What is there from before a kill is used, unless it is of another embedder."""
        if (path / INDEX).exists():
            before = manifests.read(path).model
            if before is None or before.fingerprint != fingerprint(embedder):
                remove(path)
        plan = Plan(path, IndexAsked(embedder))
        with writing(path, plan.manifest) as writer:
            inputs = self.asked.documents if self.asked.data else [str(self.path / HELDOUT)]
            documents = Source(inputs, self.asked.columns).documents()
            writer.add(documents, plan.cutter, plan.encoder.documents if plan.encoder else None)


def verdict(what: str, otherwise: str, gap: Interval) -> str:
    interval = f"{gap.value:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"
    if gap.low > 0:
        return f"{what}, is better: {BEST} {interval}"
    word = "worse" if gap.high < 0 else "not better by more than chance"
    return f"{what}, is {word}: {BEST} {interval}; {otherwise}"


def of_sources(pairs: Sequence[Pair]) -> str:
    counts = Counter(pair.source for pair in pairs)
    return ", ".join(f"{counts[source]:,} {what}" for source, what in SOURCES.items() if source in counts)


def write_pairs(path: Path, pairs: Sequence[Pair]) -> None:
    write_rows(path, ({"anchor": pair.anchor, "positive": pair.positive} for pair in pairs))


def write_rows(path: Path, rows) -> None:
    with streaming(path) as file:
        file.writelines(to_json(row) + "\n" for row in rows)
