"""Wrong input: refused, or said."""

import subprocess
import sys
import warnings

import pytest

from bert_jax.command.main import main
from bert_jax.core.errors import BertJaxError
from bert_jax.data.examples.tagged_words import read_tags
from bert_jax.text.tokenizer_directory import open_tokenizer
from tests.support.made_up_language import ENTRIES, save_tokenizer
from tests.support.processes import process_environment


def test_a_table_of_sentences_is_no_table_of_words(tmp_path):
    (tmp_path / "a.tsv").write_text("New York\tB-LOC\nw1 w2 w3 w4 w5 w6\tyes\n")
    with pytest.raises(BertJaxError, match="a.tsv.*row 2"):
        read_tags(str(tmp_path / "a.tsv"))


def test_lengths_without_room_for_a_text(tmp_path):
    tokenizer = open_tokenizer(save_tokenizer(tmp_path))
    for text, least in (("w1 w2", 3), (("w1", "w2"), 5)):
        assert len(tokenizer.encode([text], max_length=least)[0].input_ids) == least
        with pytest.raises(BertJaxError, match=f"{least - 1} tokens have no room .* allow {least} or more"):
            tokenizer.encode([text], max_length=least - 1)
        with pytest.raises(BertJaxError, match=f"allow {least} or more"):
            tokenizer.windows([text], max_length=least - 1, overlap=0)


def test_lines_of_a_vocabulary_that_are_wasted_or_damaged(tmp_path):
    save_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(ENTRIES) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        size = open_tokenizer(tmp_path).size
    file.write_text("\n".join([*ENTRIES, "w1", "", "w9999"]) + "\n")
    told = f"2 blank or duplicate lines, the first is line {size + 1}"
    with pytest.warns(UserWarning, match=told):
        assert open_tokenizer(tmp_path).size == size + 3
    file.write_text("\n".join([*ENTRIES, "w\0"]) + "\n")
    with pytest.raises(BertJaxError, match=f"vocab.txt line {size + 1} has NUL bytes"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "flags", [["--processes", "2"], ["--process", "0"], ["--processes", "2", "--process", "1"]]
)
def test_several_processes_that_could_not_meet(flags, tmp_path, capsys):
    assert (
        main(["train", "--config", "configs/pretrain.py:tiny", "--workdir", str(tmp_path / "run"), *flags])
        == 1
    )
    assert "--coordinator" in capsys.readouterr().err
    assert main(["train", "--config", "c", "--workdir", "w", "--processes", "2", "--process", "2"]) == 1
    assert "--processes=2" in capsys.readouterr().err


def test_a_closed_output_is_said(small):
    command = [sys.executable, "-m", "bert_jax", "info", str(small / "masked")]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
        env=process_environment(),
        capture_output=True,
        text=True,
    )
    assert closed.returncode == 1
    assert (
        closed.stderr.startswith("bert-jax info: standard output is closed")
        and closed.stderr.count("\n") == 1
    )


def test_a_picture_that_could_not_be_written_is_refused_before_it_is_measured(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "engines", "model", "--data", "test.csv", "--picture", str(tmp_path)])
    assert f"--picture: must be a file, and {tmp_path} is a directory" in capsys.readouterr().err
