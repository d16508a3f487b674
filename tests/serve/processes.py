"""Servers in processes of their own, and tiny models of each kind for them."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import process_environment

HEADS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "classifier": (("classify",), ("bad", "good")),
    "tagger": (("tag",), ("O", "B-X", "I-X")),
    "answerer": (("answer",), ()),
    "reranker": (("classify",), ("LABEL_0",)),
    "masked-lm": (("mlm",), ()),
}
DOCUMENTS = ["the cat sat on the mat .", "cats sat .", "on the mat", "the mat ."]
STARTING = 900.0  # seconds, most of which are compilation where the cache is empty and the cores are busy


KINDS = (*HEADS, "embedder", "index")


def save_tiny_models(root: Path, onnx: bool = False, kinds: Sequence[str] = KINDS) -> list[str]:
    """Save a model of each kind; return them as the command takes them, NAME=DIR. An index needs an embedder.

    With `onnx`, they are for the engine onnxruntime, which starts at once because it compiles nothing.
    """
    import bert_jax
    from bert_jax.command.main import main
    from bert_jax.hub import model_directory as hub
    from bert_jax.hub.layout import Layout
    from bert_jax.hub.sentence_transformers import CROSS_ENCODER, EmbedderSettings
    from bert_jax.text.wordpiece import WordPiece
    from tests.support.onnx_models import random_params
    from tests.support.small_models import SMALL_CONFIG, SMALL_VOCABULARY

    layouts = {
        name: Layout(SMALL_CONFIG, heads=heads, labels=labels) for name, (heads, labels) in HEADS.items()
    }
    layouts["reranker"] = dataclasses.replace(layouts["reranker"], hf_config=dict(CROSS_ENCODER))
    settings = EmbedderSettings(prompts={"query": "the ", "document": "on "})
    layouts["embedder"] = Layout(SMALL_CONFIG, embedder=settings, pooler=False)
    for name, layout in layouts.items():
        if name not in kinds:
            continue
        tokenizer = WordPiece.from_vocabulary(SMALL_VOCABULARY)
        written = root / f"{name}-params" if onnx else root / name
        hub.save_model(written, layout, random_params(layout), tokenizer)
        if onnx:
            assert main(["export", str(written), "--format", "onnx", "--output", str(root / name)]) == 0
    if "index" in kinds:
        embedder = bert_jax.Embedder.load(root / "embedder", engine="onnxruntime" if onnx else "jax")
        bert_jax.Index.build(DOCUMENTS, root / "index", model=embedder)
    return [f"{name}={root / name}" for name in kinds]


class RunningServer:
    """A server that has announced its address."""

    def __init__(self, arguments: list[str], **environment: str):
        command = [sys.executable, "-m", "bert_jax", "serve", "--port", "0", *arguments]
        self.output = tempfile.TemporaryFile()  # noqa: SIM115 - unlike a pipe, it is never full
        self.process = subprocess.Popen(
            command, env=process_environment() | environment, stdout=self.output, stderr=subprocess.STDOUT
        )
        self.url = self.wait_for(r" at (http://\S+)\n")
        self.host, self.port = "127.0.0.1", int(self.url.rsplit(":", 1)[1])

    @property
    def printed(self) -> str:
        return os.pread(self.output.fileno(), 1 << 30, 0).decode()

    def wait_for(self, pattern: str, seconds: float = STARTING) -> str:
        """Return the first group of a pattern, as soon as the server has printed it."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.printed)):
            code = self.process.poll()
            if code is not None or time.monotonic() > until:
                self.process.kill()
                raise AssertionError(
                    f"{pattern!r} was not printed, exit code {code}:\n{self.printed[-3000:]}"
                )
            time.sleep(0.02)
        return found[1]

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found
        return 1024 * int(found[1])

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> tuple[int, str]:
        """Return the exit code, and all that the server printed."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.kill()
        return code, self.printed

    def stop(self) -> tuple[int, str]:
        """Stop it, if it still runs."""
        if self.process.poll() is None:
            self.signal()
        return self.wait()


def start_server(arguments: list[str], **environment: str) -> RunningServer:
    return RunningServer(arguments, **environment)


@contextmanager
def serving(directories: Mapping[str, Path], *options: str, **environment: str) -> Iterator[str]:
    """Serve models by their names, and give the address of the server; at the end, it is told to stop."""
    server = start_server(
        [*(f"{name}={path}" for name, path in directories.items()), *options], **environment
    )
    try:
        yield server.url
    finally:
        code, printed = server.stop()
    assert code == 0 and "are answered" in printed, printed[-3000:]
