"""Outputs: whole or absent, by one process at a time, never over a device, a link, the input or a foreign file."""

import errno
import fcntl
import importlib
import os
import resource
import signal
import stat
import threading
import time
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.command.main import interruptible, main
from bert_jax.core.errors import BertJaxError
from bert_jax.core.files import write_atomically
from bert_jax.core.output import (
    PARTIAL,
    atomic_directory,
    atomic_file,
    locked_directory,
    open_output,
    temporary_sibling,
)
from bert_jax.data.npy_writer import npy_writer
from bert_jax.hub import model_directory as hub
from tests.hostile.outcomes import LINE, LONGEST, outcome


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def complaint(capsys, *arguments) -> str:
    """The one line by which a command refuses its arguments."""
    assert main([*map(str, arguments)]) == 1
    output = capsys.readouterr()
    assert output.out == "" and output.err.count("\n") == 1 and len(output.err) < LONGEST
    return output.err


@pytest.fixture
def predict(small):
    return ["predict", "--model", small / "classifier", "--input", small / "lines.txt"]


@pytest.fixture
def embed(small):
    return ["embed", "--model", small / "classifier", "--input", small / "lines.txt"]


def device(folder: Path, name: str) -> Path:
    """A device like /dev/NAME, which root could lose for all programs if these tests failed."""
    path, number = folder / name, os.stat(f"/dev/{name}").st_rdev
    if os.geteuid() == 0:
        os.mknod(path, 0o666 | stat.S_IFCHR, number)
    else:
        path.symlink_to(f"/dev/{name}")
    return path


@pytest.mark.slow
def test_a_device_stays_a_device(predict, tmp_path, capsys):
    null, link = device(tmp_path, "null"), tmp_path / "link"
    link.symlink_to("null")
    assert main([*map(str, predict), "--output", str(link)]) == 0
    write_atomically(link, "content")
    with npy_writer(link, "float32") as array:
        array.append(np.ones((3, 2), np.float32))
    assert link.is_symlink() and null.is_char_device() and names(tmp_path) == ["link", "null"]


def test_a_pipe_gets_what_a_file_would_hold(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)

    def received(write):
        reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
        reader.start()
        write()
        reader.join()
        return got.pop()

    def lines():
        with open_output(pipe) as file:
            file.write("a\n")

    def array(path):
        with npy_writer(path, "float32") as array:
            array.append(vectors)

    assert received(lines) == b"a\n"
    array(tmp_path / "vectors.npy")
    assert received(lambda: array(pipe)) == (tmp_path / "vectors.npy").read_bytes()
    assert pipe.is_fifo() and names(tmp_path) == ["pipe", "vectors.npy"]


@pytest.mark.slow
def test_standard_output_is_written_in_place(predict, tmp_path):
    """Also where it is a file that has lines already."""
    link = tmp_path / "stdout"
    link.symlink_to("/proc/self/fd/1")  # as /dev/stdout
    with open(tmp_path / "all.jsonl", "w") as file:
        file.write("before\n")
        file.flush()
        done = outcome([*predict, "--output", link], stdout=file)
        assert done.code == 0, done
        file.write("after\n")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    assert len(lines) == 62 and lines[0] == "before" and lines[-1] == "after"


def test_modes_are_kept_and_links_followed(tmp_path):
    path, link, dangling = (tmp_path / name for name in ("secret", "link", "dangling"))
    path.write_text("before")
    path.chmod(0o600)
    link.symlink_to("secret")
    write_atomically(link, "after")
    assert path.read_text() == "after" and stat.S_IMODE(path.stat().st_mode) == 0o600
    dangling.symlink_to("folder/new")
    before = os.umask(0o027)
    try:
        write_atomically(dangling, "new")
        with atomic_directory(tmp_path / "model") as new:
            (new / "a").write_text("")
    finally:
        os.umask(before)
    assert (tmp_path / "folder" / "new").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "folder" / "new").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o750
    assert link.is_symlink() and dangling.is_symlink()


