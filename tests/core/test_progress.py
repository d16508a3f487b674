"""Long work says how far it is: a bar on a terminal, lines in a log; short work says nothing."""

import io
from itertools import count

import numpy as np
import pytest

from bert_jax.core import progress
from bert_jax.core.progress import Progress, track
from bert_jax.core.terminal import no_lines, part_of_run
from bert_jax.data.corpus.chunks import read_with_progress
from bert_jax.data.examples.epochs import Epochs
from bert_jax.data.examples.groups import Group
from bert_jax.data.examples.row_packing import BatchConfig
from bert_jax.inference.streaming import stream_results
from bert_jax.search import cache
from bert_jax.search.cache import RowCache
from bert_jax.search.mining import MiningCounts, MiningLimits, mine_hard_negatives
from bert_jax.text.row_count import count_rows
from bert_jax.text.text_source import TextSource
from tests.support.pieces import classify_pieces
from tests.support.tiny_encoder import TOKENIZER


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
    assert lines_of(clock, capsys, [29.0], 200) == []
    assert lines_of(clock, capsys, [40.0], 100) == []


def test_lines_in_a_log_grow_rarer_and_say_what_is_left_at_the_speed_since_the_last(clock, capsys):
    # The first hundred texts take long, as if programs were compiled for them.
    shown = lines_of(clock, capsys, [25.0] + [10.0] * 59, 6000)
    assert shown[0] == "200 of 6,000 texts, 17 min left"
    assert shown[1] == "500 of 6,000 texts, 9 min left", "at 10 s for each hundred"
    assert [line.split()[0] for line in shown] == ["200", "500", "900", "1,500", "2,400", "3,700", "5,700"]
    day = lines_of(clock, capsys, [60.0] * 1440, 10**6)
    assert int(day[-1].split()[0].replace(",", "")) - int(day[-2].split()[0].replace(",", "")) == 1000


def test_work_of_unknown_size_shows_its_speed_and_the_part_of_a_run_its_name(clock, capsys):
    assert lines_of(clock, capsys, [31.0], None, 12_000) == ["12,000 texts, 387 texts/s"]
    assert lines_of(clock, capsys, [60.0], None, 1, work="reading") == ["reading: 1 texts, 0.017 texts/s"]
    with part_of_run("fold 2 of 5"):
        assert lines_of(clock, capsys, [40.0], 500, work="validation") == [
            "fold 2 of 5: validation: 100 of 500 texts, 3 min left"
        ]
    assert lines_of(clock, capsys, [40.0], 500, shown=False) == []
    with no_lines():
        assert lines_of(clock, capsys, [40.0], 500) == []


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


class Drawn:
    """An embedder with a vector for each text, whatever it says."""

    def encode(self, texts, prompts=()) -> np.ndarray:
        return np.random.default_rng(0).normal(0, 1, (len(texts), 4)).astype(np.float32)


def test_what_may_take_long_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    ticks = count(0.0, 1000.0)  # seconds between any two looks at the clock
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(ticks))
    texts = [f"text {n}" for n in range(3)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    assert len(list(read_with_progress(TextSource([str(tmp_path / "a.txt")])))) == 3
    assert "prepare: 0 of 0 MB" in capsys.readouterr().err
    monkeypatch.setattr(cache, "tokens_per_batch", lambda: 2)
    RowCache(tmp_path, "passages", "").get_or_compute(texts, lambda some: np.zeros((len(some), 2)))
    assert "2 of 3 passages, " in capsys.readouterr().err
    assert list(stream_results(iter(texts), iter, None, 1)) == texts
    assert "2 texts, " in capsys.readouterr().err
    groups = [Group((f"a {text}", text), "", "") for text in texts]
    limits = MiningLimits(1, range_max=2, margin=0.0, min_score=-1)
    list(mine_hard_negatives(groups, [], Drawn(), limits, MiningCounts()))
    assert "mining: 2 of 3 anchors, " in capsys.readouterr().err
    task, pieces = classify_pieces("classes")
    config = BatchConfig("packed", examples=4, steps=1, seed=0, width=32, layers=1, longest=32)
    data = Epochs(pieces, pieces, task.kind.targets, TOKENIZER, config, lambda _: {}, each_token=False)
    list(data.validation_batches(32, 1, 2))
    assert not capsys.readouterr().err, "only the first process says it"
    list(data.validation_batches(32, 0, 1))
    assert "validation: 2 of 3 batches, " in capsys.readouterr().err
