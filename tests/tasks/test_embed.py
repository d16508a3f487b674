"""Training an embedder, from a table of texts to a directory that everybody opens."""

import json
import random
import shutil
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest

from bert_jax.command.export import export_checkpoint
from bert_jax.command.main import main
from bert_jax.command.train import start_training
from bert_jax.core.errors import BertJaxError
from bert_jax.finetuning import embedding_task
from bert_jax.finetuning.inspect_examples import decode_texts, list_groups
from bert_jax.hub import sentence_transformers
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.load import load
from bert_jax.predictions import training_origin
from bert_jax.tasks import load_config as load_task
from bert_jax.tasks.embed import read_group_splits
from bert_jax.text.wordpiece import WordPiece
from bert_jax.training.gradient import make_gradient
from bert_jax.training.log import read_metrics
from bert_jax.training.sharding import make_mesh
from bert_jax.training.state import StepConstants, abstract_state, get_shardings, init_random_params
from tests.support.embedding_tasks import EMBED_CONFIG, open_embed_task, random_pairs
from tests.support.gradients import assert_gradients_equal
from tests.support.made_up_language import ENTRIES
from tests.support.pretraining_runs import assert_resumes
from tests.support.tables import write_jsonl
from tests.support.texts import random_texts

pytestmark = pytest.mark.usefixtures("shared_steps")


def gradient_of(task, data, config, accumulate: int = 1):
    config = replace(config, mesh=replace(config.mesh, gradient_accumulation_steps=accumulate))
    mesh = make_mesh(config.mesh, jax.devices()[:1])
    params = jax.device_get(jax.jit(lambda: init_random_params(task, config))())
    shardings = get_shardings(abstract_state(task, config, mesh)).params
    (batch,) = data.batches(0, 1, 0, 1)
    gradient = make_gradient(task, config, mesh, shardings)
    gradients, measured = jax.jit(lambda *given: gradient(*given, StepConstants(0, 0, {})))(
        params, batch, jax.random.key(3)
    )
    return measured["losses"]["embedding_loss"].mean, gradients, batch


