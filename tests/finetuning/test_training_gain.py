"""What training the encoder is expected to gain over a probe."""

from types import SimpleNamespace

import pytest

from bert_jax.finetuning.choose_method import MIN_GAIN, Gain, methods_to_try, pick_best, prior_gain
from bert_jax.predictions.kinds.classes import Classes
from bert_jax.predictions.kinds.tags import Tags


def prior(accuracy: float, matthews: float, examples: int, classes: int, method="contrastive") -> Gain:
    scores = {"accuracy": accuracy, "matthews": matthews}
    kind = Classes(tuple(map(str, range(classes))))
    return prior_gain(method, SimpleNamespace(score_sums=SimpleNamespace(scores=scores), kind=kind), examples)


@pytest.mark.parametrize(
    ("probe", "tried"),
    [
        ((0.86, 0.858, 770, 77), "finetune"),  # 77 intents: contrastive training lost 0.02
        ((0.739, 0.733, 384, 48), "finetune"),  # 48 articles: lost 0.02
        ((0.921, 0.92, 1200, 150), "finetune"),  # 150 articles: lost 0.03, fine-tuning gained 0.02
        ((0.959, 0.958, 400, 50), None),  # 50 articles: fine-tuning gained 0.002
        ((0.14, 0.11, 224, 28), "contrastive"),  # 28 emotions: gained 0.10, fine-tuning 0.04
        ((0.245, 0.16, 80, 10), "contrastive"),  # ten emotions: gained 0.11
        ((0.665, 0.33, 32, 2), "contrastive"),  # SST-2: gained 0.04, fine-tuning 0.02
        ((0.764, 0.53, 512, 2), "contrastive"),  # gained 0.045
        ((1.0, 1.0, 500, 2), None),
    ],
)
def test_the_most_promising_method_is_tried_unless_it_cannot_pay(probe, tried):
    priors = {method: prior(*probe, method=method) for method in ("contrastive", "finetune")}
    assert methods_to_try(priors, only_best=True) == [tried] * bool(tried)


def test_a_small_lead_out_of_fold_does_not_outweigh_what_is_known():
    """128 examples of SST-2: the probe had 0.742 out of fold and contrast 0.719, but 0.673 and 0.775 on 872 others."""
    known = prior(0.742, 0.48, 128, 2)
    assert known.given(-0.023, 0.04).is_worthwhile
    assert not known.given(-0.023, 0.01).is_worthwhile
    assert not known.given(-0.10, 0.04).is_worthwhile


def test_what_is_measured_precisely_replaces_what_was_expected():
    assert Gain(0.1, 0.05).given(-0.02, 1e-4).mean == pytest.approx(-0.02, abs=1e-5)
    assert Gain(0.1, 0.05).given(-0.02, 1e4).mean == pytest.approx(0.1)
    assert Gain(0.1, 0.03).given(0.1, 0.03).spread == pytest.approx(0.03 / 2**0.5)


def test_other_kinds_have_one_prior():
    scores = SimpleNamespace(scores={"f1": 0.5, "accuracy": 0.9})
    gain = prior_gain("finetune", SimpleNamespace(score_sums=scores, kind=Tags(("O", "B-X"))), 9)
    assert (gain.mean, gain.spread) == (0.125, 0.05)


def test_the_largest_gain_wins_and_the_probe_where_none_is_worth_it():
    worth, more, less = Gain(2 * MIN_GAIN, 0.1), Gain(3 * MIN_GAIN, 0.1), Gain(MIN_GAIN, 0.1)
    assert pick_best({"linear_probe": None, "contrastive": worth, "finetune": more}) == "finetune"
    assert pick_best({"linear_probe": None, "contrastive": worth, "finetune": worth}) == "contrastive"
    assert pick_best({"linear_probe": None, "contrastive": less}) == "linear_probe"
    assert pick_best({"linear_probe": None}) == "linear_probe"
    assert pick_best({"contrastive": None}) == "contrastive", "the only one that was asked for"
