"""Adapters that a server answers for: each under its name, in common batches, while others come and go."""

import asyncio
import shutil
import time

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.inference.load import load
from bert_jax.serve.compute_queue import BatchRows, Work, compute_together, tokenize_together
from bert_jax.serve.server import named_directories, open_models
from tests.serve.processes import serving
from tests.serve.raw_client import Answer, ask, head, post
from tests.support.adapters import write_adapter
from tests.support.small_models import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    write_model(folder / "base")
    for seed, (name, labels) in enumerate({"spam": ("no", "yes"), "topic": ("a", "b", "c")}.items()):
        write_adapter(folder / name, folder / "base", "classify", labels, seed=seed, rank=2)
    return folder


@pytest.mark.slow
def test_requests_for_different_adapters_share_a_batch(folder):
    from bert_jax.serve.adapters import open_adapters

    adapters = open_adapters(
        folder / "base", {name: folder / name for name in ("spam", "topic")}, engine="jax"
    )
    served = open_models({"base": folder / "base"}, adapters)
    assert [(name, model.kind) for name, model in served.items()] == [
        ("base", "masked-lm"), ("spam", "classifier"), ("topic", "classifier"),
    ]  # fmt: skip
    loop = asyncio.new_event_loop()
    works = [
        Work(served[name].pipelines()[0], ["the cat"], loop.create_future())
        for name in ("spam", "topic", "spam")
    ]
    for work in works:
        tokenize_together([work])
    assert len({work.batch_key for work in works}) == 1
    compute_together([BatchRows(work, range(1)) for work in works])
    for work, name in zip(works, ("spam", "topic", "spam"), strict=True):
        (answer,) = work.function.postprocess(work.inputs, work.outputs)
        label = load(folder / name).classify("the cat")
        assert answer["label"] == label.label and answer["score"] == pytest.approx(label.score, abs=2e-6)
    loop.close()


@pytest.mark.ci
def test_adapters_come_and_go_while_the_server_runs(folder, tmp_path):
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "broken").mkdir()
    (watched / "broken" / "adapter_config.json").write_text("{")
    more = ["--adapter", f"spam={folder / 'spam'}", "--adapter-folder", str(watched), "--no-warm-up"]
    with serving({"base": folder / "base"}, *more) as url:
        assert names(url) == ["base", "spam"]
        given = predict(url, "spam").json()
        expected = load(folder / "spam").classify("the cat")
        assert given[0]["label"] == expected.label
        assert given[0]["score"] == pytest.approx(expected.score, abs=1e-5)
        shutil.copytree(folder / "topic", watched / "topic")
        wait_for(url, ["base", "spam", "topic"])
        asked = predict(url, "topic").json()
        assert {entry["label"] for entry in asked} == {"a", "b", "c"}
        # What was broken is served once it is mended, and may go, too.
        shutil.copytree(folder / "topic", watched / "broken", dirs_exist_ok=True)
        wait_for(url, ["base", "spam", "topic", "broken"])
        (watched / "broken" / "adapter_config.json").write_text("{")
        wait_for(url, ["base", "spam", "topic"])
        shutil.rmtree(watched / "broken")
        shutil.rmtree(watched / "topic")
        wait_for(url, ["base", "spam"])
        assert predict(url, "topic").status == 404


def predict(url: str, name: str) -> Answer:
    return ask(port_of(url), post(f"/models/{name}/predict", {"inputs": "the cat"}))


def names(url: str) -> list[str]:
    answer = ask(port_of(url), head("GET", "/models"))
    return [model["name"] for model in answer.json()["models"]]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def wait_for(url: str, expected: list[str]) -> None:
    until = time.monotonic() + 60
    while names(url) != expected:
        assert time.monotonic() < until, names(url)
        time.sleep(0.1)


WRONG = {
    "an index": ("index", {}, "is an index"),
    "a name twice": ("base", {"base": "spam"}, 'an adapter and a model are called "base"'),
    "a model": ("base", {"spam": "base"}, "is not the directory of an adapter"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_cannot_be_served_is_said_in_one_line(fault, folder):
    from bert_jax.serve.adapters import open_adapters

    model, given, message = WRONG[fault]
    (folder / "index").mkdir(exist_ok=True)
    (folder / "index" / "index.json").write_text("{}")
    with pytest.raises(BertJaxError, match=message):
        adapters = open_adapters(folder / model, {k: folder / v for k, v in given.items()}, engine="jax")
        open_models(named_directories([f"base={folder / model}"]), adapters)
