"""Commands on a real cluster, whose head and nodes are processes of this machine: the same as without a cluster, also
when a worker, a node or the command itself is killed."""

import json
import random
import re
import shutil
import signal
import socket
import sys
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from bert_jax.command.main import main
from tests.support.indexes import file_contents
from tests.support.made_up_language import join_documents, random_documents, save_tokenizer
from tests.support.object_store import object_store
from tests.support.processes import start_process
from tests.support.ray_cluster import (
    RayCluster,
    count_complete,
    happening_after,
    ray_cluster,
    wait_for_shards,
)
from tests.support.small_models import SMALL_VOCABULARY, write_model

pytest.importorskip("ray")
pytestmark = pytest.mark.ci

SHARDS, ROWS = 12, 400
VERBS = {"classifier": "predict", "tagger": "predict", "embedder": "embed"}
ENDINGS = {"predict": "jsonl", "embed": "npy"}


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def material(tmp_path_factory) -> Path:
    """Models, shards of texts, documents, and what one process makes of these."""
    folder = tmp_path_factory.mktemp("material")
    write_model(folder / "classifier", heads=("classify",), labels=("bad", "good"))
    write_model(folder / "tagger", heads=("tag",), labels=("O", "B-X", "B-Y"))
    write_model(folder / "embedder", heads=())
    rng, words = random.Random(0), [word for word in SMALL_VOCABULARY[5:] if word[0] != "#"]
    (folder / "in").mkdir()
    for shard in range(SHARDS):
        texts = (" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(ROWS))
        (folder / f"in/{shard:02}.txt").write_text("\n".join(texts) + "\n")
    (folder / "documents").mkdir()
    documents = random_documents(280, seed=5)
    for part in range(7):
        # Each file repeats documents of the one before it.
        (folder / f"documents/{part}.txt").write_text(join_documents(documents[40 * part : 40 * part + 50]))
    save_tokenizer(folder / "vocabulary")
    return folder


def arguments(material: Path, model: str, given: str, output: Path) -> list[str]:
    files = ["--model", material / model, "--input", material / given, "--output", output]
    return [VERBS[model], *map(str, files)]


def alone(material: Path, model: str, shards: int = SHARDS) -> Path:
    """The folder of what one process makes of each file, at least of the first ones."""
    folder = material / f"{model} alone"
    folder.mkdir(exist_ok=True)
    for file in sorted((material / "in").iterdir())[:shards]:
        output = folder / f"{file.stem}.{ENDINGS[VERBS[model]]}"
        assert output.exists() or main(arguments(material, model, f"in/{file.name}", output)) == 0
    return folder


def check_same(output: Path, expected: Path) -> None:
    """The same shards, with the same rows in the same order, and numbers that are as good as equal."""
    names = sorted(path.name for path in expected.iterdir())
    assert (
        sorted(path.name for path in output.iterdir() if path.name[0] != "_") == names
        and len(names) == SHARDS
    )
    for name in names:
        if name.endswith(".npy"):
            np.testing.assert_allclose(np.load(output / name), np.load(expected / name), atol=1e-5)
            continue
        rows, wanted = (read_lines(folder / name) for folder in (output, expected))
        assert len(rows) == ROWS
        for row, other in zip(rows, wanted, strict=True):
            check_row(row, other)


def read_lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def check_row(row: object, wanted: object) -> None:
    match row:
        case dict():
            assert row.keys() == wanted.keys()
            for name, value in row.items():
                check_row(value, wanted[name])
        case list():
            for value, other in zip(row, wanted, strict=True):
                check_row(value, other)
        case float():
            assert row == pytest.approx(wanted, abs=1e-5)
        case _:
            assert row == wanted


def times(output: Path) -> dict[str, int]:
    """When the outputs of a folder were written."""
    return {path.name: path.stat().st_mtime_ns for path in output.iterdir() if path.is_file()}


def test_predictions_while_a_worker_is_killed_and_a_node_removed(
    cluster: RayCluster, material, tmp_path, capsys
):
    output = tmp_path / "out"
    command = [*arguments(material, "classifier", "in", output), "--ray", cluster.address, "--workers", "3"]
    with happening_after(output, 2, cluster.kill_worker, cluster.remove_node):
        assert main(command) == 0
    cluster.restore()
    check_same(output, alone(material, "classifier"))
    assert f"4,800 predictions in {output} (12 shards, " in capsys.readouterr().err
    before = times(output)
    assert main(command) == 0
    assert times(output) == before
    assert f"4,800 predictions in {output} (12 shards, complete already)" in capsys.readouterr().err


@pytest.mark.long
def test_a_full_disk_of_a_node_costs_the_shard_that_it_had(cluster: RayCluster, material, tmp_path, capsys):
    output = tmp_path / "out"
    command = [*arguments(material, "classifier", "in", output), "--ray", cluster.address, "--workers", "2"]
    with happening_after(output, 1, cluster.fill_disk):
        assert main(command) == 1
    failure, end = capsys.readouterr().err.splitlines()
    told = (
        rf"{output}/\S*: File too large; make room there and repeat the command \(on {socket.gethostname()}\)"
    )
    assert re.fullmatch(told, failure)
    assert end.startswith(f"bert-jax predict: 1 shard of {SHARDS} failed; correct what the lines above name")
    complete = {path.stem for path in (output / "_manifests").iterdir()}
    before = {name: time for name, time in times(output).items() if Path(name).stem in complete}
    assert len(before) == SHARDS - 1
    assert main(command) == 0
    assert before.items() < times(output).items()
    check_same(output, alone(material, "classifier"))


@pytest.mark.long
def test_a_bad_row_in_a_bucket_costs_its_shard_alone(cluster: RayCluster, material, tmp_path, capsys):
    """Vectors in a bucket, of three files in it, of which one cannot be read at first."""
    with object_store() as store:
        for n in range(3):
            lines = (material / f"in/{n:02}.txt").read_text().splitlines()
            rows = [json.dumps({"text": line}) + "\n" for line in lines]
            store.objects[f"in/{n:02}.jsonl"] = "".join(rows).encode()
        whole = store.objects["in/01.jsonl"]
        store.objects["in/01.jsonl"] = whole.replace(b'{"text"', b'{"txt"', 1)
        command = ["embed", "--model", str(material / "embedder"), "--input", store.address("in")]
        command += ["--output", store.address("out"), "--ray", cluster.address, "--workers", "1"]
        assert main(command) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2 and "s3://bucket/in/01.jsonl row 1" in lines[0]
        assert lines[1].startswith("bert-jax embed: 1 shard of 3 failed; correct what the lines above name")
        before = {name: content for name, content in store.objects.items() if name.startswith("out/")}
        assert [name for name in sorted(before) if "_manifests/" in name] == [
            f"out/_manifests/{n:02}.json" for n in (0, 2)
        ]
        store.objects["in/01.jsonl"] = whole
        assert main(command) == 0
        assert capsys.readouterr().err.startswith(
            "1,200 vectors in s3://bucket/out (3 shards, 2 of them before, "
        )
        assert before.items() < store.objects.items()
        expected = alone(material, "embedder", 3)
        for n in range(3):
            vectors = np.load(BytesIO(store.objects[f"out/{n:02}.npy"]))
            np.testing.assert_allclose(vectors, np.load(expected / f"{n:02}.npy"), atol=1e-5)


@pytest.mark.long
def test_a_corpus_has_the_bytes_of_one_process(cluster: RayCluster, material, tmp_path):
    command = ["prepare", "--input", str(material / "documents"), "--tokenizer", str(material / "vocabulary")]
    command += ["--layout", "sentences", "--validation-ratio", "0.1", "--output"]
    assert main([*command, str(tmp_path / "alone"), "--processes", "1"]) == 0
    assert main([*command, str(tmp_path / "together"), "--ray", cluster.address, "--workers", "2"]) == 0
    expected = file_contents(tmp_path / "alone")
    assert json.loads(expected["manifest.json"])["counts"]["duplicate_documents"] == 60
    assert file_contents(tmp_path / "together") == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "together"]


