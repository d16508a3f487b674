"""Files that cannot be read, of each kind, in each reader of inputs: none of them vanishes without a word."""

import os
import re
import socket
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from bert_jax.cluster.prepare_parts import plan_parts
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.corpus.chunks import ChunkSettings
from bert_jax.data.examples.questions import read_questions
from bert_jax.data.examples.tagged_words import read_tags
from bert_jax.data.shards.shard import list_shards
from bert_jax.search.documents import DocumentSource
from bert_jax.search.index import Index
from bert_jax.text.tables import read_table_rows
from bert_jax.text.text_source import TextSource

ROW = '{"text": "w1 w2", "tokens": ["w1"], "tags": ["O"], "question": "w1?", "context": "w1 w2", "answer": "w1"}\n'
READERS: dict[str, Callable[[str], list]] = {
    "texts": lambda given: list(TextSource([given]).documents()),
    "tables": lambda given: list(read_table_rows(given)),
    "questions": read_questions,
    "tags": read_tags,
    "documents": lambda given: list(DocumentSource([given]).documents()),
    "shards": list_shards,
}
REFUSED = {"gone": "No such file or directory", "loop": "Too many levels of symbolic links"}
LEFT_OUT = {"hidden": "hidden file", "pipe": "pipe", "socket": "socket", "folder": "linked folder"}


def make(kind: str, folder: Path) -> Path:
    """A folder with a file that can be read, and something of a kind, which is returned."""
    folder.mkdir()
    (folder / "a.jsonl").write_text(ROW)
    path = folder / "b.jsonl"
    match kind:
        case "gone":
            path.symlink_to("nowhere.jsonl")
        case "loop":
            path.symlink_to(path.name)
        case "hidden":
            path = path.with_name(".b.jsonl")
            path.write_text(ROW)
        case "pipe":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(os.path.relpath(path))  # the name of a socket may have 108 bytes
        case "folder":
            (folder.parent / "elsewhere").mkdir()
            path.symlink_to("../elsewhere")
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("reader", READERS)
def test_a_link_that_leads_nowhere_is_refused(reader, kind, tmp_path):
    path = make(kind, Path("in"))
    told = f"{path} is a link to {os.readlink(path)}, which cannot be read ({REFUSED[kind]}); restore what it"
    for given in ("in", "in/*.jsonl", str(path)):
        with pytest.raises(BertJaxError, match=f"^{re.escape(told)}"):
            READERS[reader](given)


@pytest.mark.parametrize("kind", LEFT_OUT)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_left_out_is_counted(reader, kind, tmp_path):
    path = make(kind, Path("in"))
    with pytest.warns(UserWarning, match=f"^in: left out 1 {LEFT_OUT[kind]}$"):
        assert len(READERS[reader]("in")) == 1
    if kind in ("pipe", "socket"):
        with pytest.raises(BertJaxError, match=f"^{path} is a {kind}; write what it yields to a file"):
            READERS[reader](str(path))
        with pytest.warns(UserWarning, match=re.escape(f"in/*.jsonl: left out 1 {kind}")):
            READERS[reader]("in/*.jsonl")


@contextmanager
def as_a_user_without_rights():
    """Root may read whatever its mode is, so it is nobody for a while."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("given", ["in", "in/*/*.jsonl", "in/**/*.jsonl", "in/closed/*", "in/closed/b.jsonl"])
@pytest.mark.parametrize("reader", READERS)
def test_a_folder_that_may_not_be_read_is_refused(reader, given, tmp_path):
    tmp_path.chmod(0o755)
    for name in ("a", "closed/b", "open/c"):
        path = Path(f"in/{name}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(ROW)
    Path("in/closed").chmod(0)
    place = given if given.endswith("/b.jsonl") else "in/closed"
    with as_a_user_without_rights(), pytest.raises(BertJaxError, match=f"^{place}: Permission denied; check"):
        READERS[reader](given)
    Path("in/closed").chmod(0o700)


@pytest.mark.parametrize(
    "reader", sorted(READERS.keys() - {"shards"})
)  # they are not opened when they are listed
def test_a_file_that_may_not_be_read_is_refused(reader, tmp_path):
    tmp_path.chmod(0o755)
    make("closed", Path("in"))
    Path("in/a.jsonl").chmod(0)
    with (
        as_a_user_without_rights(),
        pytest.raises(BertJaxError, match="^in/a.jsonl cannot be read .*check its perm"),
    ):
        READERS[reader]("in")


def test_documents_behind_a_dangling_link_stay_in_the_index(capsys):
    """Also with --remove-missing: whoever did not mount a disk has removed nothing."""
    for name in ("a", "b"):
        Path("in", f"{name}.txt").parent.mkdir(exist_ok=True)
        Path("in", f"{name}.txt").write_text(f"w1 w2 {name}\n")
    command = ["index", "in", "--output", "index"]
    assert main(command) == 0
    Path("in/b.txt").unlink()
    Path("in/b.txt").symlink_to("/mnt/nowhere/b.txt")
    capsys.readouterr()
    assert main([*command, "--remove-missing"]) == 1
    told = "bert-jax index: in/b.txt is a link to /mnt/nowhere/b.txt, which cannot be read (No such file or directory)"
    assert capsys.readouterr().err == f"{told}; restore what it links to, or remove the link\n"
    assert len(Index.open("index")) == 2


def test_a_name_that_is_not_utf8_is_one_line(capsys):
    name = os.fsdecode(b"in/a\xff.txt")
    Path("in").mkdir()
    Path(name).write_text("w1 w2\n")
    with pytest.raises(
        BertJaxError, match=r"^the name of in/a\\udcff.txt is not UTF-8, so no manifest can keep it"
    ):
        list_shards("in")
    recipe = ChunkSettings("vocabulary", "", False, "blank", "en")
    with pytest.raises(BertJaxError, match=r"^the name of in/a\\udcff.txt is not UTF-8"):
        plan_parts(TextSource(["in"]), recipe, Path("out"))
    assert main(["index", name, "--output", "index"]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r'cannot keep the name ".*in/a\\udcff.txt", which is not UTF-8; rename it$', line), line


def test_a_verb_says_in_one_line_what_it_left_out(capsys):
    make("hidden", Path("in"))
    os.mkfifo("in/pipe")
    Path("in/.git").mkdir()
    assert main(["index", "in", "--output", "index"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "bert-jax index: in: left out 2 hidden files and 1 pipe"
