"""Adapting an embedder and a reranker to documents without labels: pairs of their structure, stages, the verdict.

That a kill in any stage changes nothing is in tests/hostile/test_adapt_kills.py.
"""

import json
import random

import pytest

from bert_jax.command.adaptation import verdict
from bert_jax.command.main import main
from bert_jax.core.output import remove_path
from bert_jax.inference.model import load
from bert_jax.report.intervals import Interval
from bert_jax.search.structure import DocumentPair, Passage, make_pairs, make_query_pairs, sample_equally
from tests.hostile.outcomes import kill_when, started
from tests.support.made_up_language import WORDS
from tests.support.tables import write_jsonl

A, B = "Cats land on their feet. Few know why that is so.", "Dogs fall on their backs."


def test_pairs_of_titles_neighbours_and_sentences():
    passages = [
        Passage("a#0", "a", "Cats", A),
        Passage("a#1", "a", "Cats", B),
        Passage("b", "b", "", "Short."),
    ]
    found = [(pair.source, pair.anchor, pair.positive, pair.passage) for pair in make_pairs(passages)]
    sentence = next(one for one in found if one[0] == "sentence")
    assert {sentence[1], sentence[2]} == set(A.replace(". ", ".\n").split("\n")) and sentence[3] == "a#0"
    assert [one for one in found if one[0] != "sentence"] == [
        ("title", "Cats", A, "a#0"), ("neighbour", A, B, "a#1"),
    ]  # fmt: skip
    alike = [Passage(f"d{n}", f"d{n}", "Cats", B) for n in range(4)]
    assert not [pair for pair in make_pairs(alike) if pair.source == "title"], "which of them is meant?"


def test_made_up_queries_are_words_of_one_sentence_that_few_passages_have():
    sentences = [
        f"The {word} of a{n} likes b{n} and c{n}, d{n} or e{n}." for n, word in enumerate(WORDS[:40])
    ]
    passages = [
        Passage(str(n), str(n), "", f"{first} {second}")
        for n, (first, second) in enumerate(zip(sentences[::2], sentences[1::2], strict=True))
    ]
    asked = list(make_query_pairs([*passages, Passage("t", "t", "A title", "The of and the.")]))
    assert [pair.source for pair in asked] == ["words"] * 20 + ["title"], (
        "nothing is asked for by common words"
    )
    counts = set()
    for passage, pair in zip(passages, asked[:20], strict=True):
        assert pair.positive == passage.text and pair.passage == passage.id
        words = pair.anchor.split()
        counts.add(len(words))
        of_one = [s for s in sentences if set(words) <= set(s.replace(",", "").replace(".", "").split())]
        assert len(of_one) == 1 and of_one[0] in passage.text
        assert sorted(words, key=of_one[0].index) == words, "in their order"
        assert not {"The", "of", "likes", "and", "or"} & set(words)
    assert min(counts) == 2 and len(counts) > 3 and list(make_query_pairs(passages)) == asked[:20]


@pytest.mark.parametrize(
    ("most", "counts"),
    [
        (9, (3, 3, 3)),
        (15, (4, 5, 6)),
        (16, (4, 6, 6)),
        (31, (4, 7, 20)),
        (32, (4, 7, 20)),
        (2, (0, 1, 1)),
        (0, (0, 0, 0)),
    ],
)
def test_pairs_are_drawn_of_each_source_alike(most, counts):
    order = ("title", "sentence", "neighbour")
    sources = ["title"] * 4 + ["sentence"] * 7 + ["neighbour"] * 20
    pairs = [
        DocumentPair(f"a{n}", f"b{n}", "d", "p", source)
        for n, source in enumerate(random.Random(0).sample(sources, 31))
    ]
    drawn = sample_equally(pairs, most)
    assert tuple(sum(pair.source == source for pair in drawn) for source in order) == counts
    assert drawn == [pair for pair in pairs if pair in drawn], "in their order, and none twice"
    by_source = [[pair for pair in pairs if pair.source == source] for source in order]
    first = {pair for some, count in zip(by_source, counts, strict=True) for pair in some[:count]}
    assert most not in (9, 15, 16) or {*drawn} != first, "drawn at random"


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        (Interval(0.02, 0.01, 0.03), "x, is better: ndcg@10 +0.0200 (+0.0100 to +0.0300)"),
        (Interval(0.02, -0.01, 0.03),
         "x, is not better by more than chance: ndcg@10 +0.0200 (-0.0100 to +0.0300); keep y"),
        (Interval(-0.02, -0.03, -0.01), "x, is worse: ndcg@10 -0.0200 (-0.0300 to -0.0100); keep y"),
    ],
)  # fmt: skip
def test_a_verdict_is_that_of_the_interval(interval, words):
    assert verdict("x", "keep y", interval) == words