@pytest.mark.slow
def test_the_input_is_never_the_output(small, tmp_path, capsys):
    data, twin, array = tmp_path / "in.jsonl", tmp_path / "twin.jsonl", tmp_path / "in.npy"
    content = (small / "labelled.jsonl").read_bytes()
    data.write_bytes(content)
    os.link(data, twin)
    os.link(data, array)
    model = ["--model", small / "classifier"]
    for verb, output in (("predict", data), ("predict", twin), ("embed", array)):
        line = complaint(capsys, verb, *model, "--input", data, "--output", output)
        assert "is also the input" in line
    with open(data) as stdin, open(data, "a") as stdout:
        refused = outcome(["predict", *model, "--output", data], stdin=stdin)
        assert refused.kind == LINE and "is also the input" in refused.stderr
        endless = outcome(["predict", *model, "--input", data], stdout=stdout)
        assert endless.kind == LINE and "standard output is also the input" in endless.stderr
    assert data.read_bytes() == content


@pytest.mark.slow
def test_odd_outputs_are_one_line(predict, embed, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "folder.npy").mkdir()
    long, full = tmp_path / ("x" * 300 + ".npy"), device(tmp_path, "full")
    for output in (
        tmp_path,
        tmp_path / "file" / "out",
        "/proc/out",
        tmp_path / "circle",
        long,
        full,
    ):
        assert str(output)[-40:] in complaint(capsys, *predict, "--output", output)
    for output in (tmp_path / "folder.npy", "/proc/out.npy", long):
        assert str(output)[-40:] in complaint(capsys, *embed, "--output", output)
    assert (
        names(tmp_path) == ["circle", "file", "folder.npy", "full"]
        and (tmp_path / "file").read_text() == "kept"
    )


@pytest.mark.slow
def test_a_full_standard_output_is_one_line(predict):
    with open("/dev/full", "w") as full:
        done = outcome(predict, stdout=full)
    assert done.kind == LINE and "standard output: No space left on device; make room" in done.stderr


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(small, tmp_path, capsys):
    """A limit on the size of files fails a write as a full disk does. Corpora and runs: their tests of kills."""
    slowest = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update(
        "jax_persistent_cache_min_compile_time_secs", 1e9
    )  # or JAX warns that its cache has no room
    commands = [
        ["import", small / "masked", tmp_path / "model"],
        ["pairs", small / "text.txt", "--output", tmp_path / "pairs.jsonl"],
    ]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        for command in commands:
            assert "File too large; make room there" in complaint(capsys, *command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", slowest)
    assert names(tmp_path) == []
    for command in commands:
        assert main([*map(str, command)]) == 0


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    dead = [f".out.abcd_123{PARTIAL}", f".model.abcd_123{PARTIAL}"]
    kept = [f".out.txt.abcd_123{PARTIAL}", f"out.abcd_123{PARTIAL}", ".out.abcd_123", f".out.abc{PARTIAL}"]
    for name in [dead[0], *kept]:
        (tmp_path / name).write_text("")
    (tmp_path / dead[1]).mkdir()
    (tmp_path / dead[1] / "config.json").write_text("")
    write_atomically(tmp_path / "out", "")
    with atomic_directory(tmp_path / "model"):
        pass
    assert names(tmp_path) == sorted([*kept, "out", "model"])


def test_the_second_writer_is_refused_at_once(tmp_path):
    for write in (atomic_file, open_output, atomic_directory, locked_directory):
        path = tmp_path / write.__name__
        with write(path), pytest.raises(BertJaxError, match=f"is writing .*{path.name}"), write(path):
            pass
        with write(path):  # again, when the first is done
            pass
    assert names(tmp_path) == ["atomic_directory", "atomic_file", "locked_directory", "open_output"]


def test_a_cache_has_many_writers(tmp_path):
    with atomic_file(tmp_path / "cache", shared=True) as first:
        first.write_text("first")
        write_atomically(tmp_path / "cache", "second", shared=True)
        assert (tmp_path / "cache").read_text() == "second"
    assert (tmp_path / "cache").read_text() == "first" and names(tmp_path) == ["cache"]


def test_a_file_system_without_locks_is_written_to(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOTSUP, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with temporary_sibling(tmp_path / "out") as first:
        write_atomically(tmp_path / "out", "second")
        assert first.exists(), "nobody can tell whether it is a leftover"
    with locked_directory(tmp_path / "work"):
        assert (tmp_path / "work").is_dir()


def test_a_run_replaces_a_model_of_its_own(small, tmp_path):
    model, directory = bert_jax.load(small / "classifier"), tmp_path / "model"
    assert {path.name for path in (small / "classifier").iterdir()} <= hub.WRITTEN_FILES
    model.save(directory)
    for stale in ("calibration.json", "merges.txt", f".config.json.abcd_123{PARTIAL}"):
        (directory / stale).write_text("{}")
    with hub.atomic_model_directory(directory, hub.WRITTEN_FILES) as new:
        (new / "config.json").write_text("{}")
    assert names(directory) == ["config.json"]
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(BertJaxError, match="1_Pooling/thesis.txt"),
        hub.atomic_model_directory(directory, hub.WRITTEN_FILES),
    ):
        pass
    assert (directory / "1_Pooling" / "thesis.txt").exists() and names(tmp_path) == ["model"]
    (tmp_path / "file").write_text("")
    with pytest.raises(BertJaxError, match="file: Not a directory"):
        model.save(tmp_path / "file")


def test_the_directory_that_one_is_in_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BertJaxError, match="is in use and cannot be replaced"), atomic_directory(Path(".")):
        pass


