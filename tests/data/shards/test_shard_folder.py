"""Shards of an input, and the folder of their outputs: what is complete, and what is refused."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.data.shards.shard import join_shards, list_shards
from bert_jax.data.shards.shard_folder import Job, ShardFolder, WrittenShard, manifest_name

JOB = Job("predict", "predictions", {"model": "a1", "format": "jsonl", "columns": {"text": "", "id": None}})


@pytest.fixture
def inputs(tmp_path):
    folder = tmp_path / "in"
    (folder / "more").mkdir(parents=True)
    for name in ("a.jsonl.gz", "b.csv", "more/a.jsonl", "_SUCCESS", ".hidden.csv"):
        (folder / name).write_text(name)
    return folder


def written(folder: ShardFolder, shard) -> None:
    folder.output_path(shard).parent.mkdir(parents=True, exist_ok=True)
    folder.output_path(shard).write_text(shard.name)
    folder.record(shard, WrittenShard(1, [f"{shard.name}.jsonl"], {"abstained": 2}))


def test_each_file_is_a_shard_with_its_name(inputs):
    assert [shard.name for shard in list_shards(str(inputs))] == ["a", "b", "more/a"]
    assert [shard.name for shard in list_shards(str(inputs / "*.*"))] == ["a", "b"]
    assert [shard.name for shard in list_shards(str(inputs / "**" / "*.jsonl*"))] == ["a", "more/a"]
    (inputs / "a.csv").touch()
    with pytest.raises(BertJaxError, match="a.csv and .*a.jsonl.gz would have the same name"):
        list_shards(str(inputs))


@pytest.mark.parametrize("given", ["-", "tfds:glue/sst2:train"])
def test_what_is_no_file_has_no_shards(given):
    with pytest.raises(BertJaxError, match=f"--ray reads files that all machines see, not {given}"):
        list_shards(given)


def test_small_files_share_a_part(inputs):
    shards = list_shards(str(inputs))
    parts = join_shards(shards, 15)
    assert [file for part in parts for file in part.sources] == [shard.source for shard in shards]
    assert [part.size >= 15 for part in parts[:-1]] == [True] * (len(parts) - 1) and len(parts) > 1


def test_a_complete_shard_is_not_done_again(inputs, tmp_path):
    folder = ShardFolder(tmp_path / "out", JOB, ".jsonl")
    shards = list_shards(str(inputs))
    with folder.opened():
        assert folder.list_complete(shards) == {}
        for shard in shards[:2]:
            written(folder, shard)
        assert list(folder.list_complete(shards)) == ["a", "b"]
        folder.output_path(shards[0]).write_text("half")
        folder.output_path(shards[1]).unlink()
        assert folder.list_complete(shards) == {}


def test_another_job_or_another_command_is_refused(inputs, tmp_path):
    folder = ShardFolder(tmp_path / "out", JOB, ".jsonl")
    with folder.opened():
        with pytest.raises(BertJaxError, match="another process is writing"), folder.opened():
            pass
        written(folder, list_shards(str(inputs))[0])
    for job, message in (
        (Job("embed", "vectors", {}), "was written by `predict`, not by `embed`; name a new folder"),
        (replace(JOB, settings=JOB.settings | {"model": "b2"}), "holds predictions of another model"),
        (replace(JOB, settings=JOB.settings | {"format": "csv"}), "format was jsonl and is csv"),
    ):
        with pytest.raises(BertJaxError, match=message), ShardFolder(tmp_path / "out", job).opened():
            pass
    unknown = pytest.raises(BertJaxError, match="holds files that this command does not write")
    with unknown, ShardFolder(inputs, JOB).opened():
        pass


def test_an_input_that_changed_is_refused_but_not_one_that_was_copied(inputs, tmp_path):
    folder = ShardFolder(tmp_path / "out", JOB, ".jsonl")
    (shard, *_) = shards = list_shards(str(inputs))
    with folder.opened():
        written(folder, shard)
        os.utime(shard.source, (time.time() + 9,) * 2)
        assert list(folder.list_complete(shards)) == ["a"]
        path = Path(shard.source)
        path.write_text(path.read_text().upper())
        os.utime(shard.source, (time.time() + 19,) * 2)
        with pytest.raises(BertJaxError, match="a.jsonl.gz has changed since .*out got its predictions"):
            folder.list_complete(shards)


def test_a_manifest_that_was_edited_is_refused(inputs, tmp_path):
    folder = ShardFolder(tmp_path / "out", JOB, ".jsonl")
    (shard, *_) = list_shards(str(inputs))
    with folder.opened():
        written(folder, shard)
        path = folder.path / manifest_name(shard)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": 7}))
        with pytest.raises(BertJaxError, match="a.json is damaged: its hash differs; delete it"):
            folder.read_manifest(shard)


def test_a_folder_without_a_complete_shard_binds_no_settings(tmp_path):
    for settings in ({"prompt": "qurey"}, {"prompt": "query"}):
        with ShardFolder(tmp_path / "out", Job("embed", "vectors", settings)).opened():
            pass
    assert json.loads((tmp_path / "out/_job.json").read_text())["settings"] == {"prompt": "query"}


def test_settings_that_json_stores_in_another_form_are_the_same(inputs, tmp_path):
    job = replace(JOB, settings=JOB.settings | {"candidates": {"labels": ("a", "b")}})
    folder = ShardFolder(tmp_path / "out", job, ".jsonl")
    with folder.opened():
        written(folder, list_shards(str(inputs))[0])
    with folder.opened():
        pass
    other = replace(job, settings=job.settings | {"candidates": {"labels": ("a", "c")}})
    with pytest.raises(BertJaxError, match="candidates was"), ShardFolder(tmp_path / "out", other).opened():
        pass
