"""Ids belong to the source of their documents: which documents replace others, and which are refused."""

import os
from pathlib import Path

import pytest

import bert_jax
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.search.index_manifest import read_index_manifest


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one/a.txt", "one/b.txt", "two/a.txt", "two/c.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"A cat of {name}.")


def index(*words: str) -> int:
    return main(["index", *words, "--output", "index"])


def texts() -> list[str]:
    return sorted(hit.text for hit in bert_jax.Index.open("index").search("cat"))


def test_a_second_source_with_the_same_ids_is_refused_as_both_in_one_command_are(capsys):
    assert index("one", "two") == 1
    assert 'has the id "a.txt" of' in capsys.readouterr().err
    assert index("one") == 0
    before = texts()
    for replace in (index, lambda *words: bert_jax.Index.open("index").add(list(map(Path, words)))):
        try:
            assert replace("two") == 1
            message = capsys.readouterr().err
        except BertJaxError as error:
            message = str(error)
        assert 'two/a.txt has the id "a.txt" of a document from another source' in message
        assert texts() == before and len(read_index_manifest(Path("index")).sources) == 1
    assert index("two/c.txt") == 0, "no id of another"
    assert index("two", "--replace") == 0
    assert texts() == ["A cat of one/b.txt.", "A cat of two/a.txt.", "A cat of two/c.txt."]
    assert index("--compact", "--replace") == 1 and "give DOCS" in capsys.readouterr().err


def test_the_same_files_by_other_names_are_an_update():
    assert index("two/c.txt", "one/a.txt") == 0
    for name in ("one", "./two/../one/*.txt", "one/a.txt"):
        Path("one/a.txt").write_text(f"A cat, read as {name}.")
        assert index(name) == 0 and f"A cat, read as {name}." in texts()


def test_a_source_that_was_moved_is_an_update_and_is_recorded_even_if_nothing_changed():
    assert index("one") == 0
    os.rename("one", "three")
    assert index("three") == 0
    assert [Path(source).name for source in read_index_manifest(Path("index")).sources] == ["one", "three"]
    Path("three/a.txt").write_text("A cat moved.")
    assert index("three") == 0 and texts() == ["A cat moved.", "A cat of one/b.txt."]
