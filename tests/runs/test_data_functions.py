"""prepare, train_tokenizer and mine_hard_negatives give what the commands give."""

import json
import os
from pathlib import Path

import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from tests.support.indexes import file_contents
from tests.support.small_models import SMALL_TEXTS, write_model

pytestmark = pytest.mark.slow
PAIRS = [(f"{text} {n}", f"{text} on {n}") for n in range(3) for text in SMALL_TEXTS]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "model")
    write_model(tmp_path / "judge", heads=("classify",), labels=("LABEL_0",))
    for n in range(2):
        texts = [f"{text} .\nThe cats {k} sat." for k, text in enumerate(SMALL_TEXTS[n::2])]
        (tmp_path / f"{n}.txt").write_text("\n\n".join(texts))
    rows = [{"anchor": anchor, "positive": positive} for anchor, positive in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_corpus_is_that_of_the_command(folder, capsys):
    flags = ["--validation-ratio", "0.5", "--processes", "1", "--layout", "blank"]
    given = ["--input", "0.txt", "1.txt", "--tokenizer", "model", "--output", "command"]
    assert main(["prepare", *given, *flags]) == 0
    summary = capsys.readouterr().err
    counts = bert_jax.prepare(
        [folder / "0.txt", "1.txt"], Path("model"), Path("python"), validation_ratio=0.5, processes=1
    )
    assert (
        capsys.readouterr().out.split()
        == summary.replace("command", "python").replace("--layout file", "layout file").split()
    )
    written = [file_contents(folder / name) for name in ("command", "python")]
    manifests = [json.loads(contents.pop("manifest.json")) for contents in written]
    assert written[0] == written[1] and counts == manifests[0]["counts"] == manifests[1]["counts"]


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--size", "160", "--cased"], {"size": 160, "cased": True}),
        (["--extend", "model", "--size", "2"], {"extend": Path("model"), "size": 2}),
    ],
)
def test_a_vocabulary_is_that_of_the_command(folder, flags, options):
    assert main(["vocab", "--input", "0.txt", "1.txt", "--output", "command", *flags]) == 0
    tokenizer = bert_jax.train_tokenizer(["0.txt", folder / "1.txt"], "python", **options)
    assert file_contents(folder / "command") == file_contents(folder / "python")
    assert tokenizer.tokens(tokenizer.ids(["cats"])[0]) == ["cats"]


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (["--scores", "--margin", "0"], {"scores": True, "margin": 0}),
        (["--rescore", "judge", "--margin", "0.01"], {"rescore": "judge", "margin": 0.01}),
    ],
)
def test_negatives_are_those_of_the_command(folder, flags, options):
    given = ["--model", "model", "--data", "pairs.jsonl", "--negatives", "1", "--output", "command.jsonl"]
    assert main(["mine", *given, *flags]) == 0
    expected = [json.loads(line) for line in Path("command.jsonl").read_text().splitlines()]
    assert expected
    for pairs in ("pairs.jsonl", [{"positive": b, "anchor": a} for a, b in PAIRS]):
        assert bert_jax.mine_hard_negatives("model", pairs, negatives=1, **options) == expected
    assert not Path("memory:pairs.cache").exists()
    loaded = {name: bert_jax.load(value) if name == "rescore" else value for name, value in options.items()}
    rows = bert_jax.mine_hard_negatives(
        bert_jax.load("model"), iter(PAIRS), negatives=1, output="python.jsonl", cache="cache", **loaded
    )
    assert rows == expected and Path("python.jsonl").read_bytes() == Path("command.jsonl").read_bytes()
    assert os.listdir("cache") and not Path("python.jsonl.cache").exists()


def test_negatives_come_from_further_texts_and_what_is_left_out_is_told():
    rows = bert_jax.mine_hard_negatives("model", PAIRS, corpus=["cat mat on the"], negatives=2, margin=0)
    Path("further.jsonl").write_text('{"text": "cat mat on the"}\n')
    assert rows == bert_jax.mine_hard_negatives("model", PAIRS, corpus="further.jsonl", negatives=2, margin=0)
    with pytest.raises(BertJaxError, match="corpus must be a path"):
        bert_jax.mine_hard_negatives("model", PAIRS, corpus="")
    with pytest.warns(UserWarning, match="a higher range_max or a lower margin keeps more"):
        assert bert_jax.mine_hard_negatives("model", PAIRS, min_score=1) == []
    with pytest.raises(BertJaxError, match="^margin 2 is out of range for cosines"):
        bert_jax.mine_hard_negatives("model", PAIRS, margin=2)
