"""The names that other libraries give to config keys, and hints for misspelt keys."""

import difflib
from collections.abc import Sequence

from bert_jax.core.errors import suggest_name

MOST = 3  # keys that a hint names
CLOSE, VERY_CLOSE = 0.75, 0.85  # similarity of two spellings, from 0 to 1

# {our keys: the names that other libraries use}. If several keys are listed, the first one that the task has is meant.
# A flag stands for a setting that has no key; KEY=VALUE, for a setting that is one value of a key.
MEANINGS = {
    "init": "model_name_or_path model_name model_path model_dir pretrained_model checkpoint "
    "base_model encoder bert_model init_checkpoint from_pretrained",
    "--workdir": "output_dir output_path output logging_dir save_dir checkpoint_dir result_dir resume "
    "resume_from_checkpoint overwrite_output_dir workdir work_dir",
    "seed": "random_seed random_state data_seed",
    "num_seeds": "runs num_runs n_runs trials",
    "sweep": "grid search_space grid_search hyperparameters",
    "epochs steps": "epochs epoch num_epochs num_train_epochs n_epochs max_epochs train_epochs nb_epochs",
    "steps": "max_steps num_steps num_train_steps train_steps total_steps n_steps training_steps "
    "iterations num_iterations",
    "patience": "early_stopping early_stopping_patience n_iter_no_change",
    "report": "write_report save_report",
    "data.train data.corpora": "train train_file train_files train_data train_data_file train_dataset "
    "training_data dataset dataset_name data_path data_dir data_file data_files input_file train_path "
    "corpus corpora",
    "data.validation": "validation_file validation_data validation_dataset valid_file valid dev dev_file "
    "dev_data val_data val_file eval_file eval_data eval_dataset test_file test_data",
    "data.validation_ratio": "validation_split validation_fraction validation_size val_split test_size "
    "eval_split valid_fraction dev_size",
    "data.folds": "cv n_splits num_folds n_folds k_folds cross_validation",
    "data.batch_size": "train_batch_size bs global_batch_size per_device_train_batch_size "
    "per_gpu_train_batch_size per_device_batch_size mini_batch_size batchsize",
    "data.max_length data.lengths": "max_length length lengths max_len maxlen max_seq_length "
    "max_seq_len max_sequence_length sequence_length seq_length seq_len block_size model_max_length "
    "truncation_length",
    "data.overlap": "doc_stride stride window_overlap",
    "data.long_texts": "truncation truncate",
    "data.max_examples": "max_train_samples max_samples max_train_examples num_train_examples limit",
    "data.batching": "packing padding pad_to_max_length group_by_length",
    "data.columns.text data.columns.texts": "text_column text_col text_column_name sentence_column "
    "content_column question_column query_column anchor_column",
    "data.columns.label data.columns.score": "label_column label_col label_column_name target_column "
    "score_column tags_column answer_column",
    "data.columns.text_pair data.columns.texts": "text_pair_column pair_column text2_column "
    "sentence2_column context_column passage_column document_column positive_column",
    "data.num_random_negatives": "num_negatives negatives n_negatives negatives_per_query num_hard_negatives neg_ratio",
    "data.max_documents_per_query": "max_documents docs_per_query",
    "data.mlm_probability": "mlm_prob masked_lm_prob masking_rate mask_rate mask_probability "
    "masking_ratio mask_ratio",
    "data.max_predictions_per_seq": "max_predictions",
    "data.dupe_factor": "duplication_factor",
    "data.mask_unit": "do_whole_word_mask whole_word_mask whole_word_masking wwm",
    "problem_type": "task_type problem",
    "labels": "num_labels label_list label_names classes num_classes class_names id2label label2id",
    "class_weights": "class_weight balanced balance weighted_loss",
    "label_smoothing": "label_smoothing_factor smoothing label_smooth",
    "loss.name": "loss_name loss_function loss_fn criterion objective loss_type",
    "loss.scale": "temperature temp similarity_scale",
    "loss.sizes": "matryoshka_dims matryoshka matryoshka_dimensions truncate_dim",
    "loss.teacher": "guide guide_model teacher_model teacher_name_or_path",
    "prompts.query": "query_prompt query_prefix query_instruction",
    "prompts.document": "document_prompt passage_prompt passage_prefix document_prefix corpus_prompt",
    "optimizer.learning_rate": "lr learningrate peak_lr peak_learning_rate max_lr base_lr "
    "init_lr step_size",
    "optimizer.name": "optim optimizer_name optimizer_type optimizer_class",
    "optimizer.schedule": "lr_scheduler lr_scheduler_type scheduler scheduler_type lr_schedule decay",
    "optimizer.warmup_steps": "num_warmup_steps lr_warmup_steps n_warmup_steps warmup_ratio warmup_proportion "
    "warmup_fraction",
    "optimizer.weight_decay": "weight_decay_rate wd l2",
    "optimizer.beta1": "adam_beta1 beta_1 momentum",
    "optimizer.beta2": "adam_beta2 beta_2",
    "optimizer.epsilon": "adam_epsilon eps adam_eps epsilon",
    "optimizer.max_grad_norm": "gradient_clip_val grad_clip clip_norm gradient_clipping "
    "max_gradient_norm clip_grad_norm",
    "optimizer.layer_decay": "layerwise_lr_decay llrd layer_lr_decay lr_layer_decay layer_wise_lr_decay",
    "optimizer.frozen_layers": "freeze freeze_layers num_frozen_layers freeze_encoder "
    "freeze_embeddings frozen",
    "mesh.gradient_accumulation_steps": "accumulate_grad_batches gradient_accumulation "
    "grad_accum accumulation_steps mini_batches",
    "mesh.data": "data_parallel dp num_gpus n_gpu gpus devices num_devices",
    "mesh.fsdp": "fully_sharded zero",
    "mesh.tensor": "tensor_parallel tensor_parallel_size tp model_parallel",
    "checkpoints.every": "save_steps save_every checkpoint_every save_interval checkpoint_interval "
    "save_checkpoints_steps save_strategy",
    "checkpoints.keep": "save_total_limit keep_checkpoint_max max_checkpoints max_to_keep",
    "checkpoints.best_metric": "metric_for_best_model load_best_model_at_end metric monitor "
    "greater_is_better",
    "log.every": "logging_steps log_every log_steps log_every_n_steps log_interval print_every",
    "log.evaluate_every": "eval_steps eval_every evaluation_steps evaluation_strategy eval_strategy "
    "eval_interval validate_every val_check_interval",
    "log.max_eval_batches": "max_eval_samples eval_batches max_eval_steps limit_val_batches",
    "log.profile": "profiler trace",
    "model.dropout": "dropout dropout_rate hidden_dropout hidden_dropout_prob dropout_prob drop",
    "model.attention_dropout": "attention_probs_dropout_prob attn_dropout attention_dropout_prob attn_pdrop",
    "model.head_dropout": "classifier_dropout cls_dropout classifier_dropout_prob",
    "model.dtype=bfloat16": "fp16 bf16 half mixed_precision amp float16 bfloat16",
    "model.dtype": "precision torch_dtype compute_dtype dtype",
    "model.remat=full": "gradient_checkpointing checkpoint_activations activation_checkpointing "
    "use_checkpointing",
    "model.attention": "attn_implementation flash_attention use_flash_attention attention_type",
    "model.pooling": "pooling_mode pooling_type pooling_strategy pooler_type",
    "model.normalize": "normalize_embeddings normalise",
    "model.dimensions": "embedding_dim embedding_dimension output_dim embed_dim",
    "model.pair_encoding": "cross_encoder bi_encoder siamese",
    "model.layers": "num_hidden_layers num_layers n_layers n_layer depth",
    "model.hidden_size": "hidden_dim d_model n_embd dim hidden",
    "model.heads": "num_attention_heads num_heads n_heads n_head attention_heads",
    "model.feed_forward": "intermediate_size ffn_dim d_ff hidden_dim_ff",
    "model.max_positions": "max_position_embeddings n_positions max_positions",
    "model.segment_types": "type_vocab_size token_type_vocab_size",
    "model.vocab_size": "vocabulary_size vocab n_vocab",
    "model.activation": "hidden_act activation_function",
    "model.norm_epsilon": "layer_norm_eps layer_norm_epsilon norm_eps",
    "model.init_stddev": "initializer_range init_std",
    "model.tied_decoder": "tie_word_embeddings tie_weights",
}  # fmt: skip
SYNONYMS = {name: keys.split() for keys, names in MEANINGS.items() for name in names.split()}


