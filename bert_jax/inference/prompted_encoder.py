"""What embedders and sparse embedders share: prompts, and how long the texts are that they read."""

from bert_jax.inference.encoder import Encoder
from bert_jax.inference.text_vectors import embedder_encoding_options, find_prompt_name


class PromptedEncoder(Encoder):
    """An encoder that turns texts into vectors, with a prompt before each text."""

    def _choose_prompt(self, name: str | None, prompt: str | None, usual: tuple[str, ...]) -> str | None:
        return find_prompt_name(self.text_settings, usual) if name is None and prompt is None else name

    @property
    def prompts(self) -> dict[str, str]:
        return dict(self.text_settings.prompts)

    @property
    def max_seq_length(self) -> int:
        """The most tokens of a text that the model reads."""
        return embedder_encoding_options(self).max_length

    def get_embedding_dimension(self) -> int:
        return self.layout.vector_size

    get_sentence_embedding_dimension = get_embedding_dimension
