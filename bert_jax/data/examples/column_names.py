"""The usual names of columns, by what a column holds. All verbs read them here, so that a name means the same to each.

A column that the user names comes first. Case and outer spaces of names do not matter. The names that GLUE's own files
use are in glue.py.
"""

import re

# Texts to predict from, and their labels: `predict`, `evaluate`, `train` with classify, tag and answer.
TEXTS = ("text", "sentence", "review", "question")  # a text; also `embed`, and `search` for a file of queries
SECOND_TEXTS = (  # a second text beside one of TEXTS
    "pair", "text_pair", "text2", "text_2", "text_b", "sentence2", "sentence_2", "sentence_b", "question2",
    "hypothesis",
)  # fmt: skip
MEMORY_PAIR = ("text1", "text2")  # of `bert_jax.finetune`, whose texts are in memory
PAIRS = (  # two columns that are a pair of texts beyond doubt, so that no line says so
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"),
    MEMORY_PAIR, ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("query", "document"),
    ("query", "passage"),
)  # fmt: skip
WORDS = ("tokens", "words")  # a list of words
TAGS = ("tags", "ner_tags", "ner", "labels")  # the tags of the words
QUESTION, CONTEXT = "question", "context"  # a question, and the passage that holds the answer, as in SQuAD
ANSWERS = ("answers", "answer")  # the answers in the passage
ANSWER_START, IS_IMPOSSIBLE = "answer_start", "is_impossible"  # beside an answer that is only a text
ANSWER_KEYS = (TEXTS[0], ANSWER_START)  # the parts of other answers
ID = "id"  # the id that `predict` copies to its output

# Labels and scores. Labels of texts stand before scores if a table has both, scores of groups before labels.
LABELS = ("label", "labels")
SCORES = ("score", "scores")
SIMILARITIES = ("similarity_score",)
TEXT_LABELS = (*LABELS, *SCORES, *SIMILARITIES)  # the verbs above
GROUP_SCORES = (*SCORES, *LABELS, *SIMILARITIES)  # the verbs below
NOT_PREDICTED_FROM = {*TEXT_LABELS, *TAGS, *ANSWERS}  # labels of any kind, which `predict` does not read

# Texts that belong together: `train` with embed and rerank, `rerank`, `mine`, `evaluate` of embedders and of
# cross-encoders, and `predict` with a cross-encoder. `mine` and `pairs` write the constants.
ANCHOR, POSITIVE, NEGATIVE = "anchor", "positive", "negative"
QUERIES = ("query", QUESTION, ANCHOR)  # the first text of a row
PASSAGES = (  # the second text of a row, or a list of them
    "document", "documents", "passage", "passages", "paragraph", "paragraphs", POSITIVE, "positives", *ANSWERS,
)  # fmt: skip
NEGATIVES = re.compile(rf"(.*[ _-])?{NEGATIVE}s?([ _-]?\d+)?")  # the last texts of a row

# Documents: `index` and `pairs`, `mine` for its --corpus, and folders in BEIR's layout.
TITLES = ("title",)  # the title of a document; also the group of a question in a table for answer
DOCUMENT_TEXTS = ("text", "contents", "content", "body", "passage", "document")
DOCUMENT_IDS = ("_id", ID, "doc_id", "docid")
# The document that a row of texts which belong together was taken from, unless the column holds one of these texts.
GROUPS = ("document", *TITLES)
# Beside a query, all of these are second texts. `document` is a group beside a query and another of them.
PASSAGES_OF_QUERIES = {*PASSAGES, *DOCUMENT_TEXTS, CONTEXT}
NOT_TEXTS = re.compile(r"(.*[ _-])?(id|idx|uuid|split|docid)")  # columns without text to learn from

# BEIR's layout, in which no column has another name.
BEIR_ID, BEIR_TITLE, BEIR_TEXT = DOCUMENT_IDS[0], TITLES[0], DOCUMENT_TEXTS[0]
BEIR_JUDGED, BEIR_GRADE = ("query-id", "corpus-id"), SCORES[0]
