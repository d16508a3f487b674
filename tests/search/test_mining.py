"""Hard negatives are the nearest texts that are no positives, found once and the same after a kill."""

import json
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_json
from bert_jax.data.examples.group_columns import GroupColumns
from bert_jax.data.examples.groups import read_groups
from bert_jax.hub import model_directory as hub
from bert_jax.hub import sentence_transformers
from bert_jax.inference import batching, exact_search
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.reranker import Reranker
from bert_jax.inference.text_vectors import DOCUMENT_PROMPTS, QUERY_PROMPTS, EmbeddingPipeline
from bert_jax.predictions.calibration import log_odds
from bert_jax.search import mining
from bert_jax.search.cache import RowCache
from bert_jax.search.mining import (
    CachedEncoder,
    MinedTable,
    MiningLimits,
    MiningSettings,
    mine_hard_negatives,
    write_rows,
)
from bert_jax.training.run_config import RunConfig
from bert_jax.training.state import init_random_params
from bert_jax.training.task import Task
from tests.support.embedding_tasks import random_pairs
from tests.support.processes import run_process
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts
from tests.support.tiny_encoder import ENCODER_CONFIG, TOKENIZER


def rows_of(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def unit(values) -> np.ndarray:
    values = np.array(values)
    return (values / np.linalg.norm(values, axis=-1, keepdims=True)).astype(np.float32)


def drawn(content: str) -> np.ndarray:
    return np.random.default_rng(list(content.encode())).normal(0, 1, 5)


class Given:
    """Vectors that are drawn for each text and prompt."""

    def encode(self, some, prompts=()) -> np.ndarray:
        return unit([drawn("".join(prompts) + text) for text in some])


class GivenScores:
    """Scores that are drawn for each pair."""

    def score(self, pairs) -> np.ndarray:
        return np.array([drawn("\n".join(pair))[0] for pair in pairs], np.float32)


@pytest.mark.parametrize(
    ("limits", "reranker"),
    [
        (MiningLimits(6, margin=0.0), None),
        (MiningLimits(1, range_min=3, margin=0.0), None),
        (MiningLimits(2, margin=0.5), None),
        (MiningLimits(2, margin=0.0, min_score=-0.4, max_score=0.3), None),
        (MiningLimits(1, margin=0.0, range_max=2), GivenScores()),
        (MiningLimits(2, margin=0.5), GivenScores()),
    ],
)
def test_negatives_are_those_of_brute_force(limits, reranker, tmp_path, monkeypatch):
    monkeypatch.setattr(mining, "BLOCK", 7)
    monkeypatch.setattr(exact_search, "WIDTH", 9)
    rows = random_pairs(30)
    rows += [{"question": rows[0]["question"], "answer": rows[1]["answer"]}]  # an anchor with two positives
    rows += [{"question": rows[2]["answer"], "answer": rows[3]["answer"]}]  # and one that is a positive
    groups = read_groups(write_jsonl(tmp_path / "pairs.jsonl", rows), GroupColumns())
    corpus = [*random_texts(10, (3, 9), 7), *(row["question"] for row in rows)]
    mined = list(mine_hard_negatives(groups, corpus, Given(), limits, reranker))
    candidates = list(dict.fromkeys([*(row["answer"] for row in rows), *corpus]))
    questions = Given().encode([row["question"] for row in rows], QUERY_PROMPTS)
    products = questions @ Given().encode(candidates, DOCUMENT_PROMPTS).T
    expected = []
    for row, cosines in zip(rows, products, strict=True):
        right = {other["answer"] for other in rows if other["question"] == row["question"]}
        right.add(row["question"])
        order = [n for n in np.argsort(-cosines, kind="stable") if candidates[n] not in right]
        scores = reranker.score([(row["question"], text) for text in candidates]) if reranker else cosines
        of_positive = scores[candidates.index(row["answer"])]
        below = of_positive - limits.margin * (1 if reranker else abs(of_positive))
        near = [n for n in order[limits.range_min : limits.range_max] if scores[n] < below]
        near = [n for n in near if limits.min_score <= scores[n] <= limits.max_score][: limits.negatives]
        if len(near) == limits.negatives:
            negatives = {f"negative_{n}": candidates[i] for n, i in enumerate(near, 1)}
            written = {"anchor": row["question"], "positive": row["answer"], **negatives}
            expected.append(written | {"scores": pytest.approx([of_positive, *scores[near]], abs=1e-6)})
    assert mined == expected and 0 < len(mined) <= len(rows)


@pytest.mark.slow
def test_texts_of_the_same_label_are_no_negatives(encoder_path, tmp_path):
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(random_texts(16))]
    groups = read_groups(write_jsonl(tmp_path / "labelled.jsonl", rows), GroupColumns())
    label_of = {row["text"]: row["label"] for row in rows}
    limits = MiningLimits(1, margin=0.0, range_max=16)
    encoder = CachedEncoder(encoder_path, tmp_path / "kept")
    mined = list(mine_hard_negatives(groups, [], encoder, limits))
    assert mined and all(label_of[row["anchor"]] != label_of[row["negative_1"]] for row in mined)


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory):
    """The directory of one with initial values, as sentence-transformers saves it."""
    directory = tmp_path_factory.mktemp("cross")
    layout = hub.Layout(ENCODER_CONFIG, heads=("classify",), labels=("LABEL_0",))
    params = jax.device_get(jax.jit(lambda: init_random_params(Task(layout), RunConfig()))())
    hub.save_model(directory, layout, params, TOKENIZER)
    modules = [{"type": "sentence_transformers.base.modules.Transformer", "path": ""}]
    write_json(directory / "modules.json", modules)
    write_json(directory / "sentence_bert_config.json", {"transformer_task": "sequence-classification"})
    return directory