@pytest.mark.ci
def test_a_batch_in_parts_has_the_gradient_of_the_whole(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    given = ("data.batch_size=24", "data.batching=bucketed", "model.hidden_dropout_prob=0.1")
    task, data, config = open_embed_task(encoder_path, train, *given, "loss.learn_scale=true")
    whole, gradients, batch = gradient_of(task, data, config)
    parts, in_parts, _ = gradient_of(task, data, config, accumulate=12)
    assert batch["label_weights"].shape == (48,), "texts of a group are in rows of their own"
    assert float(parts) == pytest.approx(float(whole), rel=1e-6)
    assert_gradients_equal(in_parts, gradients, 1e-5)
    of_whole, of_parts = (float(tree["scale"]["growth"]) for tree in (gradients, in_parts))
    assert abs(of_whole) > 1e-3 and of_parts == pytest.approx(of_whole, rel=1e-5)


@pytest.mark.parametrize(
    ("scores", "loss", "learnt_from"),
    [
        ([0.5, 0.25], "auto", 2),
        ([0.5, 0.25], "margin_mse", 2),
        (0.25, "margin_mse", 1),
        (0.25, "auto", 0),
        ([0.5, 0.25], "triplet", 0),
    ],
)
def test_a_batch_has_the_scores_of_its_loss(scores, loss, learnt_from, encoder_path, tmp_path):
    rows = [row | {"worse": row["question"][:2], "score": scores} for row in random_pairs(12)]
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    task, data, _ = open_embed_task(
        encoder_path, train, f"loss.name={loss}", "data.batch_size=8", "data.batching=bucketed"
    )
    (batch,) = data.batches(0, 1, 0, 1)
    assert batch.get("scores", np.zeros((24, 0))).shape == (24, learnt_from)
    assert not task.learns_similarity and task.best_metric == "ndcg@10"


@pytest.mark.parametrize(
    ("score", "changes", "message"),
    [
        (None, ["data.batch_size=1"], "multiple_negatives compares.*batch_size=1"),
        (1, ["data.batch_size=1"], "cosent compares.*batch_size=1"),
        (1, [], "all scores are 1.*cosent"),
    ],
)
def test_groups_that_cannot_be_compared_are_refused(score, changes, message, encoder_path, tmp_path):
    rows = [row if score is None else row | {"score": score} for row in random_pairs(12)]
    with pytest.raises(BertJaxError, match=message):
        open_embed_task(encoder_path, write_jsonl(tmp_path / "t.jsonl", rows), *changes)


@pytest.mark.ci
def test_packed_and_bucketed_rows_have_the_same_loss_and_gradient(encoder_path, tmp_path):
    rows = [
        row | {"worse": text} for row, text in zip(random_pairs(60), random_texts(60, (2, 9), 5), strict=True)
    ]
    train = write_jsonl(tmp_path / "triplets.jsonl", rows)
    shapes, results = set(), []
    for layout in ("packed", "bucketed"):
        still = (
            "model.hidden_dropout_prob=0.0",
            "model.attention_probs_dropout_prob=0.0",
            "loss.sizes=(32,8)",
        )
        task, data, config = open_embed_task(
            encoder_path, train, "data.batch_size=24", f"data.batching={layout}", *still
        )
        loss, gradients, batch = gradient_of(task, data, config)
        shapes.add(batch["input_ids"].shape[0])
        results.append((float(loss), gradients))
    assert len(shapes) == 2, "or both are the same computation"
    (packed, its), (bucketed, theirs) = results
    assert packed == pytest.approx(bucketed, rel=1e-5)
    assert_gradients_equal(its, theirs, 1e-5)


def test_an_embedder_is_averaged_with_what_it_becomes_and_an_encoder_is_not(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(20))
    Embedder.load(encoder_path, pooling="mean").save(tmp_path / "embedder")
    for path, overrides, share in (
        (encoder_path, (), 0.0),
        (tmp_path / "embedder", (), -1),
        (tmp_path / "embedder", ("init_share=0",), 0.0),
    ):
        assert open_embed_task(path, train, *overrides)[2].init_share == share


def test_texts_are_read_as_far_as_the_model_does_up_to_256(encoder_path, tmp_path, monkeypatch, capsys):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(20))
    embedder = tmp_path / "embedder"
    Embedder.load(encoder_path, pooling="mean").save(embedder)
    settings = json.loads((embedder / "sentence_bert_config.json").read_text())
    (embedder / "sentence_bert_config.json").write_text(json.dumps(settings | {"max_seq_length": 12}))
    positions = load(encoder_path).config.max_position_embeddings

    def length(path, *overrides) -> int:
        task, _, config = open_embed_task(path, train, "data.max_length=0", *overrides)
        assert task.embedder.max_length == config.data.max_length
        return config.data.max_length

    assert (length(encoder_path), length(embedder)) == (positions, 12)
    assert (
        f"texts are read up to 12 tokens; {embedder} reads 12, and --config.data" in capsys.readouterr().err
    )
    monkeypatch.setattr(embedding_task, "MAX_LENGTH", 10)
    assert length(encoder_path) == 10
    assert length(encoder_path, "data.max_length=14") == 14


@pytest.mark.slow
def test_a_run_learns_and_its_model_opens_everywhere(encoder_path, tmp_path, capsys):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(300))
    overrides = [
        f"init={encoder_path}", f"data.train={train}", "data.max_length=24", "epochs=12",
        "optimizer.learning_rate=1e-3", "prompts.query=w1 ", "data.columns.texts=question,answer",
        "model.pooling=weighted_mean", "data.batch_size=30", "model.hidden_dropout_prob=0.0", "model.dimensions=24",
    ]  # fmt: skip
    start_training(EMBED_CONFIG, overrides, str(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    validation = [line for line in lines if line["kind"] == "validation"]
    assert max(line["ndcg@10"] for line in validation) > validation[0]["ndcg@10"] + 0.08
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    assert losses[-1] < 0.3 * losses[0]
    card = (tmp_path / "run/model/README.md").read_text()
    best = max(line["ndcg@10"] for line in validation)
    assert (
        f"| ndcg@10 | {best:.4f} |" in card and "270 groups of 2 texts" in card and "first 24 tokens" in card
    )
    assert main(["check", str(tmp_path / "run/model")]) == 0
    assert training_origin.read_origin(tmp_path / "run/model").columns.text == "question"
    ours = load(tmp_path / "run/model")
    assert ours.embedder.prompts == {"query": "w1 ", "document": ""}
    assert (ours.embedder.pooling, ours.embedder.max_length) == ("weighted_mean", 24)
    some = random_texts(20, (1, 20), 9)
    vectors = ours.encode(some)
    assert vectors.shape == (20, 24)
    export_checkpoint(tmp_path / "run", tmp_path / "exported")
    exported = load(tmp_path / "exported")
    assert exported.embedder == ours.embedder and np.abs(exported.encode(some) - vectors).max() > 0, (
        "of another step"
    )
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "run/model"), device="cpu")
    assert np.abs(theirs.encode(some) - vectors).max() < 1e-5
    queries = theirs.encode(some, prompt_name="query")
    assert np.abs(queries - ours.encode(some, prompt_name="query")).max() < 1e-5
    assert np.abs(queries - vectors).max() > 1e-3, "or the prompt is not used"


