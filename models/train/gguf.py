"""Writes GGUF files, version 3: keys with values, descriptions of tensors, then their numbers.

Matrices can be stored as q8_0: 32 numbers share one half-precision scale and are a byte each. NumPy is needed for numbers, not for keys and places.
"""
import math
import struct

VERSION = 3
ALIGNMENT = 32
F32, F16, Q8_0 = 0, 1, 8  # Types of tensors, numbered by the format.
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9  # Kinds of values, likewise.
Q8_BLOCK = 32


def q8_0(values):
    """The bytes of numbers, as blocks of 32. Rows must be whole blocks long."""
    import numpy as np

    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, Q8_BLOCK)
    largest = np.abs(blocks).max(1, keepdims=True)
    scale = (largest / 127).astype(np.float32)
    with np.errstate(divide="ignore"):
        inverse = np.where(scale > 0, 1 / scale, 0).astype(np.float32)
    numbers = np.rint(blocks * inverse).clip(-127, 127).astype(np.int8)
    out = np.empty((len(blocks), 2 + Q8_BLOCK), np.uint8)
    out[:, :2] = scale.astype(np.float16).view(np.uint8)
    out[:, 2:] = numbers.view(np.uint8)
    return out.tobytes()


def from_q8_0(data):
    """The numbers that a reader gets back."""
    import numpy as np

    blocks = np.frombuffer(data, np.uint8).reshape(-1, 2 + Q8_BLOCK)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    return (blocks[:, 2:].copy().view(np.int8).astype(np.float32) * scale).reshape(-1)


def _text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _scalar(value):
    """(kind, bytes) of one value. Numbers without a point are u32, or i32 if negative."""
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return (_U32, struct.pack("<I", value)) if value >= 0 else (_I32, struct.pack("<i", value))
    if isinstance(value, float):
        return _F32, struct.pack("<f", value)
    if isinstance(value, str):
        return _STRING, _text(value)
    raise TypeError(f"no such value in a GGUF file: {value!r}")


class Signed(list):
    """A list that is stored as i32."""


class File:
    """Collects keys and tensors, then writes them."""

    def __init__(self):
        self._keys = []
        self._tensors = []  # (name, dims, type, bytes)

    def set(self, key, value):
        if isinstance(value, (list, tuple)):
            if isinstance(value, Signed):
                kind, items = _I32, [struct.pack("<i", v) for v in value]
            else:
                kind, items = _scalar(value[0])[0], [_scalar(v)[1] for v in value]
            data = struct.pack("<IQ", kind, len(items)) + b"".join(items)
            kind = _ARRAY
        else:
            kind, data = _scalar(value)
        self._keys.append(_text(key) + struct.pack("<I", kind) + data)

    def add(self, name, values, kind=F32):
        """A tensor as numpy has it: the last axis lies together."""
        import numpy as np

        values = np.asarray(values, np.float32)
        if kind == Q8_0 and values.shape[-1] % Q8_BLOCK:
            raise ValueError(f"{name}: rows of {values.shape[-1]} are no whole blocks of {Q8_BLOCK}")
        data = {F32: lambda: values.astype("<f4").tobytes(), F16: lambda: values.astype("<f2").tobytes(),
                Q8_0: lambda: q8_0(values)}[kind]()
        self._tensors.append((name, values.shape[::-1], kind, data))

    def write(self, path):
        """Writes the file and returns its size."""
        head = b"GGUF" + struct.pack("<IQQ", VERSION, len(self._tensors), len(self._keys)) + b"".join(self._keys)
        offset = 0
        for name, dims, kind, data in self._tensors:
            head += _text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
            head += struct.pack("<IQ", kind, offset)
            offset += len(data) + -len(data) % ALIGNMENT
        with open(path, "wb") as file:
            file.write(head + bytes(-len(head) % ALIGNMENT))
            for _, _, _, data in self._tensors:
                file.write(data + bytes(-len(data) % ALIGNMENT))
            return file.tell()


class Reader:
    """The keys and tensors of a file that this module wrote; other types of tensors are refused."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self._data = file.read()
        self._at = 8
        if self._data[:4] != b"GGUF" or struct.unpack_from("<I", self._data, 4)[0] != VERSION:
            raise ValueError(f"{path} is no GGUF file of version {VERSION}")
        tensors, keys = self._take("<QQ")
        self.keys = {}
        for _ in range(keys):
            key = self._string()
            self.keys[key] = self._value(self._take("<I")[0])
        described = []
        for _ in range(tensors):
            name = self._string()
            dims = self._take(f"<{self._take('<I')[0]}Q")
            described.append((name, dims[::-1], *self._take("<IQ")))
        start = self._at + -self._at % ALIGNMENT
        self._places = {name: (start + offset, dims, kind) for name, dims, kind, offset in described}

    def names(self):
        return set(self._places)

    def place(self, name):
        """Where a matrix of q8_0 begins in the file, how many rows it has, and the bytes of a row."""
        at, (rows, columns), kind = self._places[name]
        assert kind == Q8_0, f"{name} is not stored as q8_0"
        return at, rows, columns // Q8_BLOCK * (2 + Q8_BLOCK)

    def _take(self, form):
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def _string(self):
        size = self._take("<Q")[0]
        self._at += size
        return self._data[self._at - size:self._at].decode()

    def _value(self, kind):
        if kind == _ARRAY:
            kind, count = self._take("<IQ")
            return [self._value(kind) for _ in range(count)]
        if kind == _STRING:
            return self._string()
        return self._take({_U32: "<I", _I32: "<i", _F32: "<f", _BOOL: "<?"}[kind])[0]

    def tensor(self, name):
        """The numbers of a tensor, as numpy has them."""
        import numpy as np

        at, dims, kind = self._places[name]
        count = math.prod(dims)
        if kind == Q8_0:
            values = from_q8_0(self._data[at:at + count // Q8_BLOCK * (2 + Q8_BLOCK)])
        elif kind in (F32, F16):
            values = np.frombuffer(self._data, "<f4" if kind == F32 else "<f2", count, at).astype(np.float32)
        else:
            raise ValueError(f"tensors of type {kind} are not read here")
        return values.reshape(dims)
