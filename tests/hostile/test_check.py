"""`bert-jax check`: every hash of a corpus, a run and a saved model, or else the structure alone."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.command.main import main
from bert_jax.core import hashes
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.corpus_directory import Corpus
from bert_jax.inference.load import load
from bert_jax.training import checkpoint
from bert_jax.training.workdir import Workdir
from tests.hostile import subjects


@pytest.fixture
def check(capsys):
    """The exit code, and what is printed."""

    def run(path) -> tuple[int, str]:
        code = main(["check", str(path)])
        output = capsys.readouterr()
        assert len(output.err.splitlines()) == (code != 0)
        return code, output.err or output.out

    return run


def flip(path, place: int = -1) -> None:
    """One bit, as a disk loses it: the time stamp stays."""
    stamp = path.stat()
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))


@pytest.mark.slow
def test_a_bit_that_a_corpus_lost_is_found(small, tmp_path, check):
    shutil.copytree(small / "corpus", tmp_path / "corpus")
    assert check(tmp_path / "corpus") == (
        0,
        f"{tmp_path}/corpus: 10 files of a corpus; their hashes match\n",
    )
    flip(tmp_path / "corpus" / "train" / "tokens.npy")
    Corpus(tmp_path / "corpus")  # hashed again only after its time stamp changed
    code, output = check(tmp_path / "corpus")
    assert code == 1 and "train/tokens.npy" in output


def test_all_checkpoints_of_a_run_are_looked_at(small, tmp_path, check):
    folder = subjects.run(small, tmp_path)
    for step in ("4", "8"):
        (folder / "checkpoints" / step).mkdir(parents=True)
        (folder / "checkpoints" / step / "array").write_bytes(b"0123")
        checkpoint.write_checkpoint_manifest(folder / "checkpoints" / step, {"step": int(step)})
    load(small / "masked").save(folder / "model")
    code, output = check(folder)
    assert (
        code == 0
        and "checkpoints: 2 checkpoints; their hashes" in output
        and "of a model; their hashes" in output
    )
    flip(folder / "checkpoints" / "4" / "array")
    code, output = check(folder)
    assert code == 1 and "checkpoints/4: array is damaged" in output and "1 of 2 checkpoints" in output
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"optimizer.warmup_steps": 5', '"optimizer.warmup_steps": 6'))
    code, output = check(folder)
    assert code == 1 and f"{path} is damaged: its hash differs" in output


def rewrite_run(folder, **changes) -> None:
    content = json.loads((folder / "run.json").read_text())
    del content["self"]
    content["config"] |= changes.pop("config", {})
    (folder / "run.json").write_text(json.dumps(hashes.seal(content | changes)))


def test_a_model_that_a_run_lost_is_missed(small, tmp_path, check):
    folder = subjects.run(small, tmp_path)

    def has_step(step: int, **position) -> None:
        (folder / "checkpoints" / str(step)).mkdir(parents=True)
        checkpoint.write_checkpoint_manifest(folder / "checkpoints" / str(step), {"step": step, **position})

    has_step(12, standings=[[4, [1.0, 0.0]], [8, [0.5, 0.0]], [12, [0.5, 0.0]]])
    assert check(folder)[0] == 0  # it still goes on
    rewrite_run(folder, config={"patience": 2})
    code, output = check(folder)
    assert code == 1 and f"{folder}/model is missing; repeat the command of the run" in output
    rewrite_run(folder, config={"patience": 0})
    has_step(20)  # the last
    assert f"{folder}/model is missing" in check(folder)[1]
    load(small / "masked").save(folder / "model")
    assert check(folder)[0] == 0
    rewrite_run(folder, layouts={"generator": json.loads((folder / "run.json").read_text())["layout"]})
    assert f"{folder}/model/generator is missing" in check(folder)[1]


def test_a_saved_model_lists_its_hashes(small, tmp_path, check):
    load(small / "classifier").save(tmp_path / "model")
    listed = json.loads((tmp_path / "model" / "hashes.json").read_text())["files"]
    assert set(listed) == {path.name for path in (tmp_path / "model").iterdir()} - {"hashes.json"}
    (tmp_path / "model" / "notes.md").write_text("mine")
    code, output = check(tmp_path / "model")
    assert (
        code == 0
        and "files of a model; their hashes match" in output
        and "files that were not saved with the model: notes.md" in output
    )
    for name in listed:
        flip(tmp_path / "model" / name, 40)
        code, output = check(tmp_path / "model")
        assert code == 1 and f"model: {name} is damaged" in output
        flip(tmp_path / "model" / name, 40)
    (tmp_path / "model" / "vocab.txt").unlink()
    assert "it lacks its file vocab.txt" in check(tmp_path / "model")[1]


def test_a_model_without_hashes_gets_a_structural_check(small, tmp_path, check):
    folder = tmp_path / "model"
    shutil.copytree(small / "masked", folder)
    (folder / "hashes.json").unlink(missing_ok=True)
    code, output = check(folder)
    assert code == 0 and "hashes.json" in output
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.bias"] = np.full_like(tensors["cls.predictions.bias"], np.nan)
    save_file(tensors, folder / "model.safetensors")
    code, output = check(folder)
    assert code == 1 and "cls.predictions.bias" in output and "not finite" in output


def test_names_stay_within_their_directory(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_text("x")
    for name in ("../secret", "/dev/zero", "a/../../secret", "", "a\0b"):
        listed = hashes.seal({"files": {name: hashes.file_facts(1, "0" * 32)}})
        (tmp_path / "model" / "hashes.json").write_text(json.dumps(listed))
        wrong = list(hashes.find_damaged_files(tmp_path / "model", hashes.read_hashes(tmp_path / "model")))
        assert len(wrong) == 1 and "not a file in it" in wrong[0]


def test_models_of_a_run_stay_within_it(small, tmp_path):
    folder = subjects.run(small, tmp_path)
    rewrite_run(folder, layouts={"../../elsewhere": json.loads((folder / "run.json").read_text())["layout"]})
    with pytest.raises(BertJaxError, match="'../../elsewhere'"):
        Workdir(folder).layouts()


def test_a_corpus_whose_manifest_names_a_device(small, tmp_path):
    """The hash of a manifest says that it is whole, not that it is well meant."""
    shutil.copytree(small / "corpus", tmp_path / "corpus")
    path = tmp_path / "corpus" / "manifest.json"
    content = json.loads(path.read_text())
    content["files"]["../../../dev/zero"] = content["files"].pop("train/tokens.npy")
    del content["self"]
    path.write_text(json.dumps(hashes.seal(content)))
    with pytest.raises(BertJaxError, match="corpus"):
        Corpus(tmp_path / "corpus")


@pytest.mark.parametrize("change", ["tokens", "starts", "kind", "length"])
def test_arrays_that_do_not_fit_together_are_refused(small, tmp_path, change):
    """Of a stranger, who gives hashes that are right."""
    shutil.copytree(small / "corpus", tmp_path / "corpus")
    file = "train/sentences.npy" if change == "starts" else "train/tokens.npy"
    array = np.load(tmp_path / "corpus" / file)
    if change == "tokens":
        array[7] = 5000
    elif change == "starts":
        array[7] = 10**15
    array = {"kind": array.astype(np.float32), "length": array[:-1]}.get(change, array)
    np.save(tmp_path / "corpus" / file, array)
    path = tmp_path / "corpus" / "manifest.json"
    content = json.loads(path.read_text())
    content["files"] |= hashes.collect_file_facts(tmp_path / "corpus", [file])
    del content["self"]
    path.write_text(json.dumps(hashes.seal(content)))
    with pytest.raises(BertJaxError, match=r"fit together|does not match manifest.json \(length or type\)"):
        _ = Corpus(tmp_path / "corpus").train
