"""Imported first by tests of engines: what a machine without a GPU lacks.

torchvision's release on PyPI is compiled for CUDA, so its operators do not load beside the CPU
build of torch, and it then trips over one that it describes without having it. SGLang only needs
that it can be imported.
"""

import torch

_library = torch.library.Library("torchvision", "DEF")
_library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
