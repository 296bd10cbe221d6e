"""Muon for matrices, AdamW for everything else.

Muon moves each matrix by its momentum made orthogonal, so that all directions are learned at one speed; small models
learn to copy from their context in a fraction of the steps. Matrices of one shape are handled in one batch.
"""
import torch


def orthogonal(g, steps=5):
    """The nearest matrices with singular values near 1, by Newton and Schulz's iteration. g: (count, rows, columns)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16() if g.is_cuda else g
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        y = x @ x.mT
        x = a * x + (b * y + c * y @ y) @ x
    return (x.mT if tall else x).to(g.dtype)


class Optimiser:
    def __init__(self, model, matrix_rate=0.02, other_rate=0.003, momentum=0.95, decay=0.05):
        self.matrix_rate, self.other_rate, self.momentum, self.decay = matrix_rate, other_rate, momentum, decay
        groups, others = {}, []
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and name.startswith("blocks") and "conv" not in name:
                groups.setdefault(tuple(parameter.shape), []).append(parameter)
            else:
                others.append(parameter)
        self.groups = list(groups.values())
        self.moments = [torch.zeros(len(g), *g[0].shape, device=g[0].device) for g in self.groups]
        fused = others[0].is_cuda
        self.adam = torch.optim.AdamW(others, lr=other_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=fused)
        self.parameters = [p for g in self.groups for p in g] + others

    @torch.no_grad()
    def step(self, share):
        """One step at this share of the full rates."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        for group in self.adam.param_groups:
            group["lr"] = self.other_rate * share
        self.adam.step()
        for parameters, moment in zip(self.groups, self.moments):
            gradient = torch.stack([p.grad for p in parameters])
            moment.lerp_(gradient, 1 - self.momentum)
            update = orthogonal(torch.lerp(gradient, moment, self.momentum))
            rows, columns = parameters[0].shape
            rate = self.matrix_rate * share * max(1.0, rows / columns) ** 0.5
            torch._foreach_mul_(parameters, 1 - rate * self.decay)
            torch._foreach_add_(parameters, list(update.unbind(0)), alpha=-rate)
        for parameter in self.parameters:
            parameter.grad = None
