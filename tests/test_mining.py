"""Hard negatives are the nearest texts that are no positives, found once and the same after a kill."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax.command.main import main
from bert_jax.data.examples.groups import GroupColumns, read_groups
from bert_jax.inference.model import load
from bert_jax.search import vectors as vectors_module
from bert_jax.search.mining import Limits, Mined, mine
from bert_jax.search.vectors import Vectors
from test_embed_task import pairs, table
from test_finetune import model, texts  # noqa: F401

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def rows_of(path) -> list[dict]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


class Given:
    """Vectors that are drawn for each text and prompt."""

    def of(self, some, prompt: str = "") -> np.ndarray:
        seeds = [list((prompt + text).encode()) for text in some]
        drawn = np.stack([np.random.default_rng(seed).normal(0, 1, 5) for seed in seeds])
        return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(2, margin=0.0),
        Limits(6, margin=0.0),
        Limits(1, first=3, margin=0.0),
        Limits(2, margin=0.5),
        Limits(1, margin=0.0, last=2),
        Limits(2, margin=0.0, least=-0.4, most=0.3),
    ],
)
def test_negatives_are_those_of_brute_force(limits, tmp_path):
    rows = pairs(30)
    rows += [{"question": rows[0]["question"], "answer": rows[1]["answer"]}]  # an anchor with two positives
    rows += [{"question": rows[2]["answer"], "answer": rows[3]["answer"]}]  # and one that is a positive
    groups = read_groups(table(tmp_path / "pairs.jsonl", rows), GroupColumns())
    corpus, counts = [*texts(10, (3, 9), 7), *(row["question"] for row in rows)], Mined()
    mined = list(mine(groups, corpus, Given(), limits, counts))
    candidates = list(dict.fromkeys([*(row["answer"] for row in rows), *corpus]))
    products = Given().of([row["question"] for row in rows], "query") @ Given().of(candidates, "document").T
    expected = []
    for row, cosines in zip(rows, products, strict=True):
        right = {other["answer"] for other in rows if other["question"] == row["question"]} | {
            row["question"]
        }
        order = [n for n in np.argsort(-cosines, kind="stable") if candidates[n] not in right]
        ceiling = cosines[candidates.index(row["answer"])]
        ceiling -= limits.margin * abs(ceiling)
        near = [n for n in order[limits.first : limits.last] if cosines[n] <= min(ceiling, limits.most)]
        near = [candidates[n] for n in near if cosines[n] >= limits.least][: limits.negatives]
        if len(near) == limits.negatives:
            names = [f"negative_{n + 1}" for n in range(len(near))]
            expected.append(
                {"anchor": row["question"], "positive": row["answer"], **dict(zip(names, near, strict=True))}
            )
    assert mined == expected and 0 < len(mined) <= len(rows)
    assert (counts.groups, counts.too_few) == (len(mined), len(rows) - len(mined))


def test_texts_of_the_same_label_are_no_negatives(model, tmp_path):  # noqa: F811
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(texts(16))]
    groups = read_groups(table(tmp_path / "labelled.jsonl", rows), GroupColumns())
    label_of = {row["text"]: row["label"] for row in rows}
    limits = Limits(1, margin=0.0, last=16)
    mined = list(mine(groups, [], Vectors(model, tmp_path / "kept"), limits, Mined()))
    assert mined and all(label_of[row["anchor"]] != label_of[row["negative_1"]] for row in mined)


def test_each_text_is_embedded_once_and_a_killed_command_goes_on(model, tmp_path, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setattr(vectors_module, "TEXTS", 8)
    data = table(tmp_path / "pairs.jsonl", pairs(30))
    command = ["mine", "--model", str(model), "--data", data, "--negatives", "2", "--margin", "0.2"]
    assert main([*command, "--output", str(tmp_path / "a.jsonl")]) == 0
    said = capsys.readouterr().err
    mined = rows_of(tmp_path / "a.jsonl")
    assert f"{len(mined)} groups in" in said
    assert f"; {30 - len(mined)} anchors have fewer than 2 negatives" in said
    parts = sorted((tmp_path / "a.jsonl.vectors").glob("*.npy"))
    assert len(parts) == 2 * 4
    counted, embed = [], load(model).__class__.embed

    def counting(self, some, **settings):
        counted.append(len(some))
        return embed(self, some, **settings)

    monkeypatch.setattr(load(model).__class__, "embed", counting)
    for part in (parts[0], parts[5]):
        part.unlink()
    again = [*command, "--output", str(tmp_path / "b.jsonl"), "--cache", str(tmp_path / "a.jsonl.vectors")]
    assert main(again) == 0
    assert len(counted) == 2 and sum(counted) <= 16, "what was kept is not computed again"
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    parts[0].write_bytes(b"damaged")
    assert main(again) == 1
    assert "is damaged; delete it, and run the same command again" in capsys.readouterr().err


def test_mined_groups_are_learnt_from(model, tmp_path):  # noqa: F811
    data = table(tmp_path / "pairs.jsonl", pairs(30))
    output = str(tmp_path / "mined.jsonl")
    assert main(["mine", "--model", str(model), "--data", data, "--negatives", "1", "--output", output]) == 0
    groups = read_groups(output, GroupColumns())
    assert {len(group.texts) for group in groups} == {3}


def test_its_inputs_are_never_overwritten_and_single_texts_are_no_pairs(model, tmp_path, capsys):  # noqa: F811
    data = table(tmp_path / "pairs.jsonl", pairs(4))
    corpus = table(tmp_path / "corpus.jsonl", [{"text": text} for text in texts(4)])
    command = ["mine", "--model", str(model)]
    for given, message in (
        (["--data", data, "--corpus", corpus, "--output", corpus], "is also the input"),
        (["--data", corpus, "--output", str(tmp_path / "o.jsonl")], "anchors and positives are needed"),
    ):
        assert main([*command, *given]) == 1
        assert message in capsys.readouterr().err
