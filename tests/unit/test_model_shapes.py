"""Parameters by arithmetic are those of the published weights and of Hugging Face's models."""

import pytest

from seele.maths.model_shapes import HUB_NAMES, SHAPES, ModelShape

# What the hub counts in the safetensors files; of Qwen3's tied models without the copy of the embedding.
PUBLISHED = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "mathstral-7b": 7_248_023_552,
}


@pytest.mark.parametrize("name", SHAPES)
def test_parameters_are_the_published_ones(name: str) -> None:
    assert SHAPES[name].parameters == PUBLISHED[name]


def test_every_hub_name_has_a_shape() -> None:
    assert set(HUB_NAMES.values()) <= set(SHAPES)


def test_adapters_by_hand() -> None:
    # Per layer: q and o 8 + 8 each, k and v 8 + 4 each, gate, up and down 8 + 6 each: 98 ends, times rank 3.
    shape = ModelShape(
        hidden_size=8,
        intermediate_size=6,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=10,
    )
    assert shape.lora_parameters(3) == 3 * 98 * 2
