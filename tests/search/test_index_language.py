"""The language of an index: detected once, recorded, and the same for all that is added and searched."""

import json

import pytest

import bert_jax
from bert_jax.command import search
from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.core.hashes import sealed
from bert_jax.search.words import WordFinder
from tests.support.human_rights import ARTICLES
from tests.support.indexes import file_contents

TEXTS = ["The wings of an aircraft were tested at high speed.", "It is a wing that was bent by the wind."]


def found(index: bert_jax.Index, query: str) -> list[str]:
    return sorted(hit.id for hit in index.search(query))


def test_documents_that_are_added_have_the_stems_of_the_first_ones(tmp_path):
    index = bert_jax.Index.build(TEXTS, tmp_path / "index")
    assert index.manifest.language == "english" and found(index, "winged") == ["0", "1"]
    index.add([ARTICLES["german"] * 5, "Bent wings."])
    assert index.manifest.language == "english" and found(index, "wing") == ["0", "1", "3"]
    assert found(index, "Mensch") == []  # Menschen, whose German stem this is
    whole = bert_jax.Index.build(
        [*TEXTS, ARTICLES["german"] * 5, "Bent wings."], tmp_path / "whole", language="english"
    )
    queries = ["wings bent", "speeds and winds", "Menschen"]
    assert index.search(queries) == whole.search(queries)
    german = bert_jax.Index.build([ARTICLES["german"]], tmp_path / "german")
    assert found(german, "Mensch") == ["0"]


def test_an_index_without_a_language_is_searched_as_before(tmp_path):
    """As those that an older version wrote."""
    path = tmp_path / "index"
    bert_jax.Index.build(TEXTS, path, language="none")
    content = json.loads((path / "index.json").read_text())
    del content["self"], content["language"]
    (path / "index.json").write_text(json.dumps(sealed(content)))
    index = bert_jax.Index.open(path, verify=True)
    assert found(index, "wing") == ["1"] and found(index, "winged") == []
    index.add(["A wing.", "Wings."])
    assert index.manifest.language is None and found(index, "wing") == ["1", "2"]


def test_another_language_is_refused_unless_all_is_written_anew(tmp_path, capsys):
    path, other = str(tmp_path / "index"), str(tmp_path / "other")
    (tmp_path / "docs.jsonl").write_text("".join(json.dumps({"id": t, "text": t}) + "\n" for t in TEXTS))
    docs = str(tmp_path / "docs.jsonl")
    assert main(["index", docs, "--output", path, "--language", "none"]) == 0
    assert "keywords match" not in capsys.readouterr().err
    before = file_contents(tmp_path / "index")
    for flags, message in (
        (["--language", "english"], "built with language none, not english; add --compact to this command"),
        (["--language", "klingon"], 'no language "klingon"; known: auto, none, arabic'),
        (["--language", "englisch"], 'no language "englisch"; did you mean "english"?'),
    ):
        assert main(["index", docs, "--output", path, *flags]) == 1
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    assert file_contents(tmp_path / "index") == before
    for language in ("auto", "none"):  # what it was built with, or nothing in particular
        assert main(["index", docs, "--output", path, "--language", language]) == 0
    assert "keywords match" not in capsys.readouterr().err
    assert main(["index", "--output", path, "--compact", "--language", "auto"]) == 0
    assert "the language is english, so keywords match by their stems" in capsys.readouterr().err
    assert main(["index", docs, "--output", other]) == 0
    assert "the language is english" in capsys.readouterr().err
    queries = ["winged", "speeds"]
    assert bert_jax.Index.open(path).search(queries) == bert_jax.Index.open(other).search(queries)
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["language"] == "english"
    assert main(["index", "--output", path, "--compact", "--language", "none"]) == 0
    assert found(bert_jax.Index.open(path), "winged") == []
    with pytest.raises(BertJaxError, match='^no language "klingon"'):
        bert_jax.Index.build(TEXTS, tmp_path / "new", language="klingon")


def test_the_words_of_a_query_are_shown_whatever_their_endings(monkeypatch):
    monkeypatch.setattr(search, "is_coloured", lambda: True)
    finder = WordFinder("winged tests", "english")
    shown = search.highlight_words("Wings were tested; the wind was not.", finder)
    assert shown.count(search.BOLD) == 2 and shown.endswith("; the wind was not.")
    text = f"{'It was not so. ' * 30}The wings were tested."
    assert "wings were tested" in search.excerpt(text, finder)