@pytest.fixture
def counted(monkeypatch):
    """What a model reads to embed it, in files of 16 texts."""
    monkeypatch.setattr(batching, "CPU_TOKENS", 16)
    texts_read: list[str] = []

    def counting(embedder, **settings):
        compute = EmbeddingPipeline(embedder, **settings)

        def of_texts(some):
            texts_read.extend(some)
            return compute(some)

        return of_texts

    monkeypatch.setattr(mining, "EmbeddingPipeline", counting)
    return texts_read


def test_texts_are_embedded_behind_the_prompt_of_their_part(encoder_path, tmp_path):
    prompted = shutil.copytree(encoder_path, tmp_path / "model")
    embedder = sentence_transformers.EmbedderSettings(prompts={"query": "w1 ", "passage": "w2 "})
    sentence_transformers.write_embedder(prompted, embedder, 32)
    kept, ours = CachedEncoder(prompted, tmp_path / "kept"), Embedder.load(prompted)
    for prompts, name in ((QUERY_PROMPTS, "query"), (DOCUMENT_PROMPTS, "passage")):
        expected = ours.encode(["w3 w4"], name, normalize_embeddings=True)
        assert np.array_equal(kept.encode(["w3 w4"], prompts)[:], expected)


@pytest.mark.slow
def test_each_text_is_embedded_once_wherever_it_stands(encoder_path, tmp_path, counted, capsys):
    rows = random_pairs(30)
    command = ["mine", "--model", str(encoder_path), "--negatives", "2", "--margin", "0.1"]
    command += ["--cache", str(tmp_path)]
    data = write_jsonl(tmp_path / "pairs.jsonl", rows)
    assert main([*command, "--data", data, "--output", str(tmp_path / "a.jsonl")]) == 0
    mined, printed = rows_of(tmp_path / "a.jsonl"), capsys.readouterr().err
    assert f"{len(mined)} groups in" in printed
    assert f"; {30 - len(mined)} anchors with fewer than 2 negatives" in printed
    strict = [*command, "--data", data, "--output", str(tmp_path / "none.jsonl"), "--max-score", "-1"]
    assert main(strict) == 1 and "no anchor has enough negatives" in capsys.readouterr().err
    assert not (tmp_path / "none.jsonl").exists()
    own = [text for row in rows for text in row.values()]
    assert sorted(counted) == sorted(set(own)), "an anchor is embedded as a document is, without a prompt"
    counted.clear()
    parts = sorted(tmp_path.glob("vectors-*/*.npy"))
    assert len(parts) == 4
    more = write_jsonl(tmp_path / "more.jsonl", [{"question": "w1", "answer": "w2 w3"}, *reversed(rows)])
    assert main([*command, "--data", more, "--output", str(tmp_path / "b.jsonl")]) == 0
    assert sorted(counted) == ["w1", "w2 w3"]
    counted.clear()
    parts[1].unlink()
    assert main([*command, "--data", data, "--output", str(tmp_path / "c.jsonl")]) == 0
    assert 0 < len(counted) <= 16
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    parts[0].write_bytes(parts[0].read_bytes()[:-1])
    assert main([*command, "--data", data, "--output", str(tmp_path / "d.jsonl")]) == 1
    assert "damaged" in capsys.readouterr().err


