"""Attention functions compute the same as those of transformers, without a mask or in bfloat16."""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoModel, GPT2Config
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from ragqa.models import attention
from tests.helpers.models import FAMILIES, make_tiny_config

IDS = torch.tensor([[2, 10, 11, 3], [2, 12, 3, 0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_attention_differs_by_rounding_only(family: str) -> None:
    """Compare outputs and gradients; DeBERTa does not support other attention functions."""
    torch.manual_seed(3)
    encoder = AutoModel.from_config(make_tiny_config(family), attn_implementation="eager").eval()
    halved = copy.deepcopy(encoder)
    attention.choose_attention(halved, attention.BFLOAT16)
    assert (halved.config._attn_implementation == attention.BFLOAT16) == (family != "deberta-v2")
    found = []
    for model in (encoder, halved):
        hidden = model(input_ids=IDS, attention_mask=MASK).last_hidden_state[MASK.bool()]
        hidden.square()[:, 0].sum().backward()
        found.append((hidden.detach(), [p.grad for p in model.parameters() if p.grad is not None]))
    (whole, grads), (half, others) = found
    assert half.dtype == torch.float32
    assert torch.allclose(half, whole, atol=0.02) and torch.equal(half, whole) == (family == "deberta-v2")
    assert all(torch.allclose(one, other, atol=0.05) for one, other in zip(others, grads, strict=True))


@pytest.mark.parametrize("family", [*FAMILIES, "gpt2", "eurobert"])
def test_unpadded_attention_computes_the_same_without_a_mask(family: str) -> None:
    """Local and causal attention still get their masks."""
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2) if family == "gpt2" else make_tiny_config(family)
    if family == "eurobert":
        config.num_key_value_heads = 1
    if family == "modernbert":
        config.num_hidden_layers, config.local_attention, config.layer_types = 3, 4, ["sliding_attention"] * 3
    encoder = AutoModel.from_config(config, attn_implementation="eager").eval()
    unmasked, ids = copy.deepcopy(encoder), torch.arange(3, 23).unsqueeze(0)
    attention.choose_attention(unmasked, attention.UNPADDED)
    assert (unmasked.config._attn_implementation == attention.UNPADDED) == (family != "deberta-v2")
    for mask in (None, torch.ones_like(ids)):
        one, other = (model(input_ids=ids, attention_mask=mask).last_hidden_state for model in (encoder, unmasked))
        assert torch.allclose(one, other, atol=1e-5)
    sizes = {"batch_size": 1, "q_length": 4, "kv_length": 4}
    assert attention.unpadded_mask(mask_function=bidirectional_mask_function, **sizes) is None
    causal = attention.unpadded_mask(mask_function=causal_mask_function, **sizes)
    assert torch.equal(causal[0, 0], torch.ones(4, 4, dtype=torch.bool).tril())


def test_a_fully_masked_query_is_not_nan() -> None:
    """Padding outside the window of local attention (ModernBERT) must not spoil other positions."""
    value = torch.arange(6.0).reshape(1, 1, 3, 2).requires_grad_()
    mask = torch.full((1, 1, 3, 3), torch.finfo(torch.float32).min)
    found, _ = attention.bfloat16_attention(nn.Module(), value, value, value, mask)
    assert found.tolist() == [[[[2.0, 3.0]]] * 3]  # the mean
    found.sum().backward()
    assert torch.isfinite(value.grad).all()
