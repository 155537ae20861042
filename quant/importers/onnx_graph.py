"""``.onnx``: NeMo's fused decoder_joint, or the decoder and joiner pair that sherpa-onnx uses.

Weights are found by following the graph, since the exporter leaves most of them nameless: linear layers
from their biases, which keep NeMo's names, LSTM layers in the order of their nodes. Graphs that ONNX
Runtime's quantizer has been through are read as the float values their integers stand for.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pkrnnt import FloatModel, FormatError
from pkrnnt.model import EMBED, JOINT_ENC, JOINT_OUT, JOINT_PRED, LSTM
from quant.importers.decoder_half import log, naming
from quant.importers.vocabulary import read_vocabulary

ACTIVATIONS = {"Relu": "relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}


class Graph:
    """Nodes by output, and constants by name."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            import onnx
            from onnx import numpy_helper
        except ImportError:
            raise FormatError(
                "an .onnx file needs the onnx package: pip install 'pkrnnt[importers]'"
            ) from None
        model = onnx.load(os.fspath(path), load_external_data=False)
        if not model.graph.node:
            raise FormatError("the ONNX graph has no nodes")
        self.nodes = list(model.graph.node)
        self._stored = {item.name: item for item in model.graph.initializer}
        self._to_array = numpy_helper.to_array
        self._left = os.path.getsize(path)
        self.producers = {name: node for node in self.nodes for name in node.output if name}

    def has(self, name: str) -> bool:
        return name in self._stored

    def names(self) -> list[str]:
        return list(self._stored)

    def array(self, name: str) -> NDArray[Any]:
        if name not in self._stored:
            raise FormatError(f"{name!r} is no constant of the graph")
        item = self._stored[name]
        if item.data_location:  # 1 is EXTERNAL
            raise FormatError(f"tensor {name} is stored outside the file")
        self._left -= prod(item.dims)
        if self._left < 0:  # a constant may be used again, but not any number of times
            raise FormatError("the graph's weights have more values than the file has bytes")
        return self._to_array(item)

    def of_kind(self, *kinds: str) -> list[Any]:
        return [node for node in self.nodes if node.op_type in kinds]

    def dequantized(self, weight: str, scale: str, zero_point: str) -> NDArray[np.float32]:
        """(q - zero_point) * scale; scale and zero point per tensor, or along the last axis."""
        q = self.array(weight).astype(np.int32)
        zero = self.array(zero_point).astype(np.int32) if zero_point else np.zeros(1, np.int32)
        factor = self.array(scale)
        for name, array in ((scale, factor), (zero_point, zero)):
            if array.size not in (1, q.shape[-1]) or array.ndim > q.ndim:
                raise FormatError(f"{name} has shape {array.shape}, {weight} {q.shape}")
        out: NDArray[np.float32] = ((q - zero.reshape(-1)) * factor.reshape(-1)).astype(np.float32)
        return out


def _gates(array: NDArray[Any]) -> NDArray[Any]:
    """ONNX's gate order i, o, f, c along the first axis, as PyTorch's i, f, g, o."""
    i, o, f, c = np.split(array, 4)
    return np.concatenate([i, f, c, o])


def _attributes(node: Any) -> dict[str, Any]:
    return {item.name: item for item in node.attribute}


def _lstm(graph: Graph) -> dict[str, NDArray[Any]]:
    tensors = {}
    nodes = graph.of_kind("LSTM", "DynamicQuantizeLSTM")
    for layer, node in enumerate(nodes):
        inputs = [*node.input, *[""] * (12 - len(node.input))]
        attributes = _attributes(node)
        direction = attributes["direction"].s if "direction" in attributes else b"forward"
        if direction != b"forward" or inputs[4] or inputs[7]:
            raise FormatError(
                f"{node.op_type} node {layer} is {direction.decode()} or has sequence lengths or "
                f"peepholes, wanted a plain forward LSTM"
            )
        if "activations" in attributes and [
            item.lower() for item in attributes["activations"].strings
        ] != [b"sigmoid", b"tanh", b"tanh"]:
            raise FormatError(f"{node.op_type} node {layer} has other activations than an LSTM's")
        for name in ("clip", "input_forget", "layout"):
            if name in attributes and (attributes[name].i or attributes[name].f):
                raise FormatError(f"{node.op_type} node {layer} has attribute {name}, wanted none")
        if node.op_type == "LSTM":
            weight, recurrent = graph.array(inputs[1])[0], graph.array(inputs[2])[0]
        else:
            weight = graph.dequantized(inputs[1], inputs[8], inputs[9])[0].T
            recurrent = graph.dequantized(inputs[2], inputs[10], inputs[11])[0].T
        size = recurrent.shape[1]
        bias = graph.array(inputs[3])[0] if inputs[3] else np.zeros(8 * size, np.float32)
        tensors[f"{LSTM}.weight_ih_l{layer}"] = _gates(weight)
        tensors[f"{LSTM}.weight_hh_l{layer}"] = _gates(recurrent)
        tensors[f"{LSTM}.bias_ih_l{layer}"] = _gates(bias[: 4 * size])
        tensors[f"{LSTM}.bias_hh_l{layer}"] = _gates(bias[4 * size :])
    return tensors


