"""Tiny models with random weights, made from configurations, and prompts for them."""

import logging

import torch
import transformers

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)

COMMON = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": None,
}
WINDOW = 24


def made(kind, config, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return kind(config).eval().to(dtype)


def llama(**more):
    """Full attention."""
    config = transformers.LlamaConfig(**{**COMMON, "num_hidden_layers": 2, **more})
    return made(transformers.LlamaForCausalLM, config)


def mistral(**more):
    """Every layer sees a window."""
    given = {**COMMON, "num_hidden_layers": 2, "sliding_window": WINDOW, **more}
    return made(transformers.MistralForCausalLM, transformers.MistralConfig(**given))


def gemma(**more):
    """Two layers with a window, one without."""
    given = {
        **COMMON,
        "num_hidden_layers": 3,
        "head_dim": 8,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        **more,
    }
    return made(transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**given))


def lfm(**more):
    """A hybrid: short convolutions, and full attention."""
    given = {
        **COMMON,
        "num_hidden_layers": 4,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        **more,
    }
    return made(transformers.Lfm2ForCausalLM, transformers.Lfm2Config(**given))


def qwen_next(**more):
    """A hybrid with recurrent states, a delta rule, and full attention."""
    given = {
        **COMMON,
        "num_hidden_layers": 2,
        "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "mlp_only_layers": [0, 1],
        "num_experts": 0,
        **more,
    }
    return made(transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig(**given))


ATTENTION = (llama, mistral, gemma)
HYBRIDS = (lfm, qwen_next)


def tokens(count, seed=0, rows=1):
    """Random tokens that are neither padding nor the beginning of a text."""
    return torch.randint(2, 96, (rows, count), generator=torch.Generator().manual_seed(seed))


def padded(lengths, seed=0):
    """Ids and mask of a batch that is padded on the left."""
    ids = torch.zeros((len(lengths), max(lengths)), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        ids[row, -length:] = tokens(length, seed + row)[0]
        mask[row, -length:] = 1
    return ids, mask


def plain(model, ids, **options):
    """What the model's own generate() answers, whatever is attached to it."""
    return type(model).generate(model, ids, **{"do_sample": False, **options})
