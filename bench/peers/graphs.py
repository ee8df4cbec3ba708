"""onnxruntime's operators as sessions of one or two nodes, with inputs and outputs bound once."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

_FLOAT = TensorProto.FLOAT
_INT32 = TensorProto.INT32


class Graph:
    """graph() runs it. Inputs and outputs are numpy arrays that stay where they are; `shared` ones are both."""

    def __init__(self, nodes, inputs, outputs, constants=None, threads=1, shared=None):
        shared = shared or {}
        arrays = {**inputs, **outputs}

        def info(name, array):
            kind = _INT32 if array.dtype == np.int32 else _FLOAT
            return helper.make_tensor_value_info(name, kind, list(array.shape))

        graph = helper.make_graph(
            nodes,
            "work",
            [info(name, array) for name, array in inputs.items()],
            [info(name, array) for name, array in outputs.items()]
            + [info(name, inputs[source]) for name, source in shared.items()],
            [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._kept = {name: onnxruntime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
        self._binding = self._session.io_binding()
        for name in inputs:
            self._binding.bind_ortvalue_input(name, self._kept[name])
        for name in outputs:
            self._binding.bind_ortvalue_output(name, self._kept[name])
        for name, source in shared.items():
            self._binding.bind_ortvalue_output(name, self._kept[source])

    def __call__(self):
        self._session.run_with_iobinding(self._binding)

    def output(self, name="out"):
        return self._kept[name].numpy()


def attention(query, key, value, causal, threads):
    """query, key, value: [batch, tokens, heads, head dim]."""
    batch, tokens, heads, dim = query.shape
    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v"],
        ["out"],
        domain="com.microsoft",
        num_heads=heads,
        unidirectional=int(causal),
    )
    flat = {name: array.reshape(batch, tokens, heads * dim) for name, array in zip("qkv", (query, key, value))}
    return Graph([node], flat, {"out": np.zeros_like(flat["q"])}, threads=threads)


def causal_attention(query, key, value, threads):
    """The same by the operator that decoders use, for one sequence."""
    batch, tokens, heads, dim = query.shape
    kv_heads = key.shape[2]
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "", "", "last", "total"],
        ["out", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=kv_heads,
    )
    inputs = {
        "q": query.reshape(batch, tokens, heads * dim),
        "k": key.reshape(batch, tokens, kv_heads * dim),
        "v": value.reshape(batch, tokens, kv_heads * dim),
        "last": np.full([batch], tokens - 1, np.int32),
        "total": np.array(tokens, np.int32),
    }
    outputs = {
        "out": np.zeros_like(inputs["q"]),
        "present_key": np.zeros([batch, kv_heads, tokens, dim], np.float32),
        "present_value": np.zeros([batch, kv_heads, tokens, dim], np.float32),
    }
    return Graph([node], inputs, outputs, threads=threads)


def decode(query, key, value, threads):
    """A token over a cache that holds it already. query [1, 1, heads, dim], key and value [1, keys, kv heads, dim]."""
    heads, dim = query.shape[2:]
    _, keys, kv_heads, _ = key.shape
    node = helper.make_node(
        "GroupQueryAttention",
        ["q", "k", "v", "cache_key", "cache_value", "last", "total"],
        ["out", "present_key", "present_value"],
        domain="com.microsoft",
        num_heads=heads,
        kv_num_heads=kv_heads,
    )
    inputs = {
        "q": query.reshape(1, 1, heads * dim),
        "k": np.ascontiguousarray(key[:, -1:]).reshape(1, 1, kv_heads * dim),  # is written to where it is already
        "v": np.ascontiguousarray(value[:, -1:]).reshape(1, 1, kv_heads * dim),
        "cache_key": np.ascontiguousarray(key.transpose(0, 2, 1, 3)),
        "cache_value": np.ascontiguousarray(value.transpose(0, 2, 1, 3)),
        "last": np.full([1], keys - 1, np.int32),
        "total": np.array(keys, np.int32),
    }
    shared = {"present_key": "cache_key", "present_value": "cache_value"}  # no copy of the cache
    return Graph([node], inputs, {"out": np.zeros_like(inputs["q"])}, threads=threads, shared=shared)


def linear(x, weight, bias, threads):
    """x [m, k], weight [n, k]: a constant, so onnxruntime packs it when the session is made."""
    node = helper.make_node("Gemm", ["x", "weight", "bias"], ["out"], transB=1)
    out = np.zeros([x.shape[0], weight.shape[0]], np.float32)
    return Graph([node], {"x": x}, {"out": out}, {"weight": weight, "bias": bias}, threads)


def self_attention(x, weights, biases, heads, threads):
    """x [batch, tokens, hidden]; weights [4, hidden, hidden] of query, key, value and output; biases [4, hidden]. As
    onnxruntime's optimizer writes a BERT: one Attention, one MatMul and one Add."""
    nodes = [
        helper.make_node(
            "Attention", ["x", "qkv", "qkv_bias"], ["context"], domain="com.microsoft", num_heads=heads
        ),
        helper.make_node("MatMul", ["context", "output"], ["projected"]),
        helper.make_node("Add", ["projected", "output_bias"], ["out"]),
    ]
    constants = {
        "qkv": np.ascontiguousarray(np.concatenate(weights[:3]).T),
        "qkv_bias": biases[:3].reshape(-1),
        "output": np.ascontiguousarray(weights[3].T),
        "output_bias": biases[3],
    }
    return Graph(nodes, {"x": x}, {"out": np.zeros_like(x)}, constants, threads)