@pytest.mark.ci
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(60))
    overrides = [
        f"init={encoder_path}", f"data.train={train}", "data.max_length=24", "steps=6",
        "data.batch_size=16", "mesh.gradient_accumulation_steps=2", "model.hidden_dropout_prob=0.1",
        "checkpoints.every=3", "checkpoints.keep=9", "log.evaluate_every=3", "loss.learn_scale=True",
    ]  # fmt: skip
    run = partial(start_training, EMBED_CONFIG, overrides)
    run(str(tmp_path / "whole"))
    assert_resumes(lambda again: run(str(again)), tmp_path / "whole")
    lines = read_metrics(tmp_path / "whole/metrics.jsonl")
    scales = [line["scale"] for line in lines if line["kind"] == "validation"]
    assert len(set(scales)) == 3 and scales == pytest.approx([20] * 3, rel=0.1)


@pytest.mark.long
def test_what_harms_an_embedder_is_left_out_also_by_a_run_that_was_cut_off(encoder_path, tmp_path, capsys):
    """It is trained on scores by chance, and judged by the similarities that it computed before."""
    embedder, pairs = Embedder.load(encoder_path, pooling="mean"), random_pairs(100)
    embedder.save(tmp_path / "embedder")
    vectors = [embedder.encode([row[name] for row in pairs]) for name in ("question", "answer")]
    known = [row | {"score": float(a @ b)} for row, a, b in zip(pairs, *vectors, strict=True)]
    by_chance = [row | {"score": random.Random(n).random()} for n, row in enumerate(random_pairs(60, seed=5))]
    overrides = [
        f"init={tmp_path / 'embedder'}", f"data.train={write_jsonl(tmp_path / 'train.jsonl', by_chance)}",
        f"data.validation={write_jsonl(tmp_path / 'known.jsonl', known)}", "data.max_length=24", "steps=6",
        "data.batch_size=20", "checkpoints.every=3", "checkpoints.keep=9", "log.evaluate_every=3",
        "optimizer.learning_rate=3e-2",
    ]  # fmt: skip
    run = partial(start_training, EMBED_CONFIG, overrides)
    run(str(tmp_path / "whole"))
    assert "averaged with the model before training (init_share=1)" in capsys.readouterr().err
    assert np.array_equal(load(tmp_path / "whole/model").encode(["w1 w2"]), embedder.encode(["w1 w2"]))
    assert_resumes(lambda again: run(str(again)), tmp_path / "whole")


@pytest.mark.ci
def test_a_batch_has_what_its_teacher_gives(encoder_path, tmp_path):
    train = write_jsonl(tmp_path / "pairs.jsonl", random_pairs(20))
    for loss, count in (("guided", 2), ("teacher_vectors", 1)):
        given = (
            f"loss.name={loss}",
            f"loss.teacher={encoder_path}",
            "data.batch_size=6",
            "data.batching=bucketed",
        )
        task, data, _ = open_embed_task(encoder_path, train, *given)
        (batch,) = data.batches(0, 1, 0, 1)
        taught = task.gather_groups({"vectors": np.zeros((12, 1))}, batch)[1]["teacher"]
        assert taught.shape == (6, count, 32)
        for group, vectors in zip(list_groups(data, 0, task.texts_per_group), taught, strict=True):
            words = [" ".join(text.split()[1:-1]) for text in decode_texts(group, data.tokenizer)]
            expected = Embedder.load(encoder_path, pooling="mean").encode(words[:count])
            np.testing.assert_allclose(expected, vectors, atol=1e-6)


