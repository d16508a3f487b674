"""The verb pairs: what it writes and counts, and what it refuses."""

import json

import pytest

from bert_jax.command.main import main
from tests.support import made_up_language

TEXT = "Cats land on their feet. Few know why that is so. Dogs fall on their backs."


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"id": n, "title": f"Number {n}", "text": f"{TEXT} {made_up_language.WORDS[n]} {n}."}
        for n in range(9)
    ]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def call(*words, code: int = 0) -> str:
        assert main(["pairs", *map(str, words)]) == code
        shown = capsys.readouterr()
        assert shown.out == ""
        return shown.err

    return call


def test_the_verb_writes_pairs_and_counts_them(run, tmp_path):
    output = run("docs", "--output", "pairs.jsonl", "--passage-words", 11)
    rows = [json.loads(line) for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    assert {tuple(row) for row in rows} == {("anchor", "positive")}
    assert (
        output
        == f"{len(rows)} pairs of 9 documents in pairs.jsonl: 9 of titles, 18 of neighbours, 9 of queries\n"
    )
    run(
        "docs",
        "--output",
        "few.jsonl",
        "--passage-words",
        11,
        "--sources",
        "queries,titles",
        "--max-pairs",
        7,
    )
    few = [json.loads(line) for line in (tmp_path / "few.jsonl").read_text().splitlines()]
    assert 3 <= len(few) <= 7 and all(row in rows for row in few)


def test_what_cannot_be_done_is_said_in_a_line_and_leaves_the_output(run, tmp_path):
    (tmp_path / "short.txt").write_text("Short.")
    (tmp_path / "pairs.jsonl").write_text("kept")
    for given, message in (
        (
            ["short.txt", "--output", "pairs.jsonl"],
            "short.txt: the documents give no pairs of titles or neighbours",
        ),
        (["docs", "--output", "docs/rows.jsonl"], "docs/rows.jsonl is also the input"),
        (
            ["docs", "--output", "pairs.jsonl", "--sources", "title"],
            'no source of pairs "title"; did you mean "titles"',
        ),
    ):
        output = run(*given, code=1)
        assert message in output and output.count("\n") == 1
    assert (tmp_path / "pairs.jsonl").read_text() == "kept"
