"""Three small language models in PyTorch, each as an architecture that llama.cpp loads.

  llama          full attention in every layer, rotary positions
  gemma3         layers 0, 2, 4 ... see a window, the others everything; queries and keys are normalised
  granitehybrid  layers 0, 2, 4 ... are Mamba-2, the others full attention without positions

The arithmetic follows llama.cpp's graphs, so that an exported file gives the same logits (check_export.py).
Embeddings and output share their weights.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    arch: str = "llama"
    vocabulary: int = 3072
    layers: int = 8
    dim: int = 384
    heads: int = 6
    kv_heads: int = 3
    head: int = 64
    ff: int = 1024
    window: int = 256        # gemma3: positions that a window layer sees, the current one included.
    rope_base: float = 10000.0
    context: int = 4096
    epsilon: float = 1e-5
    state: int = 128         # granitehybrid: numbers that each channel remembers.
    ssm_heads: int = 12
    convolution: int = 4
    chunk: int = 64

    @property
    def inner(self):
        return self.ssm_heads * self.head

    def attends(self, layer):
        return self.arch != "granitehybrid" or layer % 2 == 1

    def windowed(self, layer):
        return self.arch == "gemma3" and layer % 2 == 0


def norm(x, weight, epsilon):
    """RMS norm, in fp32."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


def rotation(shape, length, device):
    """Cosines and sines of each position, (length, head / 2)."""
    half = shape.head // 2
    frequency = shape.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return angle.cos().float().to(device), angle.sin().float().to(device)


def rotate(x, cos, sin, neighbours):
    """Rotary positions. llama turns neighbouring numbers into each other, gemma3 the two halves of a head."""
    if neighbours:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1).to(x.dtype)


def window_attention(q, k, v, window):
    """Causal attention to the last `window` positions. All are (batch, heads, length, head)."""
    batch, heads, length, head = q.shape
    if length <= window:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    blocks = -(-length // window)
    pad = blocks * window - length

    def cut(x):
        return F.pad(x, (0, 0, 0, pad)).view(batch, heads, blocks, window, head)

    def with_previous(x):
        x = cut(x)
        return torch.cat((F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1], x), 3)

    here = torch.arange(window, device=q.device)
    there = torch.arange(2 * window, device=q.device) - window
    seen = (there <= here[:, None]) & (there > here[:, None] - window)
    mask = seen.expand(blocks, window, 2 * window).clone()
    mask[0] &= there >= 0
    out = F.scaled_dot_product_attention(
        cut(q).transpose(1, 2).flatten(0, 1).reshape(batch, blocks * heads, window, head),
        with_previous(k).transpose(1, 2).flatten(0, 1).reshape(batch, blocks * heads, 2 * window, head),
        with_previous(v).transpose(1, 2).flatten(0, 1).reshape(batch, blocks * heads, 2 * window, head),
        attn_mask=mask.repeat_interleave(heads, 0))
    out = out.view(batch, blocks, heads, window, head).transpose(1, 2)
    return out.reshape(batch, heads, blocks * window, head)[:, :, :length]


