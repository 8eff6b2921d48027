"""Shapes of dense transformers with grouped-query attention, and the parameters and FLOPs that follow.

Llama, Mistral, Qwen2 and Qwen3 differ here only in biases and norms. The module only counts, without arrays
or models. FLOPs are those of arXiv:2001.08361, section 2.1.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The size of a model as in its ``config.json``, under Hugging Face's names except for the last two."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    head_dim: int | None = None
    """None means ``hidden_size / num_attention_heads``."""
    tied: bool = False
    """True if the output layer is the embedding (``tie_word_embeddings``)."""
    qkv_bias: bool = False
    """True if queries, keys and values have biases, as in Qwen2."""
    qk_norm: bool = False
    """True if queries and keys are normalized, as in Qwen3."""

    @property
    def query_size(self) -> int:
        """Features of a token's queries, over all heads."""
        return self.num_attention_heads * self._head_dim

    @property
    def key_value_size(self) -> int:
        """Features of a token's keys, over all heads; its values have as many."""
        return self.num_key_value_heads * self._head_dim

    @property
    def _head_dim(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: four attention projections, three of the MLP, two norms, biases, norms of
        heads.
        """
        hidden, query, key_value = self.hidden_size, self.query_size, self.key_value_size
        projections = hidden * (2 * query + 2 * key_value + 3 * self.intermediate_size)
        extras = 2 * hidden + (query + 2 * key_value) * self.qkv_bias + 2 * self._head_dim * self.qk_norm
        return projections + extras

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding; the output layer has as many."""
        return self.vocab_size * self.hidden_size

    @property
    def head_parameters(self) -> int:
        """Parameters of the output layer beyond those of the embedding: 0 if they are tied."""
        return 0 if self.tied else self.embedding_parameters

    @property
    def parameters(self) -> int:
        """All parameters, including the last norm."""
        layers = self.num_hidden_layers * self.layer_parameters
        return self.embedding_parameters + layers + self.hidden_size + self.head_parameters

    @property
    def matmul_parameters(self) -> int:
        """Parameters by which every token is multiplied: all except an embedding that is only looked up."""
        return self.parameters - self.head_parameters

    def kv_token(self, width: float) -> float:
        """Bytes of KV cache per token, key and value of every layer, at ``width`` bytes a number."""
        return 2.0 * self.num_hidden_layers * self.key_value_size * width

    def lora_parameters(self, rank: int) -> int:
        """Parameters of adapters of this rank on every projection of every layer
        (``target_modules: all-linear``).
        """
        hidden, query, key_value = self.hidden_size, self.query_size, self.key_value_size
        ends = 2 * (hidden + query) + 2 * (hidden + key_value) + 3 * (hidden + self.intermediate_size)
        return rank * ends * self.num_hidden_layers


def _qwen2(hidden: int, intermediate: int, layers: int, heads: int, kv: int, vocab: int) -> ModelShape:
    return ModelShape(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        vocab_size=vocab,
        tied=vocab == 151_936,  # Qwen2.5 up to 3B; the larger ones have 152,064 words
        qkv_bias=True,
    )


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, *, tied: bool) -> ModelShape:
    return replace(_llama(hidden, intermediate, layers, heads, 151_936, tied=tied), qk_norm=True)


def _llama(
    hidden: int, intermediate: int, layers: int, heads: int, vocab: int, *, tied: bool = False
) -> ModelShape:
    return ModelShape(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=vocab,
        tied=tied,
    )


SHAPES = {
    "qwen2.5-0.5b": _qwen2(896, 4864, 24, 14, 2, 151_936),
    "qwen2.5-1.5b": _qwen2(1536, 8960, 28, 12, 2, 151_936),
    "qwen2.5-3b": _qwen2(2048, 11_008, 36, 16, 2, 151_936),
    "qwen2.5-7b": _qwen2(3584, 18_944, 28, 28, 4, 152_064),
    "qwen2.5-14b": _qwen2(5120, 13_824, 48, 40, 8, 152_064),
    "qwen2.5-32b": _qwen2(5120, 27_648, 64, 40, 8, 152_064),
    "qwen2.5-72b": _qwen2(8192, 29_568, 80, 64, 8, 152_064),
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, tied=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": _qwen3(4096, 12_288, 36, 32, tied=False),
    "qwen3-32b": _qwen3(5120, 25_600, 64, 64, tied=False),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 128_256, tied=True),
    "llama-3.1-8b": _llama(4096, 14_336, 32, 32, 128_256),
    "mathstral-7b": _llama(4096, 14_336, 32, 32, 32_768),
}
"""From the published ``config.json`` files (Qwen2.5: arXiv:2412.15115, table 1)."""

PRESETS = {
    "qwen2_5_1_5b": ("Qwen/Qwen2.5-1.5B", "qwen2.5-1.5b"),
    "qwen2_5_3b": ("Qwen/Qwen2.5-3B", "qwen2.5-3b"),
    "qwen2_5_7b": ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
    "qwen2_5_7b_instruct": ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
    "qwen2_5_math_1_5b": ("Qwen/Qwen2.5-Math-1.5B", "qwen2.5-1.5b"),
    "qwen2_5_math_7b": ("Qwen/Qwen2.5-Math-7B", "qwen2.5-7b"),
    "qwen2_5_math_1_5b_16k": ("RoadQAQ/Qwen2.5-Math-1.5B-16k-think", "qwen2.5-1.5b"),
    "qwen2_5_math_7b_16k": ("Elliott/Qwen2.5-Math-7B-16k-think", "qwen2.5-7b"),
    "qwen3_0_6b": ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
    "qwen3_1_7b": ("Qwen/Qwen3-1.7B", "qwen3-1.7b"),
    "qwen3_4b": ("Qwen/Qwen3-4B", "qwen3-4b"),
    "qwen3_8b": ("Qwen/Qwen3-8B", "qwen3-8b"),
    "qwen3_0_6b_base": ("Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"),
    "qwen3_1_7b_base": ("Qwen/Qwen3-1.7B-Base", "qwen3-1.7b"),
    "qwen3_4b_base": ("Qwen/Qwen3-4B-Base", "qwen3-4b"),
    "qwen3_8b_base": ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
    "llama3_2_3b": ("meta-llama/Llama-3.2-3B", "llama-3.2-3b"),
    "mathstral_7b": ("mistralai/Mathstral-7B-v0.1", "mathstral-7b"),
}
"""The models of a run: ``model=NAME`` -> the name on the hub, and one in ``SHAPES``."""

HUB_NAMES = dict(PRESETS.values())
"""Names on the hub -> names in ``SHAPES``, for a machine that cannot reach the hub."""

SHAPES_OF_PRESETS = {preset: shape for preset, (_, shape) in PRESETS.items()}
"""``model=NAME`` -> a name in ``SHAPES``."""


def model_flops(
    parameters: int,
    *,
    prefilled_tokens: float,
    generated_tokens: float,
    trained_tokens: float,
    scored_tokens: float,
) -> float:
    """FLOPs: 2 per parameter and token for a forward pass, 6 for forward and backward.

        2 N (prefilled + generated + scored) + 6 N trained

    Args:
        parameters: N, of the model.
        prefilled_tokens: Prompt tokens that the engine computed.
        generated_tokens: Tokens that it generated.
        trained_tokens: Tokens of the sequences in the update, counted in every pass.
        scored_tokens: Tokens of the sequences in passes for log-probabilities only, counted in every pass.
    """
    forward = 2.0 * parameters * (prefilled_tokens + generated_tokens + scored_tokens)
    return forward + 6.0 * parameters * trained_tokens
