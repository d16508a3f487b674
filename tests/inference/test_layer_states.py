"""What layers compute on the way is what transformers gives; what was warmed up is not compiled again."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from weakref import WeakValueDictionary

import numpy as np
import pytest

import bert_jax
from bert_jax.core.errors import BertJaxError
from bert_jax.inference import programs
from bert_jax.inference.engines import jax as jax_engine
from bert_jax.text.wordpiece import WordPiece
from tests.support.made_up_language import ENTRIES
from tests.support.small_models import write_model

SIZES = {
    "vocab_size": len(ENTRIES), "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 64, "max_position_embeddings": 64, "attn_implementation": "eager",
}  # fmt: skip
IDS = {"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
FAMILIES = {
    "Bert": {},
    "ModernBert": {"global_attn_every_n_layers": 2, "local_attention": 6, **IDS},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
}
TEXTS = [" ".join(f"w{n}" for n in range(20)), ("w5 w6", "w9")]  # a row is longer than a head is wide


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_attention_of_each_layer_are_those_of_transformers(family, tmp_path):
    torch, transformers = (pytest.importorskip(name) for name in ("torch", "transformers"))
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **FAMILIES[family])
    reference = getattr(transformers, f"{family}Model")(config).eval()
    for parameter in reference.parameters():
        parameter.data = 0.15 * torch.randn_like(parameter)
    reference.save_pretrained(tmp_path)
    WordPiece.from_vocabulary(ENTRIES).save(tmp_path)
    model = bert_jax.load(tmp_path)
    states, weights = model.hidden_states(TEXTS, layers="all"), model.attentions(TEXTS)
    for n, encoding in enumerate(model.tokenize(TEXTS)):
        token_types = torch.tensor([encoding.token_type_ids])
        read = {} if family == "ModernBert" else {"token_type_ids": token_types}
        answer = reference(
            input_ids=torch.tensor([encoding.input_ids]), attention_mask=torch.ones(1, len(encoding.input_ids)).long(),
            output_hidden_states=True, output_attentions=True, **read,
        )  # fmt: skip
        for ours, theirs in ((states[n], answer.hidden_states), (weights[n], answer.attentions)):
            np.testing.assert_allclose(ours, torch.cat(theirs).detach(), atol=1e-5)
    if family == "Bert":
        chosen = model.hidden_states(TEXTS[0], layers=[-1, 1])
        np.testing.assert_allclose(chosen, states[0][[2, 1]], atol=1e-5)
        np.testing.assert_allclose(model.attentions(TEXTS[0], layers=-1), weights[0][1], atol=1e-5)


@pytest.mark.slow
def test_what_was_warmed_up_is_not_compiled_again(tmp_path, monkeypatch):
    write_model(tmp_path, heads=("classify",), labels=("good", "bad"))
    model = bert_jax.load(tmp_path)
    monkeypatch.setattr(programs, "PROGRAMS", compiled := {})  # other tests may have used them
    model.warm_up([])
    assert not compiled
    model.warm_up([5], texts=2)
    assert len(compiled) == 3, "for 8, 12 and 16 tokens"
    model.classify("the cat sat")
    model.classify(["the cat sat", "the mat"])
    bert_jax.load(tmp_path).classify("the cat sat")
    assert len(compiled) == 3
    model.classify(["the cat sat"] * 3)
    assert len(compiled) == 4


@pytest.mark.slow
def test_a_model_keeps_the_programs_that_it_used_last(tmp_path, monkeypatch):
    write_model(tmp_path, heads=("classify",), labels=("good", "bad"))
    model, other = bert_jax.load(tmp_path), bert_jax.load(tmp_path)
    monkeypatch.setattr(jax_engine, "MOST_PROGRAMS", 2)
    monkeypatch.setattr(programs, "PROGRAMS", kept := WeakValueDictionary())
    short, longer, longest = ["the cat"], ["the cat sat"] * 2, ["the cat sat"] * 3
    for texts in (short, longer, short, longest):
        expected = model.predict_proba(texts)
    lengths = [
        next(shape[1] for name, shape in key[1:] if name == "input_ids") for key in model.engine.programs
    ]
    assert lengths == [8, 24], "of 8, 16 and 24, 16 was not used for longest"
    gc.collect()
    assert len(kept) == 2, "nobody has the third any more"
    np.testing.assert_array_equal(other.predict_proba(longest), expected)
    assert len(kept) == 2, "the two models share them"


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, BertJaxError])
def test_programs_that_nobody_waits_for_are_compiled_later(error, tmp_path, monkeypatch):
    """After Ctrl-C. After another error, other threads may still wait for them."""
    write_model(tmp_path, heads=("classify",), labels=("good", "bad"))
    model = bert_jax.load(tmp_path)
    monkeypatch.setattr(programs, "PROGRAMS", compiled := {})
    monkeypatch.setattr(programs, "load_program", lambda file: None)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(programs, "compiler_threads", lambda: busy)
        busy.submit(begun.wait, 60)
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(model.engine, "start", lambda *_: (_ for _ in ()).throw(error("stop")))
            model.classify("the cat sat")
        begun.set()
        assert [program.cancelled() for program in compiled.values()] == [error is KeyboardInterrupt]
        assert model.classify("the cat sat").label in ("good", "bad")
