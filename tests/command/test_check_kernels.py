"""`bert-jax check --kernels`: the attention kernels on the device at hand."""

import json

import pytest

from bert_jax.command.main import main
from bert_jax.models.kernels import kernel_check
from bert_jax.models.kernels.kernel_check import CASES, KernelDifference

RIGHT = KernelDifference(0.011, 0.0149, 0.9021)
WRONG = KernelDifference(0.011, 0.4, 0.9021, "its gradients differ from the definition's by 40%")


def check(capsys, *flags: str) -> tuple[int, str, str]:
    code = main(["check", *flags])
    return code, *capsys.readouterr()


def test_a_table_says_how_far_each_kernel_is_from_the_definition(monkeypatch, capsys):
    monkeypatch.setattr(kernel_check, "check_kernel", lambda *_: RIGHT)
    code, output, printed = check(capsys, "--kernels")
    lines = output.splitlines()
    assert code == 0 and "this is a CPU" in printed
    assert len(lines) == 1 + sum(map(len, CASES.values()))
    assert lines[1].split() == ["short,", "dropout", "1.1%", "1.5%", "90.2%", "-", "-", "right"]


def test_a_wrong_kernel_is_an_error_also_beside_json(monkeypatch, capsys):
    wrong = {"bias": WRONG}
    monkeypatch.setattr(
        kernel_check, "check_kernel", lambda _, request: wrong.get("".join(request.terms), RIGHT)
    )
    code, output, printed = check(capsys, "--kernels", "--json")
    found = json.loads(output)
    assert code == 1 and f"2 of {len(found)} are wrong on this device" in printed
    assert found["flash, a bias for each distance"]["fault"] == WRONG.fault
    assert found["splash, no dropout"]["fault"] is None


@pytest.mark.parametrize("flags", [(), ("runs", "--kernels"), ("runs", "--json")])
def test_what_does_not_go_together_is_refused(flags, capsys):
    code, output, printed = check(capsys, *flags)
    assert code == 1 and not output and printed.count("\n") == 1


@pytest.mark.long
def test_all_kernels_are_right(capsys):
    code, output, _ = check(capsys, "--kernels")
    assert code == 0 and output.count("right") == output.count("\n") - 1
