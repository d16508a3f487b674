"""A prepare that is killed, or finds the disk full, goes on to the same bytes."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.indexes import file_contents
from tests.support.made_up_language import join_documents, random_documents, save_tokenizer

CHILD = """
import resource, sys
import bert_jax.data.corpus.prepare as p
from bert_jax.data.corpus import chunks
from bert_jax.text.text_source import TextSource
if __name__ == "__main__":
    chunks.CHUNK = 20_000
    if len(sys.argv) > 4:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), int(sys.argv[4])))
    try:
        source = TextSource([sys.argv[1]], "sentences")
        p.prepare_corpus(source, sys.argv[2], sys.argv[3], validation_ratio=0.05, processes=2)
    except p.BertJaxError as error:
        sys.exit(str(error))
"""


@pytest.fixture(scope="module")
def child(tmp_path_factory):
    """Starts a prepare of 60 chunks in a process of its own; what an undisturbed one makes."""
    root = tmp_path_factory.mktemp("child")
    vocabulary = save_tokenizer(root / "vocabulary")
    (root / "text.txt").write_text(join_documents(random_documents(3000, seed=4, sentences=6)))
    (root / "child.py").write_text(CHILD)

    def start(output, *limit):
        arguments = [sys.executable, root / "child.py", root / "text.txt", vocabulary, output, *limit]
        return subprocess.Popen(list(map(str, arguments)), stderr=subprocess.PIPE)

    assert start(root / "whole").wait(100) == 0
    return start, file_contents(root / "whole")


def chunks(output: Path) -> int:
    return len(list(output.with_suffix(".partial").glob("chunks/*.npz")))


@pytest.mark.ci
@pytest.mark.parametrize("places", [(5, 40), pytest.param(range(3, 60, 4), marks=pytest.mark.long)])
def test_killed_after_some_chunks_it_goes_on_to_the_same_bytes(child, tmp_path, places):
    (start, whole), out = child, tmp_path / "out"
    for place in places:
        process = start(out)
        while chunks(out) < place:
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
        process.communicate()
        assert not out.exists() and chunks(out) >= place
    process = start(out)
    assert process.wait(100) == 0 and process.stderr.read() == b""
    assert file_contents(out) == whole and not (tmp_path / "out.partial").exists()


@pytest.mark.slow
def test_a_full_disk_is_said_and_nothing_is_lost(child, tmp_path):
    """A limit on the size of files fails a write as a full disk does."""
    start, whole = child
    process = start(tmp_path / "out", 200_000)  # enough for chunks, too little for the corpus
    assert process.wait(100) == 1
    printed = process.stderr.read().decode()
    assert printed.count("\n") == 1 and "File too large" in printed and "the same command resumes" in printed
    assert not (tmp_path / "out").exists()
    assert chunks(tmp_path / "out") > 20
    assert start(tmp_path / "out").wait(100) == 0
    assert file_contents(tmp_path / "out") == whole
