"""examples/needle's model in PyTorch, on the same weights: what one would write there, with nothing left out that makes
it fast: one product for queries, keys and values, scaled_dot_product_attention, and, where several segments are read
at once, all of them as a batch, with the memory as a running sum over them."""

import json

import numpy as np
import torch
from torch.nn import functional


def read_safetensors(path):
    """Metadata and tensors of a file."""
    types = {"F32": np.float32, "F64": np.float64, "I64": np.int64}
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return metadata, tensors


class Model:
    def __init__(self, path):
        metadata, self.tensors = read_safetensors(path)
        self.num_layers = int(metadata["num_layers"])
        self.num_heads = int(metadata["num_heads"])
        self.head_dim = int(metadata["head_dim"])
        self.hidden_size = int(metadata["hidden_size"])
        self.segment_length = int(metadata["segment_length"])
        self.eps = float(metadata["rms_norm_eps"])
        theta = float(metadata["rope_theta"])
        half = self.head_dim // 2
        frequencies = theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(self.segment_length, dtype=torch.float64)[:, None] * frequencies
        self.cos, self.sin = angles.cos().float(), angles.sin().float()  # [segment, half]
        self.layers = [self._layer(f"layers.{i}.") for i in range(self.num_layers)]

    def _layer(self, prefix):
        part = {name[len(prefix) :]: t for name, t in self.tensors.items() if name.startswith(prefix)}
        inputs = [part[f"attention.{name}.weight"] for name in ("query", "key", "value")]
        biases = [part["attention.query.bias"], part["attention.key.bias"], torch.zeros(self.hidden_size)]
        part["qkv.weight"], part["qkv.bias"] = torch.cat(inputs), torch.cat(biases)
        part["gate"] = torch.sigmoid(part["attention.beta"])[:, None, None]  # [heads, 1, 1]
        return part

    def state(self, batch):
        """Per layer the memory and its normalizer."""
        shape = (batch, self.num_heads, self.head_dim)
        return [[torch.zeros(*shape, self.head_dim), torch.zeros(shape)] for _ in range(self.num_layers)]

    def read(self, tokens, state, want_logits=False):
        """Reads the next tokens [batch, count] of every row: full segments, or the beginning of one (which then must be
        the last call). Returns the logits if they are wanted; else the last layer only remembers."""
        batch, count = tokens.shape
        full = count >= self.segment_length
        segments, length = (count // self.segment_length, self.segment_length) if full else (1, count)
        x = self.tensors["embedding.weight"][tokens.reshape(batch * segments, length)]
        for number, layer in enumerate(self.layers):
            last = number + 1 == self.num_layers and not want_logits
            h = functional.rms_norm(x, (self.hidden_size,), layer["attention_norm.weight"], self.eps)
            y = self._attention(h, layer, state[number], segments, full, remember_only=last)
            if last:
                return None
            x = x + y
            h = functional.rms_norm(x, (self.hidden_size,), layer["mlp_norm.weight"], self.eps)
            h = functional.linear(h, layer["mlp.up.weight"], layer["mlp.up.bias"])
            h = functional.gelu(h, approximate="tanh")
            x = x + functional.linear(h, layer["mlp.down.weight"], layer["mlp.down.bias"])
        h = functional.rms_norm(x, (self.hidden_size,), self.tensors["final_norm.weight"], self.eps)
        return functional.linear(h, self.tensors["output.weight"]).reshape(batch, count, -1)

    def _attention(self, h, layer, state, segments, full, remember_only):
        rows, length, size = h.shape
        batch = rows // segments
        if remember_only:
            key, value = self._heads(functional.linear(h, layer["qkv.weight"][size:], layer["qkv.bias"][size:]), 2)
        else:
            query, key, value = self._heads(functional.linear(h, layer["qkv.weight"], layer["qkv.bias"]), 3)

        # What each segment finds in the memory: the state, and what the segments before it in the call add.
        key_features = _features(key)
        memory, normalizer = (
            self._before(state, part, added.unflatten(0, (batch, segments)), full)
            for part, added in enumerate((key_features.transpose(-2, -1) @ value, key_features.sum(-2)))
        )
        if remember_only:
            return None

        features = _features(query)
        known = features @ normalizer.unsqueeze(-1)  # [rows, heads, length, 1]
        remembered = torch.where(known > 0, features @ memory / known, 0.0)  # an empty memory answers 0
        local = functional.scaled_dot_product_attention(self._turn(query), self._turn(key), value, is_causal=True)
        mixed = torch.lerp(local, remembered, layer["gate"])
        return functional.linear(mixed.transpose(1, 2).flatten(2), layer["attention.output.weight"])

    @staticmethod
    def _before(state, part, added, full):
        """What there is of memory (part 0) or normalizer (1) before each of the segments, which add so much to it
        [batch, segments, …]; full ones enter the state."""
        if added.shape[1] == 1:
            before = state[part]
            after = before + added[:, 0]
        else:
            sums = torch.cat([state[part].unsqueeze(1), added[:, :-1]], 1).cumsum(1)
            before = sums.flatten(0, 1)
            after = sums[:, -1] + added[:, -1]
        if full:
            state[part] = after
        return before

    def _heads(self, projected, parts):
        """[rows, length, parts * size] as [parts][rows, heads, length, head dim]."""
        return projected.unflatten(2, (parts, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)

    def _turn(self, x):
        length, half = x.shape[2], self.head_dim // 2
        cos, sin = self.cos[:length], self.sin[:length]
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _features(x):
    """ELU + 1, but not by functional.elu: (e^x - 1) + 1 has lost what a key far below 0 puts into the memory."""
    return functional.relu(x) + x.clamp(max=0).exp()


def search(model, batch, segments, count):
    """Reads `count` bytes of text in each of `batch` rows, so many segments a call; then asks for one byte."""
    generator = torch.Generator().manual_seed(1)
    text = torch.randint(32, 127, (batch, count), generator=generator)
    step = segments * model.segment_length
    question = text[:, :1]

    def run():
        state = model.state(batch)
        for at in range(0, count, step):
            model.read(text[:, at : at + step], state)
        model.read(question, state, want_logits=True)

    return run


def logits(model, tokens):
    """After each byte of one text."""
    state = model.state(1)
    pieces = tokens.split(model.segment_length)
    return torch.cat([model.read(piece[None], state, want_logits=True)[0] for piece in pieces])
