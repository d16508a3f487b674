"""A prepare that is killed, or finds the disk full, goes on to the same bytes."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.cases import long_except
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
    """Starts a prepare of 60 chunks in a process of its own; what an undisturbed one makes, and its seconds."""
    root = tmp_path_factory.mktemp("child")
    vocabulary = save_tokenizer(root / "vocabulary")
    (root / "text.txt").write_text(join_documents(random_documents(3000, seed=4, sentences=6)))
    (root / "child.py").write_text(CHILD)

    def start(output, *limit):
        arguments = [sys.executable, root / "child.py", root / "text.txt", vocabulary, output, *limit]
        return subprocess.Popen(list(map(str, arguments)), stderr=subprocess.PIPE)

    begun = time.monotonic()
    assert start(root / "whole").wait(100) == 0
    return start, contents(root / "whole"), time.monotonic() - begun


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()
    }


@pytest.mark.ci
@pytest.mark.parametrize("times", long_except([3, 10], [3]))
def test_killed_at_random_points_it_goes_on_to_the_same_bytes(child, tmp_path, times):
    start, whole, seconds = child
    rng, kills, kept = random.Random(0), 0, 0
    while kills < times:
        process = start(tmp_path / "out")
        time.sleep(rng.uniform(0.4, 1) * seconds)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stderr.close()
        if (tmp_path / "out").exists():  # finished before the signal: again from the start
            assert contents(tmp_path / "out") == whole
            (tmp_path / "out").rename(tmp_path / f"finished{kills}")
        kept += len(list((tmp_path / "out.partial").glob("chunks/*.npz"))) > 0
        kills += 1
    assert kept, "no kill came after the first chunk"
    process = start(tmp_path / "out")
    assert process.wait(100) == 0 and process.stderr.read() == b""
    assert contents(tmp_path / "out") == whole
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.slow
def test_a_full_disk_is_said_and_nothing_is_lost(child, tmp_path):
    """A limit on the size of files fails a write as a full disk does."""
    start, whole, _ = child
    process = start(tmp_path / "out", 200_000)  # enough for chunks, too little for the corpus
    assert process.wait(100) == 1
    said = process.stderr.read().decode()
    assert said.count("\n") == 1 and "File too large" in said and "the same command resumes" in said
    assert not (tmp_path / "out").exists()
    assert len(list((tmp_path / "out.partial").glob("chunks/*.npz"))) > 20
    assert start(tmp_path / "out").wait(100) == 0
    assert contents(tmp_path / "out") == whole