def documents(path, count: int) -> str:
    """Each of words of its own, some of which are its title."""
    rng, rows = random.Random(1), []
    for n in range(count):
        own = rng.sample(WORDS[20:], 12)
        sentences = [" ".join(rng.choices(own, k=7)).capitalize() + "." for _ in range(8)]
        rows.append({"id": f"d{n}", "title": f"{own[0]} {own[1]} {n}", "text": " ".join(sentences)})
    return write_jsonl(path, rows)


def results(out) -> dict[str, bytes]:
    """All but what holds times: reports and what runs have measured."""
    files = [
        *out.glob("*.json*"), *out.glob("heldout/*"), *out.glob("*/model/**/*"), *out.glob("index/**/*"),
    ]  # fmt: skip
    return {str(path.relative_to(out)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [[], pytest.param(["--masked-lm", "4", "--distil"], marks=pytest.mark.long)], ids=["usual", "all"]
)
def test_every_stage_is_kept_and_the_command_says_what_helped(more, encoder_path, tmp_path, capsys):
    given = [
        "adapt", documents(tmp_path / "docs.jsonl", 60), "--model", str(encoder_path), "--output",
        str(tmp_path / "out"), "--pairs", "128", "--passage-tokens", "32", "--rate", "1e-3", "--epochs", "1", *more,
    ]  # fmt: skip
    assert main([*given, "--data", str(tmp_path / "none")]) == 1
    out = tmp_path / "out"
    assert "has no corpus.jsonl" in capsys.readouterr().err and not (out / "queries.jsonl").exists()
    others = tmp_path / "others"
    others.mkdir()
    (others / "corpus.jsonl").write_text('{"_id": "another", "text": "w1"}\n')
    (others / "queries.jsonl").write_text('{"_id": "q", "text": "w1"}\n')
    (others / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\tanother\t1\n")
    assert main([*given, "--data", str(others)]) == 1
    assert (
        "judges none of these documents" in capsys.readouterr().err and not (out / "queries.jsonl").exists()
    )
    assert main(given) == 0
    said = capsys.readouterr().out
    assert "pairs have 4 negatives" in said and "real queries may gain less" in said
    assert f"to search the documents: bert-jax index {given[1]} --model " in said
    assert "passages give" in said and "the report is" in said and "reranked" in said
    names = ("language", "embedder", "reranker", "distilled") if more else ("embedder", "reranker")
    stages = {name: out / name / "model" for name in names}
    assert load(stages["reranker"]).kind.name == "relevance"
    assert load(stages["embedder"]).embed("w20 w21").shape == (32,)
    result = json.loads((out / "result.json").read_text())
    assert result["embedder"] in (str(encoder_path), str(stages["distilled" if more else "embedder"]))
    held = {json.loads(line)["_id"] for line in (out / "heldout/queries.jsonl").read_text().splitlines()}
    assert held and (out / "report/report.md").is_file()

    before = results(out)
    assert {f"{stage}/model/model.safetensors" for stage in stages} < before.keys()
    for name in ("candidates.jsonl", "reranker", "index", "report", "result.json"):
        remove_path(out / name)
    as_here = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "XLA_FLAGS": ""}  # the same programs, so the same bits
    kill_when(started(given, env=as_here), out, "reranker/metrics.jsonl")
    assert main(given) == 0
    assert results(out) == before
    kept = [line for line in capsys.readouterr().out.splitlines() if "already finished" in line]
    assert kept and all(
        line.startswith(("language: ", "embedder: ")) and "--workdir" not in line for line in kept
    )
    assert main([*given, "--data", str(tmp_path / "none")]) == 1
    assert "has no corpus.jsonl" in capsys.readouterr().err, "other judgements are no other adaptation"
    assert main([*given, "--epochs", "2"]) == 1
    assert "holds an adaptation with different epochs; name a new --output" in capsys.readouterr().err
