"""Classes that not every version of transformers has."""

import unittest

import models
from transformers import cache_utils as hf

import stemma.torch
from stemma.torch import _shapes


class Versions(unittest.TestCase):
    def setUp(self):
        self.addCleanup(setattr, _shapes, "_Dummy", _shapes._Dummy)

    def test_a_version_without_a_class_for_empty_layers_has_layers_without_states(self):
        _shapes._Dummy = None
        layer = _shapes.dummy_layer()
        self.assertIs(type(layer), hf.LinearAttentionLayer)
        self.assertEqual(_shapes._layer_shape(3, layer).kind, "none")
        self.assertEqual(len(stemma.torch.probe(models.llama()).layers), 2)

    def test_a_version_with_it_uses_it(self):
        if _shapes._Dummy is None:
            self.skipTest("this version has none")
        layer = _shapes.dummy_layer()
        self.assertIs(type(layer), hf.DummyLayer)
        self.assertEqual(_shapes._layer_shape(3, layer).kind, "none")


if __name__ == "__main__":
    unittest.main()
