import os
import re
import signal
import subprocess
import sys
import time

import pytest

from bert_jax.command import main as cli
from bert_jax.command.bench import BENCHES
from bert_jax.core.errors import BertJaxError
from tests.support.pretraining_runs import make_corpus, train_command
from tests.support.project import ROOT


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "bert_jax", *arguments], capture_output=True, text=True)


def test_the_verbs_are_shown_a_line_each():
    shown = run()
    assert shown.returncode == 0 and shown.stdout == run("--help").stdout
    for name, verb in cli.VERBS.items():
        assert f"  {name} " in shown.stdout and verb.summary in shown.stdout
    assert not too_wide(shown.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["--help"], ["predict", "--help"], ["config", "classify"]], ids=" ".join
)
def test_a_reader_that_has_left_is_no_error(arguments):
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-u", "-m", "bert_jax", *arguments]
    shown = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert shown.returncode in (0, 128 + signal.SIGPIPE) and shown.stderr == ""


def too_wide(text: str) -> list[str]:
    """Lines that wrap on a terminal of 80 columns."""
    return [line for line in text.splitlines() if len(line) > 80]


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verbs_help_has_an_example_that_parses(verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    parser = cli.make_parser(verb)
    assert not too_wide(parser.format_help())
    assert f"example: bert-jax {verb}" in " ".join(parser.format_help().split())
    example = cli.VERBS[verb].example
    if not set(example) & set('|>"*<'):
        parser.parse_args(example.split()[2:])


@pytest.mark.parametrize("subject", BENCHES)
def test_every_subject_of_bench_has_an_example_that_parses(subject, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    parser = cli.make_parser("bench")
    with pytest.raises(SystemExit):
        parser.parse_args([subject, "--help"])
    example = BENCHES[subject].example
    shown = capsys.readouterr().out
    assert " ".join(example.split()) in " ".join(shown.split()) and not too_wide(shown)
    assert example.startswith(f"bert-jax bench {subject} ")
    assert not parser.parse_args(example.split()[2:]).debug
    assert parser.parse_args([*example.split()[2:], "--debug"]).debug
    assert parser.parse_args(["--debug", *example.split()[2:]]).debug


def test_errors_are_one_line_that_names_the_nearest():
    wrong_verb = run("inof")
    assert (wrong_verb.returncode, wrong_verb.stderr) == (
        2,
        'bert-jax: no verb "inof"; did you mean "info"?\n',
    )
    wrong_flag = run("info", "somewhere", "--jsno")
    assert wrong_flag.returncode == 2
    assert 'did you mean "--json"' in wrong_flag.stderr and wrong_flag.stderr.count("\n") == 1
    assert run("info").returncode == 2


@pytest.mark.slow
def test_failures_exit_with_1_and_debug_shows_where(tmp_path):
    failed = run("info", str(tmp_path))
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1 and "has no config.json" in failed.stderr
    assert "Traceback" in run("info", str(tmp_path), "--debug").stderr


@pytest.mark.ci
def test_nothing_is_said_but_our_own_lines_and_programs_are_found_again(tmp_path):
    """On a machine without accelerators, where this runs with libtpu too, and no variable hushes what is imported."""
    corpus = make_corpus(tmp_path)
    of_start = r"(corpus|schedule|computes|step|steps) +\S|[\d,]+ parameters on |compiling the step"
    ours = re.compile(rf"{of_start}|step \d |the model is in ")
    said_by_tests = ("JAX_PLATFORMS", "TF_CPP_MIN_LOG_LEVEL", "JAX_COMPILATION_CACHE_DIR")
    environment = {k: v for k, v in os.environ.items() if k not in said_by_tests}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    # Every program: what takes long enough to be kept by default depends on what else the machine does.
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    kept = []
    for n in range(2):
        command = train_command(corpus, tmp_path / f"run{n}", steps=2, **{"log.every": 1})
        ran = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert ran.returncode == 0
        assert [line for line in (ran.stdout + ran.stderr).splitlines() if not ours.match(line)] == []
        kept.append({path.name for path in (tmp_path / "cache/bert_jax/programs").glob("*-cache")})
    assert kept[0] and kept[1] == kept[0], "the second run compiled nothing anew"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vocab", "--input", "x", "--outptu", "v"], 'did you mean "--output"'),
        (["train", "--config", "c", "--workdir", "w", "--steps=4"], "--config.steps=VALUE"),
        (["train", "--config", "c", "--workdir", "w", "--config.steps", "4"],
         "--config.steps needs a value: --config.steps=VALUE, without a space"),
        (["bench", "embed", "--model", "x", "--input", "y", "--txets", "3"], 'did you mean "--texts"?'),
        (["fill-mask", "--model", "x", "--top-k", "0"], "argument --top-k: must be a whole number between 1 and"),
        (["search", "x", "a query", ""], 'unknown argument ""; known: --'),
        (["vocab", "--input", "x", "--output", "-"], "--output - names no file; /dev/stdout"),
        (["bench", "embed", "--model", "x", "--texts=-1"], 'between 1 and 2,147,483,647, not "-1"'),
    ],
)  # fmt: skip
def test_a_wrong_flag_is_named_with_the_right_one(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_flags_may_stand_between_words(tmp_path, capsys):
    assert cli.main(["search", str(tmp_path), "--json", "a query"]) == 1
    assert "it has no index.json" in capsys.readouterr().err


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("bert_jax.report.model_info.describe_model", interrupted)
    assert cli.main(["info", "."]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_ctrl_c_that_is_swallowed_is_raised_again(monkeypatch):
    heard = []

    def deaf(*_, **__):
        for _ in range(2):
            try:
                os.kill(os.getpid(), signal.SIGINT) if not heard else time.sleep(10)
            except KeyboardInterrupt:
                heard.append(time.monotonic())
        time.sleep(10)

    monkeypatch.setattr("bert_jax.report.model_info.describe_model", deaf)
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(["info", "."]) == 130
    assert len(heard) == 2 and heard[1] - heard[0] < 5
    assert signal.getsignal(signal.SIGINT) is before


def test_errors_of_ours_only_are_made_short(monkeypatch):
    monkeypatch.setattr("bert_jax.report.model_info.describe_model", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["info", "."])
    assert not issubclass(ZeroDivisionError, BertJaxError)


@pytest.mark.parametrize(("joined", "exits"), [(True, [1]), (False, [])])
def test_one_of_several_processes_ends_at_once_after_an_error(joined, exits, monkeypatch, capfd):
    codes: list[int] = []
    monkeypatch.setattr(cli, "is_joined", lambda: joined)
    monkeypatch.setattr(cli.os, "_exit", codes.append)
    monkeypatch.setattr(sys, "argv", ["bert-jax", "info", "nowhere"])
    assert cli.command() == 1 and codes == exits
    monkeypatch.setattr(cli, "main", lambda: 1 / 0)
    if joined:
        assert cli.command() == 1 and codes == [1, 1]
        assert "ZeroDivisionError" in capfd.readouterr().err
    else:
        with pytest.raises(ZeroDivisionError):
            cli.command()
