"""generate() of transformers, with reuse. Run it: python3
python/examples/transformers_generate.py"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import stemma
import stemma.torch

config = LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2)
model = LlamaForCausalLM(config).eval()  # Random weights; really: from_pretrained().
levels = [stemma.Level("host", capacity_bytes=1 << 26)]  # A "disk" is found by later processes.

with stemma.torch.attach(model, tokens=4096, levels=levels) as attached:
    text = torch.randint(2, 256, (1, 200))
    for turn in range(3):
        text = model.generate(text, do_sample=False, max_new_tokens=20)
        print(f"turn {turn}: {attached.last.reused_tokens[0]} tokens reused")
        text = torch.cat((text, torch.randint(2, 256, (1, 30))), dim=1)

pool = stemma.torch.Pool(stemma.torch.probe(model), scope=stemma.Scope("weights"), tokens=4096)
mask = torch.ones_like(text)
cache = pool.cache_for(text, mask)  # The same by hand.
out = model.generate(text, attention_mask=mask, past_key_values=cache, max_new_tokens=20)
print(f"{cache.finish(out)} tokens kept, of which {cache.reused_tokens[0]} had been found")
pool.close()