def test_each_step_is_of_one_of_several_files(encoder_path, tmp_path, capsys):
    names = [
        write_jsonl(tmp_path / f"{n}.jsonl", random_pairs(count, seed=n)) for n, count in enumerate((30, 60))
    ]
    of_file = [{row["question"] for row in random_pairs(count, seed=n)} for n, count in enumerate((30, 60))]

    def steps_of_second(*overrides) -> int:
        task, data, config = open_embed_task(
            encoder_path, ",".join(names), "data.batch_size=5", "steps=40", *overrides
        )
        seen = []
        for step in range(40):
            groups = list_groups(data, step, task.texts_per_group)
            anchors = {" ".join(decode_texts(group, data.tokenizer)[0].split()[1:-1]) for group in groups}
            seen.append([anchors <= known for known in of_file])
        assert all(sum(which) == 1 for which in seen)
        return sum(second for _, second in seen)

    assert abs(steps_of_second() - 40 * 2 / 3) <= 1
    assert steps_of_second("data.mixture_weights=3,1") == 10
    with pytest.raises(BertJaxError, match="data.mixture_weights.*data.train"):
        steps_of_second("data.mixture_weights=3")
    scored = write_jsonl(
        tmp_path / "scored.jsonl", [row | {"score": n} for n, row in enumerate(random_pairs(9))]
    )
    with pytest.raises(BertJaxError, match="scored.jsonl"):
        open_embed_task(encoder_path, f"{names[0]},{scored}")


def test_a_document_that_is_held_out_stands_in_no_training_file(tmp_path):
    names = [
        write_jsonl(tmp_path / f"{name}.jsonl", [{"q": f"{name}{n}", "p": f"w{n}"} for n in range(30)])
        for name in "ab"
    ]

    def parts(*names):
        return read_group_splits(load_task(EMBED_CONFIG, ["init=model", f"data.train={','.join(names)}"])[1])

    sets, validation = parts(*names)
    held = {group.texts[1] for group in validation}
    assert (len(held), len(validation)) == (3, 6) and [len(groups) for groups in sets] == [27, 27]
    assert not any(group.texts[1] in held for groups in sets for group in groups)
    few = write_jsonl(tmp_path / "few.jsonl", [{"q": "c", "p": min(held)}])
    with pytest.raises(BertJaxError, match="few.jsonl"):
        parts(*names, few)


def test_a_model_with_prompts_is_trained_with_them(encoder_path, tmp_path):
    begun, train = (
        shutil.copytree(encoder_path, tmp_path / "init"),
        write_jsonl(tmp_path / "pairs.jsonl", random_pairs(12)),
    )
    prompts = {"query": "w1 ", "passage": "w2 "}
    embedder = sentence_transformers.EmbedderSettings(prompts=prompts, default_prompt="passage")
    sentence_transformers.write_embedder(begun, embedder, 32)

    def first_words(*overrides):
        task, data, _ = open_embed_task(begun, train, "data.batch_size=4", *overrides)
        shown = [decode_texts(group, data.tokenizer) for group in list_groups(data, 0, task.texts_per_group)]
        return task.embedder, [{text.split()[1] for text in column} for column in zip(*shown, strict=True)]

    ours, words = first_words()
    assert words == [{"w1"}, {"w2"}] and (ours.prompts, ours.default_prompt) == (prompts, "passage")
    ours, words = first_words("prompts.query=w3 ")
    assert words[0] == {"w3"} and "w2" not in words[1] and ours.default_prompt is None


def test_a_model_that_lower_cases_is_trained_so(encoder_path, tmp_path):
    begun, rows = shutil.copytree(encoder_path, tmp_path / "init"), random_pairs(12)
    WordPiece.from_vocabulary(ENTRIES, do_lower_case=False).save(begun)
    sentence_transformers.write_embedder(begun, sentence_transformers.EmbedderSettings(lower_case=True), 32)
    capitals = [{name: text.upper() for name, text in row.items()} for row in rows]

    def learnt(rows) -> list[list[int]]:
        _, data, _ = open_embed_task(begun, write_jsonl(tmp_path / "pairs.jsonl", rows), "data.batch_size=4")
        return [window.encoding.input_ids for window in data.train]

    assert learnt(capitals) == learnt(rows)


@pytest.mark.parametrize(
    ("loss", "scale", "margin"), [("cosent", "20", ""), ("contrastive", "", "0.5"), ("cosine", "", "")]
)
def test_a_card_has_the_settings_that_the_loss_reads(loss, scale, margin, encoder_path, tmp_path):
    rows = [row | {"score": n % 2} for n, row in enumerate(random_pairs(20))]
    task, _, _ = open_embed_task(
        encoder_path, write_jsonl(tmp_path / "pairs.jsonl", rows), f"loss.name={loss}"
    )
    assert (task.model_card.recipe["scale of cosines"], task.model_card.recipe["margin"]) == (scale, margin)