@pytest.mark.long
@pytest.mark.parametrize("model", VERBS)
def test_a_command_that_was_killed_goes_on(model, cluster: RayCluster, material, tmp_path):
    """Every verb and kind of model; besides, a worker is killed and a node removed."""
    output = tmp_path / "out"
    command = [*arguments(material, model, "in", output), "--ray", cluster.address, "--workers", "4"]
    process = start_process([sys.executable, "-m", "bert_jax", *command])
    wait_for_shards(output, 3)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before, complete = times(output), count_complete(output)
    assert 3 <= complete < SHARDS, "it was killed in the middle"
    with happening_after(output, complete + 1, cluster.kill_worker, cluster.remove_node):
        assert main(command) == 0
    cluster.restore()
    after = times(output)
    manifests = {path.stem for path in (output / "_manifests").iterdir()}
    assert len(manifests) == SHARDS and len(before) >= complete
    assert sum(after.get(name) == time for name, time in before.items()) >= complete
    check_same(output, alone(material, model))
    # The same bytes at equal threads and shards.
    shutil.copytree(output, tmp_path / "first")
    shutil.rmtree(output)
    assert main(command) == 0
    for path in (tmp_path / "first").glob("*.*"):
        assert path.read_bytes() == (output / path.name).read_bytes()


@pytest.mark.long
def test_a_corpus_that_was_killed_goes_on(cluster: RayCluster, material, tmp_path):
    """Seven parts of a second or more: the command is killed, and later a worker and a node."""
    (tmp_path / "documents").mkdir()
    documents = random_documents(14_000, seed=7, sentences=40)
    for part in range(7):
        (tmp_path / f"documents/{part}.txt").write_text(
            join_documents(documents[1900 * part : 1900 * part + 2600])
        )
    command = ["prepare", "--input", str(tmp_path / "documents"), "--tokenizer", str(material / "vocabulary")]
    command += ["--layout", "sentences", "--output"]
    together = [*command, str(tmp_path / "together"), "--ray", cluster.address, "--workers", "4"]
    parts = tmp_path / "together.partial/chunks/parts"
    process = start_process([sys.executable, "-m", "bert_jax", *together])
    wait_for_shards(parts, 1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    complete = count_complete(parts)
    before = {path: path.stat().st_mtime_ns for path in parts.rglob("part-*/*.npz")}
    with happening_after(parts, complete, cluster.kill_worker, cluster.remove_node):
        assert main(together) == 0
    cluster.restore()
    assert 1 <= complete < 7 and before, "it was killed in the middle"
    assert main([*command, str(tmp_path / "alone")]) == 0
    assert file_contents(tmp_path / "together") == file_contents(tmp_path / "alone")
