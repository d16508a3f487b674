"""Long work says how far it is: a bar on a terminal, lines in a log; short work says nothing."""

import io

import pytest

from bert_jax.core import progress
from bert_jax.core.progress import Progress, track
from bert_jax.text.tables import count_rows


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def lines_of(clock, capsys, seconds: list[float], total: int | None, each: int = 100, **more) -> list[str]:
    """The lines of work whose parts, of `each` texts, take so many seconds."""
    with Progress("texts", total, **more) as shown:
        for duration in seconds:
            clock[0] += duration
            shown.advance(each)
    printed = capsys.readouterr()
    assert not printed.out
    return printed.err.splitlines()


def test_short_work_and_the_end_of_any_work_print_nothing(clock, capsys):
    assert lines_of(clock, capsys, [4.0], 200) == []
    assert lines_of(clock, capsys, [40.0], 100) == []


def test_lines_in_a_log_grow_rarer_and_say_what_is_left_at_the_speed_since_the_last(clock, capsys):
    # The first hundred texts take long, as if programs were compiled for them.
    shown = lines_of(clock, capsys, [4.0] + [2.0] * 59, 6000)
    assert shown[0] == "200 of 6,000 texts, 3 min left"
    assert shown[1] == "500 of 6,000 texts, 110 s left", "at 2 s for each hundred"
    numbers = [int(line.split()[0].replace(",", "")) for line in shown]
    assert numbers == [200, 500, 800, 1300, 2000, 3100, 4700]
    day = lines_of(clock, capsys, [60.0] * 1440, 10**6)
    assert int(day[-1].split()[0].replace(",", "")) - int(day[-2].split()[0].replace(",", "")) == 1000


def test_a_log_that_nobody_reads_any_more_does_not_end_the_work(clock, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Closed())
    for _ in track(range(3), "texts"):
        clock[0] += 31


def test_a_terminal_shows_a_bar(clock, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    for _ in track(range(3), "texts", "reading"):
        clock[0] += 31
    assert "reading: " in screen.getvalue() and "3/3" in screen.getvalue() and "left" not in screen.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", 'text,label\n"two\nlines",b\n"a ""quote""",c\n', 2),
        ("a.tsv", 'text\tlabel\nan "inch\tb\n', 1),
        ("a.jsonl", '{"text": "a"}\n{"text": "b"}\n', 2),
        ("a.txt", "a\nb", 2),
        ("a.csv", "", 0),
        ("a.json", "[]", None),
        ("a.jsonl.gz", "", None),
    ],
)
def test_the_rows_of_a_file_are_counted_if_that_is_quick(name, content, rows, tmp_path):
    path = tmp_path / name
    assert count_rows(str(path)) is None
    path.write_text(content)
    assert count_rows(str(path)) == rows
