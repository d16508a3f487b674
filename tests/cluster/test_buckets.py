"""Shards that are read from a bucket and written to one, by a worker in this process."""

import json
import re
import socket
from pathlib import Path

import pytest

from bert_jax.cluster import run_shards
from bert_jax.cluster.predict_shards import PredictShards
from bert_jax.cluster.worker import ClusterOptions, ShardRefusal, ShardResult, ShardWorker, list_versions
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.columns import ExampleColumns
from bert_jax.inference.row_predictor import PredictionOptions
from tests.support.indexes import file_contents
from tests.support.object_store import ObjectStore, object_store
from tests.support.small_models import SMALL_TEXTS

pytestmark = pytest.mark.slow
ENGINE = {"engine": "jax", "dtype": "float32"}
HERE = ClusterOptions("local")


@pytest.fixture
def store(tmp_path, monkeypatch, worker_environment):
    """A bucket with three files of texts, and two files that hold none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with object_store() as store:
        store.objects |= {f"in/{n}.txt": f"{text}\ncats\n".encode() for n, text in enumerate(SMALL_TEXTS[:3])}
        store.objects |= {"in/_SUCCESS": b"", "in/.hidden.txt": b"cats\n"}
        yield store


class Here:
    """Stands in for the dispatch of shards to workers: does those of `limit` in this process."""

    def __init__(self, limit: int | None = None):
        self.limit, self.done = limit, []

    def __call__(self, options, work, shards, before):
        worker = ShardWorker(1, uses_accelerator=False)
        assert worker.open(work, list_versions()) is None
        answers = []
        for shard in [shard for shard in shards if shard.name not in before][: self.limit]:
            self.done.append(shard.name)
            answers.append(worker.write(shard))
        if refusals := [answer.message for answer in answers if isinstance(answer, ShardRefusal)]:
            raise BertJaxError(refusals[0])
        complete = work.folder.list_complete(shards)
        if self.limit is not None:
            raise BertJaxError("killed")
        return [complete[shard.name] for shard in shards]


def predict(
    model, given: str, output: str, monkeypatch, limit: int | None = None, options=None, **flags
) -> list[str]:
    """Do what `predict --ray` does; return the names of the shards that were done."""
    here = Here(limit)
    monkeypatch.setattr(run_shards, "complete_shards", here)
    own = {"engine": ENGINE, "options": options or PredictionOptions(), "columns": ExampleColumns()}
    work = PredictShards.from_model(str(model), "jsonl", output, **own)
    run_shards.run_shards(HERE, work, given, **flags)
    return here.done


def names(store: ObjectStore, folder: str) -> list[str]:
    return sorted(name.removeprefix(f"{folder}/") for name in store.objects if name.startswith(f"{folder}/"))


def test_a_bucket_gets_what_a_folder_gets(model, store, tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / f"in/{n}.txt").write_bytes(store.objects[f"in/{n}.txt"])
    assert predict(model, str(tmp_path / "in"), str(tmp_path / "out"), monkeypatch) == ["0", "1", "2"]
    for given, output in (
        (store.address("in"), store.address("out")),
        (str(tmp_path / "in"), f"file://{tmp_path}/written"),
        (f"file://{tmp_path}/in/*.txt", str(tmp_path / "read")),
    ):
        assert predict(model, given, output, monkeypatch) == ["0", "1", "2"]
        assert predict(model, given, output, monkeypatch) == []
    assert names(store, "out") == [
        "0.jsonl",
        "1.jsonl",
        "2.jsonl",
        "_job.json",
        *(f"_manifests/{n}.json" for n in range(3)),
    ]
    for n in range(3):
        expected = (tmp_path / f"out/{n}.jsonl").read_bytes()
        assert store.objects[f"out/{n}.jsonl"] == expected
        assert (tmp_path / f"written/{n}.jsonl").read_bytes() == expected
        assert (tmp_path / f"read/{n}.jsonl").read_bytes() == expected
    manifest = json.loads(store.objects["out/_manifests/0.json"])
    assert manifest["sources"] == ["s3://bucket/in/0.txt"] and manifest["rows"] == 2
    assert not [path for path in (tmp_path / "cache/bert_jax/buckets").rglob("*") if path.is_file()]


def test_a_command_that_was_killed_goes_on(model, store, monkeypatch):
    given, output = store.address("in"), store.address("out")
    with pytest.raises(BertJaxError, match="killed"):
        predict(model, given, output, monkeypatch, limit=1)
    del store.objects["in/_SUCCESS"]
    assert predict(model, given, output, monkeypatch) == ["1", "2"]
    del store.objects["out/1.jsonl"]
    store.objects["out/2.jsonl"] += b"x"
    assert predict(model, given, output, monkeypatch) == ["1", "2"]


def test_outputs_of_inputs_that_are_gone_are_removed_if_that_is_asked_for(
    model, store, tmp_path, monkeypatch
):
    folder = tmp_path / "in"
    folder.mkdir()
    for n in range(3):
        (folder / f"{n}.txt").write_bytes(store.objects[f"in/{n}.txt"])
    for given, output in ((store.address("in"), store.address("out")), (str(folder), str(tmp_path / "out"))):
        predict(model, given, output, monkeypatch)
        store.objects.pop("in/1.txt", None) or (folder / "1.txt").unlink()
        shown = output.partition("?")[0]
        told = f"{shown} holds 1 output of inputs that are gone: 1.jsonl; give these inputs, too, or add --remove-m"
        with pytest.raises(BertJaxError, match=f"^{re.escape(told)}"):
            predict(model, given, output, monkeypatch)
        assert predict(model, given, output, monkeypatch, remove_missing=True) == []
    left = ["0.jsonl", "2.jsonl", "_job.json", "_manifests/0.json", "_manifests/2.json"]
    # pyarrow leaves marks where folders were
    assert [name for name in names(store, "out") if name and name[-1] != "/"] == left
    assert sorted(file for file in file_contents(tmp_path / "out") if file != ".lock") == left


def test_other_settings_changed_inputs_and_foreign_files_are_refused(model, store, monkeypatch):
    given, output = store.address("in"), store.address("out")
    predict(model, given, output, monkeypatch)
    with pytest.raises(
        BertJaxError, match="^s3://bucket/out holds predictions made with other settings: probabilities was"
    ):
        predict(model, given, output, monkeypatch, options=PredictionOptions(probabilities=True))
    store.changed["in/0.txt"] = 1_800_000_000
    assert predict(model, given, output, monkeypatch) == [], "written again with the same content"
    store.objects["in/0.txt"] = store.objects["in/0.txt"].swapcase()
    message = (
        "s3://bucket/in/0.txt has changed since s3://bucket/out got its predictions; name a new folder, or "
    )
    message += "delete s3://bucket/out/_manifests/0.json"
    with pytest.raises(BertJaxError, match=f"^{re.escape(message)}"):
        predict(model, given, output, monkeypatch)
    with pytest.raises(
        BertJaxError, match=r"^s3://bucket/in is left as it is because it holds files .*\(0.txt\)"
    ):
        predict(model, str(Path(__file__)), store.address("in"), monkeypatch)


def test_a_shard_that_cannot_be_read_or_written_is_told(model, store, monkeypatch):
    given, output = store.address("in"), store.address("out")
    store.objects["in/1.jsonl"] = b'{"text": "cats"}\n{"txt": "cats"}\n'
    del store.objects["in/1.txt"]
    here = f" (on {socket.gethostname()})"
    with pytest.raises(BertJaxError, match=rf"^s3://bucket/in/1.jsonl row 2.*{re.escape(here)}$"):
        predict(model, given, output, monkeypatch)
    assert "out/1.jsonl" not in store.objects and "out/_manifests/2.json" in store.objects
    store.objects["in/1.jsonl"] = b'{"text": "cats"}\n{"text": "cats"}\n'
    store.refused = re.compile("1.jsonl$")
    with pytest.raises(BertJaxError, match=rf"^s3://bucket/out/1.jsonl: .*ACCESS_DENIED.*{re.escape(here)}$"):
        predict(model, given, output, monkeypatch)
    assert "out/_manifests/1.json" not in store.objects, "it has a manifest only with its output"
    store.refused = re.compile("^$")
    assert predict(model, given, output, monkeypatch) == ["1"]


def test_a_dry_run_leaves_nothing_in_a_bucket(model, store):
    own = {"engine": ENGINE, "options": PredictionOptions(), "columns": ExampleColumns()}
    work = PredictShards.from_model(str(model), "jsonl", store.address("out"), **own)
    before = dict(store.objects)
    with run_shards.temporary_work(work) as tried:
        worker = ShardWorker(1, uses_accelerator=False)
        assert worker.open(tried, list_versions()) is None
        (shard,) = run_shards.list_files(store.address("in/0.txt"))
        assert isinstance(worker.write(shard), ShardResult)
        assert len(store.objects) == len(before) + 3
    store.objects.pop("out/", None)  # pyarrow leaves a mark where a folder was
    assert store.objects == before


@pytest.mark.parametrize(("given", "output", "message"), [
    ("s3://b/in", "out --shard-rows 9",
     "--shard-rows cuts files that all machines mount, none in a bucket; leave it out"),
    ("s3://b/in", "s3://b/in/out",
     "s3://b/in/out is in the folder of the inputs; name one elsewhere"),
    ("s3://b/in/*.txt", "s3://b/in", "s3://b/in is in the folder of the inputs; name one elsewhere"),
    ("nowhere://b/in", "out",
     "nowhere://b/in: Unrecognized filesystem type in URI: nowhere://b; check the address, the "
     "permissions of the bucket, and the disk here"),
    ("s3://b/in", "s3://b/out.jsonl",
     "with --ray, --output s3://b/out.jsonl is a folder; name one, and the format with --format"),
])  # fmt: skip
def test_what_cannot_be_in_a_bucket_is_refused(given, output, message, model, tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    flags = ["--input", given, "--output", *output.split(), "--ray"]
    assert main(["predict", "--model", str(model), *flags]) == 1
    assert capsys.readouterr().err == f"bert-jax predict: {message}\n"
    assert not list(tmp_path.iterdir())


NO_INPUT = "in: predict, embed and prepare read a bucket with --ray; copy the files here"
NO_OUTPUT = "out: only `predict --ray` and `embed --ray` write to a bucket; name a file here"


@pytest.mark.parametrize(("command", "message"), [
    ("prepare --input gs://b/in --output out --tokenizer", NO_INPUT),
    ("predict --input gs://b/in --output out.jsonl --model", NO_INPUT),
    ("predict --input in.txt --output gs://b/out --model", NO_OUTPUT),
    ("embed --input in.txt --output gs://b/out --model", NO_OUTPUT),
])  # fmt: skip
def test_other_commands_know_no_bucket(command, message, model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("cats\n")
    assert main([*command.split(), str(model)]) == 1
    assert capsys.readouterr().err == f"bert-jax {command.split()[0]}: gs://b/{message}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