class Attention(nn.Module):
    def __init__(self, shape, layer):
        super().__init__()
        self.shape, self.windowed = shape, shape.windowed(layer)
        width, kv = shape.heads * shape.head, shape.kv_heads * shape.head
        self.q = nn.Linear(shape.dim, width, bias=False)
        self.k = nn.Linear(shape.dim, kv, bias=False)
        self.v = nn.Linear(shape.dim, kv, bias=False)
        self.out = nn.Linear(width, shape.dim, bias=False)
        if shape.arch == "gemma3":
            self.q_norm = nn.Parameter(torch.ones(shape.head))
            self.k_norm = nn.Parameter(torch.ones(shape.head))

    def forward(self, x, cos, sin):
        s = self.shape
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, s.heads, s.head).transpose(1, 2)
        k = self.k(x).view(batch, length, s.kv_heads, s.head).transpose(1, 2)
        v = self.v(x).view(batch, length, s.kv_heads, s.head).transpose(1, 2)
        if s.arch == "gemma3":
            q, k = norm(q, self.q_norm, s.epsilon), norm(k, self.k_norm, s.epsilon)
        if s.arch != "granitehybrid":
            q, k = rotate(q, cos, sin, s.arch == "llama"), rotate(k, cos, sin, s.arch == "llama")
        k = k.repeat_interleave(s.heads // s.kv_heads, 1)
        v = v.repeat_interleave(s.heads // s.kv_heads, 1)
        q, k = q.to(v.dtype), k.to(v.dtype)
        if self.windowed:
            out = window_attention(q, k, v, s.window)
        else:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(out.transpose(1, 2).reshape(batch, length, s.heads * s.head))


class Mamba2(nn.Module):
    """A recurrence whose state forgets at a rate that each token chooses, computed in chunks."""

    def __init__(self, shape):
        super().__init__()
        self.shape = s = shape
        self.mixed = s.inner + 2 * s.state
        self.into = nn.Linear(s.dim, s.inner + self.mixed + s.ssm_heads, bias=False)
        self.conv = nn.Parameter(torch.empty(self.mixed, s.convolution).uniform_(-0.5, 0.5))
        self.conv_bias = nn.Parameter(torch.zeros(self.mixed))
        step = torch.exp(torch.rand(s.ssm_heads) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # softplus gives the step back.
        self.a_log = nn.Parameter(torch.log(torch.rand(s.ssm_heads) * 15 + 1))
        self.d = nn.Parameter(torch.ones(s.ssm_heads))
        self.norm = nn.Parameter(torch.ones(s.inner))
        self.out = nn.Linear(s.inner, s.dim, bias=False)

    def forward(self, x):
        s = self.shape
        batch, length, _ = x.shape
        z, mixed, dt = self.into(x).split((s.inner, self.mixed, s.ssm_heads), -1)
        late = F.pad(mixed, (0, 0, s.convolution - 1, 0))
        weight = self.conv.to(mixed.dtype)
        mixed = sum(late[:, i:i + length] * weight[:, i] for i in range(s.convolution))
        mixed = F.silu(mixed + self.conv_bias.to(mixed.dtype))
        u, b, c = mixed.split((s.inner, s.state, s.state), -1)
        u = u.view(batch, length, s.ssm_heads, s.head)
        dt = F.softplus(dt.float() + self.dt_bias)
        y = self.scan(u, dt, -torch.exp(self.a_log), b, c)
        y = y + u * self.d.to(u.dtype)[:, None]
        y = y.reshape(batch, length, s.inner) * F.silu(z)
        return self.out(norm(y, self.norm, s.epsilon))

    def scan(self, u, dt, a, b, c):
        """y of state = state * exp(dt a) + dt u b, y = state c. Chunks by matrices, their states one by one."""
        s = self.shape
        batch, length, heads, head = u.shape
        pad = -length % s.chunk
        if pad:
            u, dt, b, c = (F.pad(t, (0, 0) * (t.dim() - 2) + (0, pad)) for t in (u, dt, b, c))
        n = (length + pad) // s.chunk
        u = (u * dt.to(u.dtype)[..., None]).view(batch, n, s.chunk, heads, head)
        b, c = b.view(batch, n, s.chunk, s.state), c.view(batch, n, s.chunk, s.state)
        decay = (dt * a).view(batch, n, s.chunk, heads).cumsum(2)
        decay = decay.permute(0, 1, 3, 2)                                  # batch, n, heads, chunk
        apart = decay[..., :, None] - decay[..., None, :]
        causal = torch.ones(s.chunk, s.chunk, dtype=torch.bool, device=u.device).tril()
        fade = torch.exp(apart.masked_fill(~causal, -1e9)).to(u.dtype)      # batch, n, heads, chunk, chunk
        score = torch.einsum("bnis,bnjs->bnij", c, b)[:, :, None] * fade
        values = u.permute(0, 1, 3, 2, 4)                                  # batch, n, heads, chunk, head
        y = score @ values
        left = torch.exp(decay[..., -1:] - decay).to(u.dtype)              # What is left at the chunk's end.
        added = torch.einsum("bnhjd,bnjs->bnhds", values * left[..., None], b)
        # The state before each chunk: what each earlier chunk added, faded by those between.
        total = decay[..., -1].cumsum(1)                                   # batch, n, heads
        before = F.pad(total, (0, 0, 1, 0))[:, :-1]
        between = before[:, :, None] - total[:, None, :]                   # batch, to, from, heads
        earlier = torch.ones(n, n, dtype=torch.bool, device=u.device).tril(-1)
        between = torch.exp(between.masked_fill(~earlier[..., None], -1e9)).to(u.dtype)
        state = torch.einsum("btfh,bfhds->bthds", between, added.to(u.dtype))
        y = y + torch.einsum("bnis,bnhds->bnhid", c, state) * torch.exp(decay).to(u.dtype)[..., None]
        return y.permute(0, 1, 3, 2, 4).reshape(batch, n * s.chunk, heads, head)[:, :length]


class Block(nn.Module):
    def __init__(self, shape, layer):
        super().__init__()
        self.shape = shape
        self.norm = nn.Parameter(torch.ones(shape.dim))
        self.mix = Attention(shape, layer) if shape.attends(layer) else Mamba2(shape)
        self.ff_norm = nn.Parameter(torch.ones(shape.dim))
        self.gate = nn.Linear(shape.dim, shape.ff, bias=False)
        self.up = nn.Linear(shape.dim, shape.ff, bias=False)
        self.down = nn.Linear(shape.ff, shape.dim, bias=False)
        if shape.arch == "gemma3":
            self.post_norm = nn.Parameter(torch.ones(shape.dim))
            self.post_ff_norm = nn.Parameter(torch.ones(shape.dim))

    def forward(self, x, cos, sin):
        s = self.shape
        gemma = s.arch == "gemma3"
        h = norm(x, self.norm, s.epsilon)
        h = self.mix(h, cos, sin) if isinstance(self.mix, Attention) else self.mix(h)
        x = x + (norm(h, self.post_norm, s.epsilon) if gemma else h)
        h = norm(x, self.ff_norm, s.epsilon)
        gate = self.gate(h)
        h = self.down((F.gelu(gate, approximate="tanh") if gemma else F.silu(gate)) * self.up(h))
        return x + (norm(h, self.post_ff_norm, s.epsilon) if gemma else h)


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.dim)
        self.blocks = nn.ModuleList(Block(shape, i) for i in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.dim))
        self._rotation = {}
        self.initialise()

    def initialise(self):
        nn.init.normal_(self.embedding.weight, std=0.02)
        for name, parameter in self.named_parameters():
            if name.startswith("blocks") and parameter.dim() == 2 and "conv" not in name:
                scale = 1 / math.sqrt(parameter.shape[1])
                if name.endswith(("out.weight", "down.weight")):
                    scale /= math.sqrt(2 * self.shape.layers)
                nn.init.normal_(parameter, std=scale)

    def hidden(self, tokens):
        """What the output weights read, (batch, length, dim)."""
        length = tokens.shape[1]
        if length not in self._rotation:
            self._rotation[length] = rotation(self.shape, length, tokens.device)
        cos, sin = self._rotation[length]
        x = self.embedding(tokens) * math.sqrt(self.shape.dim)
        for block in self.blocks:
            x = block(x, cos, sin)
        return norm(x, self.norm, self.shape.epsilon)

    def forward(self, tokens):
        return F.linear(self.hidden(tokens), self.embedding.weight)

    def parameter_count(self):
        return sum(p.numel() for p in self.parameters())


SHAPES = {
    "llama": Shape(),
    "window": Shape(arch="gemma3", layers=6, ff=1024),
    "hybrid": Shape(arch="granitehybrid", layers=6, ff=768),
    # For experiments on a CPU.
    "tiny": Shape(layers=4, dim=128, heads=4, kv_heads=2, head=32, ff=256),
    "tiny-window": Shape(arch="gemma3", layers=4, dim=128, heads=4, kv_heads=2, head=32, ff=256, window=64),
    "tiny-hybrid": Shape(arch="granitehybrid", layers=4, dim=128, heads=4, kv_heads=2, head=32, ff=256,
                         ssm_heads=8, state=32),
}