@pytest.mark.parametrize("moment", [0, 1])
def test_an_interrupt_while_a_directory_is_replaced_leaves_the_old_one(tmp_path, monkeypatch, moment):
    directory, rename, count = tmp_path / "model", Path.rename, 0
    directory.mkdir()
    (directory / "a").write_text("old")

    def interrupted(path, target):
        nonlocal count
        if str(target).endswith(".before") or path.name.endswith(PARTIAL) and directory.exists() is False:
            count += 1
            if count == moment + 1:
                raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_directory(directory, {"a"}) as new:
        (new / "a").write_text("new")
    assert (directory / "a").read_text() == "old" and names(tmp_path) == ["model"]


def test_a_directory_that_was_killed_while_it_was_replaced_comes_back(tmp_path):
    (tmp_path / ".model.abcd_123.before").mkdir()
    (tmp_path / ".model.abcd_123.before" / "a").write_text("old")
    with pytest.raises(KeyError), atomic_directory(tmp_path / "model", {"a"}):
        raise KeyError
    assert (tmp_path / "model" / "a").read_text() == "old"
    with atomic_directory(tmp_path / "model", {"a"}) as new:
        (new / "a").write_text("new")
    assert (tmp_path / "model" / "a").read_text() == "new" and names(tmp_path) == ["model"]


def test_the_end_of_the_terminal_ends_a_command_unless_it_is_to_be_ignored():
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt) as raised, interruptible():
            signal.raise_signal(signal.SIGHUP)
        assert raised.value.args == (signal.SIGHUP,)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with interruptible():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_that_a_library_turns_into_an_error_stays_one():
    with pytest.raises(KeyboardInterrupt) as raised, interruptible():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("while initializing the extension") from None
    assert raised.value.args == (signal.SIGTERM,)


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path, monkeypatch):
    lines = "import signal, time\nsignal.raise_signal(signal.SIGTERM)\ntime.sleep(0.3)\nwhole = True\n"
    (tmp_path / "slow_to_import.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt) as raised, interruptible():
        imported = importlib.import_module("slow_to_import")
        time.sleep(10)
    assert raised.value.args == (signal.SIGTERM,) and imported.whole


class Interrupting:
    """Interrupts whoever pickles it, as a process does that starts another one."""

    def __reduce__(self):
        signal.raise_signal(signal.SIGTERM)
        return int, (5,)


def test_an_interrupt_waits_until_a_process_was_told_what_to_do():
    process = get_context("spawn").Process(target=abs, args=(Interrupting(),))
    with pytest.raises(KeyboardInterrupt) as raised, interruptible():
        process.start()
        time.sleep(10)
    process.join()
    assert raised.value.args == (signal.SIGTERM,) and process.exitcode == 0
