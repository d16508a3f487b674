"""Symbolic links and files of others inside our directories: what stands behind a link is never deleted."""

import random
import shutil

import pytest

from bert_jax.core.errors import BertJaxError
from bert_jax.core.output import remove_path
from bert_jax.data.corpus.prepare import prepare_corpus
from bert_jax.search.index import Index
from bert_jax.text.text_source import TextSource
from bert_jax.training import checkpoint
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.run_config import CheckpointConfig
from bert_jax.training.workdir import Workdir
from tests.support.indexes import change_index, file_contents, random_document

DOCUMENTS = [random_document(f"d{n}", random.Random(n)) for n in range(5)]


@pytest.fixture
def elsewhere(tmp_path):
    """A folder of the user, with the names of all that a command may delete."""
    for name in ("letter.txt", "segment/letter.txt", "000009/letter.txt"):
        (tmp_path / "elsewhere" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "elsewhere" / name).write_text("mine")
    before = file_contents(tmp_path / "elsewhere")
    yield tmp_path / "elsewhere"
    assert before.items() <= file_contents(tmp_path / "elsewhere").items()


def test_an_index_with_a_link_is_not_changed(tmp_path, elsewhere):
    path = tmp_path / "index"
    change_index(path, DOCUMENTS[:3])
    shutil.copytree(path / "segments", elsewhere, dirs_exist_ok=True)
    for folder in ("removed", "building", "segments"):
        shutil.rmtree(path / folder, ignore_errors=True)
        (path / folder).symlink_to(elsewhere)
        with pytest.raises(BertJaxError, match=f"{folder} is a symbolic link"):
            change_index(path, DOCUMENTS[3:])
        if folder != "segments":
            (path / folder).unlink()
    assert len(Index.open(path)) == 3


def test_a_change_of_an_index_deletes_only_what_is_its_own(tmp_path, elsewhere):
    path = tmp_path / "index"
    change_index(path, DOCUMENTS[:3])
    for folder in ("removed", "building"):
        (path / folder).mkdir()
    foreign = [path / name for name in ("segments/letter.txt", "removed/letter.txt", "building/letter.txt")]
    for file in foreign:
        file.write_text("mine")
    left = ["segments/000009", "removed/000001-000009.npy", "removed/.000001-000009.npy.abcd1234.partial"]
    for link in (*left, "building/segment", "building/passages-1"):
        (path / link).symlink_to(elsewhere)
    change_index(path, DOCUMENTS[3:], ["d0"])
    assert all(file.read_text() == "mine" for file in foreign)
    assert (
        not any((path / link).is_symlink() for link in left) and not (path / "building/passages-1").exists()
    )


def test_checkpoints_that_are_links(tmp_path, elsewhere):
    directory = tmp_path / "checkpoints"
    directory.mkdir()
    for step in ("1", "2", "3"):
        (elsewhere / step).mkdir()
        (elsewhere / step / "array").write_bytes(b"0123")
        checkpoint.write_checkpoint_manifest(elsewhere / step, {"step": int(step)})
        (directory / step).symlink_to(elsewhere / step)
    (elsewhere / "3/array").write_bytes(b"0124")
    for name in ("3.damaged", "4.orbax-checkpoint-tmp-1"):
        (directory / name).symlink_to(elsewhere)
    checkpoints = Checkpoints(directory, CheckpointConfig(keep=1), lambda line: None)
    assert checkpoints.newest_step() == 2 and sorted(p.name for p in directory.iterdir()) == [
        "1",
        "2",
        "3.damaged",
    ]
    checkpoints.folder.tidy(CheckpointConfig(keep=1))
    assert checkpoints.folder.steps() == [2]
    assert all((elsewhere / step / "manifest.json").exists() for step in ("1", "2", "3"))


def test_the_lock_of_a_run_is_not_written_through_a_link(tmp_path, elsewhere):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.lock").symlink_to(elsewhere / "letter.txt")
    workdir = Workdir(tmp_path / "run")
    workdir.claim()
    workdir.close()


@pytest.mark.slow
def test_a_corpus_in_the_making_leaves_what_is_not_its_own(small, tmp_path):
    work = tmp_path / "corpus.partial"
    work.mkdir()
    (work / "letter.txt").write_text("mine")
    source = TextSource([small / "text.txt"], "sentences")
    prepare_corpus(source, small / "vocabulary", tmp_path / "corpus", processes=1)
    assert [path.name for path in work.iterdir()] == ["letter.txt"]


def test_a_link_is_removed_and_not_what_it_points_to(tmp_path, elsewhere):
    (tmp_path / "link").symlink_to(elsewhere)
    remove_path(tmp_path / "link")
    assert not (tmp_path / "link").exists()