def hint_for(key: str, known: Sequence[str], siblings: Sequence[str]) -> str:
    """Return a hint for an unknown key: the `known` keys that it probably means, else its `siblings`.

    In this order: a key to which another library gives this name; a key of the same section that has the name as a
    word; a key with nearly the same spelling; a key of this name in another section; one that has the name as a word; a
    key whose last part is spelt nearly so; a key all of whose words occur in the name.

    >>> hint_for("lr", ["data.mlm_probability", "optimizer.learning_rate"], [])
    'did you mean "optimizer.learning_rate"?'
    """
    section, _, name = key.rpartition(".")
    name = name.replace("-", "_").lower()
    last = {known_key: known_key.rpartition(".")[2] for known_key in known}
    close_names = difflib.get_close_matches(name[:80], last.values(), n=1, cutoff=CLOSE)
    having = [known_key for known_key in known if name in last[known_key].split("_")]
    ways = (
        proposals(name, known),
        [known_key for known_key in having if known_key.rpartition(".")[0] == section],
        difflib.get_close_matches(key[:80], known, n=1, cutoff=VERY_CLOSE),
        [known_key for known_key in known if last[known_key] == name],
        having,
        [known_key for known_key in known if last[known_key] in close_names],
        [known_key for known_key in known if set(last[known_key].split("_")) <= set(name.split("_"))],
    )
    keys = next(filter(None, ways), [])
    if not keys:
        return suggest_name(name, siblings)
    return "did you mean " + " or ".join(f'"{known_key}"' for known_key in keys[:MOST]) + "?"


def proposals(name: str, known: Sequence[str]) -> list[str]:
    """Return the known key, or the flag, to which another library gives this name; [] if there is none."""
    ways = SYNONYMS.get(name, ())
    return [way for way in ways if way.partition("=")[0] in known or way.startswith("--")][:1]
