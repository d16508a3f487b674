"""A program that one process compiled is loaded by the next: the same bits, and nothing is traced."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.inference import kept_programs, programs
from bert_jax.models.blocks.post_norm import Block
from bert_jax.models.kernels import kernel_choice
from tests.support.fake_kernel import REQUEST, plant

TEXTS = ["w1 w2", "w3 w4 w5 w6 w7 w8 w9 w1 w2 w3"]


def encode_anew(directory: Path) -> np.ndarray:
    """Encode as a new process would, and wait until its programs are kept."""
    programs.PROGRAMS.clear()
    model = bert_jax.load(directory)
    vectors = np.concatenate([model.encode(texts) for texts in (TEXTS, TEXTS[:1])])
    programs.compiler_threads().shutdown()
    programs.compiler_threads.cache_clear()
    return vectors


def refuse(*_):
    raise AssertionError("a program is traced")


@pytest.mark.slow
def test_what_was_compiled_is_not_traced_again(executables, encoder_path, monkeypatch):
    vectors = encode_anew(encoder_path)
    kept = {file: file.read_bytes() for file in executables.iterdir()}
    assert kept and executables.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(programs, "program_of", refuse)
    assert np.array_equal(encode_anew(encoder_path), vectors)
    assert {file: file.read_bytes() for file in executables.iterdir()} == kept


@pytest.mark.slow
def test_a_damaged_or_foreign_program_is_compiled_anew_and_replaced(executables, encoder_path, monkeypatch):
    vectors = encode_anew(encoder_path)
    files = sorted(executables.iterdir())
    whole = [file.read_bytes() for file in files]
    assert len(files) == 2
    flipped = bytes([*whole[0][:-1], whole[0][-1] ^ 1])
    for damaged in (b"", whole[0][:-9], flipped, whole[1]):
        files[0].write_bytes(damaged)
        assert np.array_equal(encode_anew(encoder_path), vectors)
        assert kept_programs.load_program(files[0]), "it was replaced"

    def refuse_to_load(*_, **__):
        raise jax.errors.JaxRuntimeError("another build")

    with monkeypatch.context() as patch:
        patch.setattr(kept_programs, "deserialize_and_load", refuse_to_load)
        assert np.array_equal(encode_anew(encoder_path), vectors)


def test_a_program_is_named_by_all_that_it_depends_on(executables, monkeypatch):
    def name_of(program="embed"):
        return kept_programs.program_file(program, Block)

    plain = name_of()
    others = [name_of("tag")]
    with jax.default_matmul_precision("float32"):
        others.append(name_of())
    with monkeypatch.context() as other:
        other.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        others.append(name_of())
    for part in ("machine", "hash_sources"):
        with monkeypatch.context() as other:
            other.setattr(kept_programs, part, lambda *_: "another")
            others.append(name_of())
    assert len({plain, *others}) == 6 and plain == name_of()


def test_what_may_change_or_be_changed_by_others_is_not_kept(executables, monkeypatch):
    class Own(Block):
        pass

    assert kept_programs.program_file("embed", Own) is None
    file = kept_programs.program_file("embed", Block)
    for mode in (0o770, 0o702):
        executables.chmod(mode)
        assert kept_programs.program_file("embed", Block) is None
    executables.chmod(0o700)
    assert kept_programs.program_file("embed", Block) == file
    for setting, value in (
        ("jax_compilation_cache_dir", "gs://bucket"),
        ("jax_enable_compilation_cache", False),
    ):
        before = getattr(jax.config, setting)
        jax.config.update(setting, value)
        assert kept_programs.program_file("embed", Block) is None
        jax.config.update(setting, before)


def test_the_programs_that_were_not_used_for_longest_go(tmp_path):
    for age, name in enumerate("abcd"):
        file = tmp_path / f"{name}.program"
        file.write_bytes(bytes(10))
        os.utime(file, (1000 - age, 1000 - age))
    kept_programs.remove_oldest(tmp_path, -1)
    assert len(list(tmp_path.iterdir())) == 4
    kept_programs.remove_oldest(tmp_path, 25)
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["a", "b"]


def test_a_program_of_other_attention_kernels_than_are_taken_is_compiled_anew(tmp_path, monkeypatch):
    compiled, file = jax.jit(lambda x: x + 1).lower(1.0).compile(), tmp_path / "a.program"
    kept_programs.save_program(file, compiled, {REQUEST: "short"})
    plant(monkeypatch)
    for taken, is_loaded in (("short", True), ("xla", False)):
        choice = kernel_choice.Choice(taken, "as planted")
        with kernel_choice.kernels_of(kernel_choice.KernelChoices(taken={REQUEST: choice})):
            assert (kept_programs.load_program(file) is not None) == is_loaded