def test_several_commands_fill_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(batching, "CPU_TOKENS", 4)
    caches = [RowCache(tmp_path, "lengths", "of lists") for _ in range(2)]
    lists = [["a"] * n for n in range(10)]
    for cache, some in zip(caches, (lists, lists[::-1]), strict=True):
        assert cache.get_or_compute(some, lambda missing: np.array([*map(len, missing)]))[:].tolist() == [
            *map(len, some)
        ]
    again = RowCache(tmp_path, "lengths", "of lists").get_or_compute([*lists, lists[3]], pytest.fail)
    assert again[:].tolist() == [*range(10), 3]
    (tmp_path / "file").touch()
    with pytest.raises(BertJaxError, match="file: Not a directory; name another one"):
        RowCache(tmp_path / "file", "lengths", "of lists")


@pytest.mark.slow
def test_a_rerankers_scores_decide_and_are_learnt_from(encoder_path, cross_encoder, tmp_path):
    data, output = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(30)), tmp_path / "mined.jsonl"
    command = ["mine", "--model", str(encoder_path), "--data", data, "--output", str(output)]
    command += ["--negatives", "1"]
    assert main([*command, "--rescore", str(cross_encoder), "--scores"]) == 0
    rescored = rows_of(output)
    groups = read_groups(str(output), GroupColumns())
    assert {(len(group.texts), len(group.scores)) for group in groups} == {(3, 2)}
    asked = [(group.texts[0], text) for group in groups for text in group.texts[1:]]
    scores = log_odds(Reranker.load(cross_encoder).predict(asked))  # of the probabilities that it gives
    np.testing.assert_allclose(scores, [score for group in groups for score in group.scores], atol=1e-5)
    assert all(group.scores[1] < group.scores[0] for group in groups)
    assert main(command) == 0
    assert rows_of(output) != rescored and "scores" not in rows_of(output)[0]


# Kills a command where it is about to name a file; each in a process that is forked from one that has imported
# everything.
KILLED = """
import os, signal, sys
from bert_jax.core import output
from bert_jax.command.main import main
from bert_jax.inference import batching
import bert_jax.search.mining

batching.CPU_TOKENS = 16
sync = output.sync_to_disk
for kill in ["", "vectors- 2", "scores- 2", ".cut.jsonl. 1", ""]:
    name, count = (kill or "never 1").split()
    left = int(count)

    def counting(path):
        global left
        left -= name in str(path)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        sync(path)

    number = os.fork()
    if not number:
        output.sync_to_disk = counting
        os._exit(main([*sys.argv[2:], "--output", sys.argv[1]]))
    code = os.waitstatus_to_exitcode(os.wait()[1])
    assert code == (-9 if kill else 0), (kill, code)
    sys.argv[1] = os.path.join(os.path.dirname(sys.argv[1]), "cut.jsonl")
"""


@pytest.mark.long
def test_a_killed_command_ends_as_if_it_had_not_been(encoder_path, cross_encoder, tmp_path):
    data, whole = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60)), tmp_path / "whole.jsonl"
    run_process(
        [sys.executable, "-c", KILLED, str(whole), "mine", "--model", str(encoder_path), "--data", data, "--negatives",
         "1", "--rescore", str(cross_encoder), "--scores"]
    )  # fmt: skip
    assert len(rows_of(whole)) > 30
    assert (tmp_path / "cut.jsonl").read_bytes() == whole.read_bytes()
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.slow
def test_a_text_that_the_model_reads_as_the_positive_is_no_negative(encoder_path, tmp_path):
    rows = random_pairs(30)
    again = {row["answer"].replace(" ", "  "): row["question"] for row in rows}
    arguments = {
        "model": encoder_path, "data": write_jsonl(tmp_path / "pairs.jsonl", rows), "output": tmp_path / "mined.jsonl",
        "corpus": write_jsonl(tmp_path / "corpus.jsonl", [{"note": "a", "answer": text} for text in again]),
        "margin": 0, "negatives": 9,
    }  # fmt: skip
    flags = [str(word) for name, value in arguments.items() for word in (f"--{name}", value)]
    assert main(["mine", *flags]) == 0
    groups = read_groups(str(tmp_path / "mined.jsonl"), GroupColumns())
    assert groups and {len(group.texts) for group in groups} == {11}
    owners = [(again.get(text), group.texts[0]) for group in groups for text in group.texts[2:]]
    assert any(owner for owner, _ in owners) and all(owner != anchor for owner, anchor in owners)


@pytest.mark.slow
def test_a_file_without_a_group_is_not_written(encoder_path, tmp_path):
    data, output = write_jsonl(tmp_path / "rows.jsonl", random_pairs(4)), tmp_path / "mined.jsonl"
    limits = MiningLimits(negatives=1, max_score=-1)
    table = MinedTable(MiningSettings(data, str(encoder_path), tmp_path / "kept", limits))
    with pytest.raises(BertJaxError, match="mined.jsonl is not written, because no anchor has enough"):
        list(write_rows(output, table.rows()))
    assert not output.exists()
