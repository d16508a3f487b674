"""Heads of bert_jax that transformers does not have, for any encoder that it does have.

This file lies in a model's directory, so that transformers opens the model with trust_remote_code=True:

    AutoModelForSequenceClassification.from_pretrained(DIR, trust_remote_code=True)

It computes the same logits as `bert_jax.load(DIR)`. It needs only torch and transformers.
"""

import torch
import transformers
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import QuestionAnsweringModelOutput, SequenceClassifierOutput

SMALL = 1e-12


class EncoderWithHead(PreTrainedModel):
    """The encoder of the config, under the name that its family gives it, and a linear head."""

    head_name: str  # prefix of the names of the head's tensors
    vectors = 1  # as many vectors as the head reads at once

    def __init__(self, config):
        super().__init__(config)
        self.loss_type = "ForSequenceClassification"
        encoder = AutoModel.from_config(config)
        if getattr(encoder, "pooler", None) is not None:
            encoder.pooler = None  # no head here reads it
        self.base_model_prefix = encoder.base_model_prefix
        self.add_module(self.base_model_prefix, encoder)
        self.add_module(self.head_name, torch.nn.Linear(self.vectors * config.hidden_size, config.num_labels))
        self.post_init()

    def states(self, input_ids, attention_mask, **inputs):
        encoder = getattr(self, self.base_model_prefix)
        return encoder(input_ids=input_ids, attention_mask=attention_mask, **inputs)[0]

    def head(self, states):
        return getattr(self, self.head_name)(states)


class TextClassifier(EncoderWithHead):
    """Reads the direction of a text's vector."""

    def forward(self, input_ids, attention_mask=None, labels=None, return_dict=True, **inputs):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        logits = self.head(self.read(input_ids, mask, **inputs))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        output = SequenceClassifierOutput(loss=loss, logits=logits)
        return output if return_dict else output.to_tuple()

    def read(self, input_ids, mask, **inputs):
        return self.directions(self.states(input_ids, mask, **inputs), mask)

    def directions(self, states, mask):
        """The vectors of texts, scaled to a mean square of 1."""
        vectors = self.pool(states, mask)
        return vectors * torch.rsqrt(vectors.square().mean(-1, keepdim=True) + SMALL)

    def pool(self, states, mask):
        return states[:, 0]


class MeanPooling:
    def pool(self, states, mask):
        real = mask[..., None].to(states.dtype)
        return (states * real).sum(1) / real.sum(1).clamp(min=1)


class PairClassifier(TextClassifier):
    """Encodes the two texts of a pair separately, and reads the squared and the signed differences of their vectors.

    The pair arrives as the tokenizer joins it, `tokenizer(first, second)`, and is divided at the separator.
    """

    vectors = 2

    def read(self, input_ids, mask, **inputs):
        texts = [text for ids in map(torch.masked_select, input_ids, mask > 0) for text in divide_pair(ids)]
        padding = self.config.pad_token_id or 0
        ids = pad_sequence(texts, batch_first=True, padding_value=padding)
        mask = pad_sequence([torch.ones_like(text) for text in texts], batch_first=True)
        vectors = self.directions(self.states(ids, mask), mask)
        difference = vectors[::2] - vectors[1::2]
        return torch.cat([difference.square(), difference], -1)


def divide_pair(ids):
    """Return each text of a pair with its own [CLS] and [SEP]; two separators may stand between the texts."""
    begin, separator = ids[:1], ids[-1]
    end = int((ids == separator).nonzero()[0]) + 1
    second = ids[end:]
    if len(second) > 1 and second[0] == separator:
        second = second[1:]
    if not len(second):
        raise ValueError("this model takes pairs of texts, tokenizer(first, second), but got a single text")
    return ids[:end], torch.cat([begin, second])


class ForMeanDirectionClassification(MeanPooling, TextClassifier):
    head_name = "mean_direction_classifier"


class ForFirstTokenDirectionClassification(TextClassifier):
    head_name = "first_token_direction_classifier"


class ForMeanComparison(MeanPooling, PairClassifier):
    head_name = "mean_comparison"


class ForFirstTokenComparison(PairClassifier):
    head_name = "first_token_comparison"


class ForQuestionAnswering(EncoderWithHead):
    """For families whose question-answering class transformers lacks; the labels are the answer's start and end."""

    head_name = "qa_outputs"

    def forward(self, input_ids, attention_mask=None, return_dict=True, **inputs):
        start, end = self.head(self.states(input_ids, attention_mask, **inputs)).unbind(-1)
        output = QuestionAnsweringModelOutput(start_logits=start, end_logits=end)
        return output if return_dict else output.to_tuple()


# transformers registers a class for a task that the family lacks, and wants it to name the family's config.


class NomicBertForQuestionAnswering(ForQuestionAnswering):
    config_class = getattr(transformers, "NomicBertConfig", None)


class EuroBertForQuestionAnswering(ForQuestionAnswering):
    config_class = getattr(transformers, "EuroBertConfig", None)
