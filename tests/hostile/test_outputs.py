"""Outputs: whole or absent, never in the place of a device, a link's target or the input."""

from hostile.outcomes import outcome


def test_a_command_on_small_material_is_right(small, tmp_path):
    flags = ["--model", small / "classifier", "--input", small / "lines.txt"]
    done = outcome(["predict", *flags, "--output", tmp_path / "out.jsonl"])
    assert done.kind == "right", done
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 60
