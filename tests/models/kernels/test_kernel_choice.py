"""Which kernel "auto" takes: it is checked, timed, kept, and the same in all processes of a run."""

import json
import sys
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.models.context import Context
from bert_jax.models.kernels import kernel_choice
from bert_jax.models.kernels.attention import attend
from bert_jax.models.kernels.kernel_check import KernelDifference
from bert_jax.models.kernels.kernel_choice import KernelChoices, choose_kernel, kernels_of
from bert_jax.models.kernels.request import AttentionRequest
from tests.support.fake_kernel import REQUEST, free_port, plant
from tests.support.processes import start_process


def take(request=REQUEST, trains=True, **choices) -> str:
    """What a new process takes."""
    with kernels_of(KernelChoices(trains=trains, **choices)):
        return choose_kernel("auto", request)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "line"),
    [((1, 1.9), "attention: short, checked, 1.9 x xla (16 tokens, dropout 0.1)"),
     ((2, 1), "attention: xla, 2.0 x short, which is right, too (16 tokens, dropout 0.1)")],
)  # fmt: skip
def test_the_faster_one_is_taken_and_a_line_says_so(seconds, line, monkeypatch, capsys, executables):
    plant(monkeypatch, seconds)
    assert take() == line.split()[1].rstrip(",")
    assert capsys.readouterr().err == line + "\n"


@pytest.mark.slow
def test_a_kernel_that_does_not_run_at_the_shapes_is_not_taken(monkeypatch, capsys, executables):
    def fails(names, *_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED")

    plant(monkeypatch)
    monkeypatch.setattr(kernel_choice, "time_kernels", fails)
    assert take() == "xla"
    assert (
        "short is not taken: it does not run at these shapes (RESOURCE_EXHAUSTED)" in capsys.readouterr().err
    )
    assert not list(executables.iterdir()), "it is tried again next time"
    monkeypatch.setattr(
        kernel_choice, "time_kernels", lambda names, *_: [1.0] if names == ["short"] else fails(names)
    )
    assert take() == "short" and "checked, xla fails at these shapes" in capsys.readouterr().err


@pytest.mark.slow
def test_a_choice_is_kept_and_a_damaged_one_is_made_anew(monkeypatch, executables):
    monkeypatch.setattr(kernel_choice, "check_kernel", lambda *_: KernelDifference())
    plant(monkeypatch, (1, 2))
    assert take() == "short"
    (file,) = executables.iterdir()
    kept = file.read_bytes()
    assert take(replace(REQUEST, length=24)) == "short"
    (other,) = set(executables.iterdir()) - {file}
    plant(monkeypatch, (2, 1))
    assert take() == "short"
    others = [replace(REQUEST, length=32), replace(REQUEST, dropout=0.0), replace(REQUEST, rows=8)]
    assert [take(request) for request in others] == ["xla"] * 3 and take(trains=False) == "xla"
    for damaged in (b"", kept[:-9], kept.replace(b"checked", b"shocked"), other.read_bytes()):
        file.write_bytes(damaged)
        assert take() == "xla"
        assert json.loads(file.read_bytes())["kernel"] == "xla", "it was replaced"
    file.write_bytes(kept)
    for part in ("device_facts", "hash_sources"):
        with monkeypatch.context() as patch:
            patch.setattr(kernel_choice, part, lambda *_: "another")
            assert take() == "xla"
    executables.chmod(0o770)
    assert take() == "xla", "others may have written it"


@pytest.mark.slow
def test_a_recorded_choice_is_taken_before_a_kept_one(monkeypatch, executables):
    plant(monkeypatch, (1, 2))
    first = KernelChoices(trains=True)
    with kernels_of(first):
        assert choose_kernel("auto", REQUEST) == "short"
    plant(monkeypatch, (2, 1))
    for file in executables.iterdir():
        file.unlink()
    assert take(recorded=first.record()) == "short"
    assert take(replace(REQUEST, rows=8), recorded=first.record()) == "short", (
        "as of a resumed run on other devices"
    )
    assert take() == "xla"


@pytest.mark.slow
def test_a_choice_can_be_made_while_a_program_is_traced(monkeypatch, executables):
    plant(monkeypatch, (1, 2))
    qkv, context = jnp.ones((2, 16, 3, 16)), Context(jnp.ones((2, 16), jnp.int32))
    key = jax.random.key(0)

    def run(kernel, qkv):
        return attend(qkv, context, heads=2, dropout=0.5, dropout_key=key, kernel=kernel)

    with jax.transfer_guard("disallow"):
        ours, named = (jax.jit(jax.vmap(partial(run, kernel)))(qkv[None]) for kernel in ("auto", "short"))
    np.testing.assert_array_equal(ours, named)


def test_a_kernel_of_a_device_that_is_elsewhere_is_supposed_to_be_right(monkeypatch):
    monkeypatch.setattr(kernel_choice, "check_kernel", None)
    assert choose_kernel("auto", AttentionRequest("tpu", 512, 12, 64, "bfloat16", None, 0.1)) == "short"


def decide_together(**differs) -> list[str]:
    """What two processes take, of which one finds something else."""
    facts = json.dumps(differs | {"coordinator": f"localhost:{free_port()}"})
    command = [sys.executable, "-m", "tests.support.fake_kernel", facts]
    processes = [start_process([*command, str(index)]) for index in range(2)]
    outputs = [process.communicate(timeout=100)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "attention: " in outputs[0] and "attention: " not in outputs[1], "one process speaks for all"
    return [output.split()[-1] for output in outputs]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("differs", "taken"),
    [({"seconds": [[1, 2], [2, 1]]}, "short"),
     pytest.param({"seconds": [[2, 1], [1, 2]]}, "xla", marks=pytest.mark.long),
     ({"seconds": [[1, 2], [1, 2]], "wrong": 1}, "xla"), ({"seconds": [[1, 2], [2, 1]], "recorded": True}, "xla")],
)  # fmt: skip
def test_two_processes_take_the_same(differs, taken):
    assert decide_together(**differs) == [taken, taken]
