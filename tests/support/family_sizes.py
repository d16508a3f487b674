"""Small configurations of each family."""

DISTILBERT_FIELDS = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "vocab_size": 61}
FAMILY_SIZES = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64},
    "electra": {
        "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64,
    },
    "albert": {
        "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64, "classifier_dropout_prob": 0,
    },
    "modernbert": {
        "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 64, "local_attention": 4,
    },
    "nomic_bert": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
        "max_position_embeddings": 64,
    },
    "mpnet": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 66,
    },
    "deberta-v2": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 64, "position_biased_input": False, "relative_attention": True,
        "pos_att_type": "p2c|c2p", "position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 3,
    },
    "deberta": {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
        "max_position_embeddings": 64, "position_biased_input": False, "relative_attention": True,
        "pos_att_type": "c2p|p2c",
    },
}  # fmt: skip
