"""`bert-jax inspect` shows what the stream gives."""

import re

import pytest

from bert_jax.command.main import main
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.data.corpus.step_preview import show_step
from bert_jax.data.corpus.stream import Stream
from bert_jax.tasks import load_config
from bert_jax.text.text_source import TextSource
from tests.support.made_up_language import ENTRIES, join_documents, random_documents, save_tokenizer
from tests.support.project import ROOT

PRETRAIN = str(ROOT / "configs/pretrain.py")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("inspect")
    (root / "text.txt").write_text(join_documents(random_documents(300, seed=5)))
    save_tokenizer(root / "vocabulary")
    prepare_corpus(
        TextSource([root / "text.txt"], "sentences"), root / "vocabulary", root / "corpus", processes=1
    )
    return root


def settings(corpus, *more):
    return [f"data.corpora={corpus / 'corpus'}", "data.batch_size=64", "data.dupe_factor=1", *more]


def show(corpus, *more, step: int, rows: int, colour: bool) -> str:
    config = load_config(f"{PRETRAIN}:base", settings(corpus, *more))[1]
    return show_step(Stream(config.data, config.seed, config.steps), step, rows, colour)


@pytest.mark.slow
def test_targets_show_what_became_of_them(corpus):
    from bert_jax.data.corpus.data_config import DataConfig

    text = show(corpus, step=3, rows=64, colour=False)
    batch = Stream(DataConfig((str(corpus / "corpus"),), batch_size=64, dupe_factor=1), 0, 1_000_000).batch(3)
    masked = replaced = kept = 0
    for i in range(64):
        for position, target, weight in zip(
            *(batch[name][i] for name in ("target_positions", "targets", "target_weights")), strict=True
        ):
            token, old = batch["input_ids"][i, position], ENTRIES[target]
            masked += bool(weight) and token == 4 and f"[MASK:{old}]" in text
            replaced += bool(weight) and token not in (4, target) and f"{{{ENTRIES[token]}<{old}}}" in text
            kept += bool(weight) and token == target and f"={old}=" in text
    text = re.sub(r"^Targets, here .*$", "", text, flags=re.M)  # which explains the signs
    shown = [len(re.findall(pattern, text)) for pattern in (r"\[MASK:", r"\{\S+<\S+\}", r"=\S+=")]
    assert (
        shown == [masked, replaced, kept] and sum(shown) == batch["target_weights"].sum() and min(shown) > 20
    )
    assert text.count("label 1") == batch["labels"].sum() and text.count("segment B:") == 64
    share = re.search(r"random pairs\s+([\d.]+)%\s+50.0%", text)
    assert abs(float(share[1]) / 100 - batch["labels"].mean()) < 1e-3
    assert re.search(r"masked\s+[78]\d\.\d+%\s+80.0%", text)


@pytest.mark.slow
def test_colours_only_on_a_terminal(corpus, capsys, monkeypatch):
    flags = ["inspect", "--config", f"{PRETRAIN}:base", *(f"--config.{s}" for s in settings(corpus))]
    assert main(flags) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert "\x1b[31m[MASK" in show(corpus, step=0, rows=1, colour=True)


@pytest.mark.parametrize("examples", ["sentence_order", "none"])
def test_other_examples(corpus, examples):
    text = show(corpus, f"data.sentence_objective={examples}", step=950_000, rows=8, colour=False)
    assert ("sequence 2:" in text and "sequences per row" in text) == (examples == "none")
    assert ("swapped pairs" in text) == (examples == "sentence_order")