def _embedding(graph: Graph) -> NDArray[Any]:
    for node in graph.of_kind("Gather"):
        name = node.input[0]
        if not graph.has(name):
            continue
        if name.endswith("_quantized"):
            base = name.removesuffix("_quantized")
            return graph.dequantized(name, f"{base}_scale", f"{base}_zero_point")
        return graph.array(name)
    raise FormatError("the graph has no embedding: no Gather from a constant")


def _matrix(graph: Graph, bias: str) -> NDArray[Any]:
    """Weight [rows, cols] of the linear layer whose bias has this name."""
    add = next((n for n in graph.of_kind("Add") if bias in n.input), None)
    if add is None:
        raise FormatError(f"no Add node takes {bias}")
    (other,) = [name for name in add.input if name != bias]
    node = graph.producers.get(other)
    if node is not None and node.op_type == "MatMul":
        return graph.array(node.input[1]).T
    if node is not None and node.op_type == "DynamicQuantizeMatMul":
        zero = node.input[3] if len(node.input) > 3 else ""
        return graph.dequantized(node.input[1], node.input[2], zero).T
    if node is not None and node.op_type == "Mul":
        # Integer product, cast, times (activation scale * weight scale).
        before = [graph.producers.get(name) for name in node.input]
        cast = next((n for n in before if n is not None and n.op_type == "Cast"), None)
        scales = next((n for n in before if n is not None and n.op_type == "Mul"), None)
        product = graph.producers.get(cast.input[0]) if cast is not None else None
        if scales is not None and product is not None and product.op_type == "MatMulInteger":
            scale = next(name for name in scales.input if graph.has(name))
            zero = product.input[3] if len(product.input) > 3 else ""
            return graph.dequantized(product.input[1], scale, zero).T
    kind = node.op_type if node is not None else "nothing"
    raise FormatError(f"{bias} is added to the output of {kind}, wanted MatMul or its int8 forms")


def _bias_names(graph: Graph) -> dict[str, str]:
    """Bias name in the graph of each layer of the joint."""
    found = {}
    for name in graph.names():
        short = name.removeprefix("joint.")
        if short in ("enc.bias", "pred.bias"):
            found[f"joint.{short[:-5]}"] = name
        elif short.startswith("joint_net.") and short.endswith(".bias"):
            found[JOINT_OUT] = name
    return found


def _joint(graph: Graph) -> tuple[dict[str, NDArray[Any]], str]:
    biases = _bias_names(graph)
    missing = [n for n in (JOINT_ENC, JOINT_PRED, JOINT_OUT) if n not in biases]
    if missing:
        raise FormatError(f"the graph has no joint: no biases of {missing}")
    tensors = {}
    for name, bias in biases.items():
        tensors[f"{name}.weight"] = _matrix(graph, bias)
        tensors[f"{name}.bias"] = graph.array(bias)
    kinds = {node.op_type for node in graph.of_kind(*ACTIVATIONS)}
    if len(kinds) != 1:
        raise FormatError(
            f"the joint's activations are {sorted(kinds)}, wanted one of relu, tanh, sigmoid"
        )
    return tensors, ACTIVATIONS[kinds.pop()]


def _joiner_beside(path: Path) -> Path:
    beside = path.with_name(path.name.replace("decoder", "joiner"))
    if beside == path or not beside.is_file():
        raise FormatError(
            "holds a prediction network without a joint, and there is no joiner beside it "
            f"({beside.name}); pass both: decoder.onnx and joiner.onnx in one folder"
        )
    return beside


def _tokens_beside(path: Path) -> list[str] | None:
    """Pieces of a tokens.txt beside the file, as sherpa-onnx has it."""
    beside = path.with_name("tokens.txt")
    return read_vocabulary(beside) if beside.is_file() else None


def read(path: str | os.PathLike[str], **settings: Any) -> FloatModel:
    path = Path(path)
    with open(path, "rb"), naming(path):
        graph = Graph(path)
        if not graph.of_kind("LSTM", "DynamicQuantizeLSTM"):
            kinds = {node.op_type for node in graph.nodes}
            if kinds & {"Conv", "ConvInteger"}:
                raise FormatError(
                    "stateless prediction network (embedding + convolution), not an LSTM: the graph has "
                    "Conv nodes and no LSTM"
                )
            if _bias_names(graph):
                raise FormatError(
                    "holds a joint without a prediction network: pass decoder.onnx beside it"
                )
            raise FormatError(f"the graph has no LSTM node; its operators: {sorted(kinds)}")
        tensors = {f"{EMBED}.weight": _embedding(graph), **_lstm(graph)}
        given: Mapping[str, Any] = {}
        if _bias_names(graph):
            joint, activation = _joint(graph)
        else:
            joiner = _joiner_beside(path)
            given = {"vocabulary": _tokens_beside(path)}
            with naming(joiner):
                joint, activation = _joint(Graph(joiner))
        settings = {"joint_activation": activation, **given, **settings}
        model = FloatModel.from_tensors({**tensors, **joint}, **settings)
        blank = model.embed[model.config.blank_id :][:1]
        if blank.size and np.abs(blank).max() > 0:
            log.warning(
                "%s: the embedding's blank row is not zero (up to %g): the graph starts from that row, "
                "pkrnnt from a zero vector, so the first step differs",
                path,
                np.abs(blank).max(),
            )
        return model
