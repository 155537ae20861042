"""What a user would pick instead: ONNX Runtime in int8, with graphs split by hand and IO binding.

Everything a careful user would do is done: encoder frames are projected once, the prediction
network's projection is part of its graph, argmax is part of the joint's graph, weights are int8 with
dynamic quantization (``onnxruntime.quantization``), buffers are bound once, one thread.
"""

import tempfile
from pathlib import Path

import numpy as np


def onnx_runtime(model):
    """A function from encoder frames [T, E] to tokens, or None where onnxruntime is missing."""
    try:
        import onnx
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:
        return None
    config = model.config
    layers, size, width = config.pred_layers, config.pred_hidden, config.joint_hidden

    def tensor(name, array):
        return numpy_helper.from_array(np.ascontiguousarray(array), name)

    def value(name, kind, *shape):
        return helper.make_tensor_value_info(name, kind, shape)

    real, integer = TensorProto.FLOAT, TensorProto.INT64

    def graph(name, nodes, inputs, outputs, constants):
        graph = helper.make_graph(nodes, name, inputs, outputs, constants)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=10)

    encoder = graph(
        "encoder_projection",
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Add", ["y", "b"], ["out"])],
        [value("x", real, "T", config.enc_hidden)],
        [value("out", real, "T", width)],
        [tensor("w", model.joint_enc.weight.T), tensor("b", model.joint_enc.bias)],
    )

    def onnx_gates(array):  # PyTorch's i, f, g, o as ONNX's i, o, f, c
        i, f, g, o = np.split(array, 4)
        return np.concatenate([i, o, f, g])[None]

    nodes = [helper.make_node("Gather", ["embed", "token"], ["x0"])]
    constants = [tensor("embed", model.embed)]
    states = {"h": [], "c": []}
    for layer, weights in enumerate(model.lstm):
        names = [f"w{layer}", f"r{layer}", f"b{layer}", "", f"h{layer}", f"c{layer}"]
        outputs = [f"y{layer}", f"h{layer}_out", f"c{layer}_out"]
        nodes += [
            helper.make_node("LSTM", [f"x{layer}", *names], outputs, hidden_size=size),
            helper.make_node("Squeeze", [f"y{layer}", "axis"], [f"x{layer + 1}"]),
        ]
        bias = [onnx_gates(weights.input.bias), onnx_gates(weights.hidden.bias)]
        constants += [
            tensor(f"w{layer}", onnx_gates(weights.input.weight)),
            tensor(f"r{layer}", onnx_gates(weights.hidden.weight)),
            tensor(f"b{layer}", np.concatenate(bias, axis=1)),
        ]
        for part in "hc":
            states[part].append(f"{part}{layer}")
    nodes += [
        helper.make_node("MatMul", [f"x{layers}", "w"], ["y"]),
        helper.make_node("Add", ["y", "b"], ["out"]),
    ]
    constants += [
        tensor("axis", np.array([1])),
        tensor("w", model.joint_pred.weight.T),
        tensor("b", model.joint_pred.bias),
    ]
    state_names = [f"{part}{layer}" for layer in range(layers) for part in "hc"]
    prediction = graph(
        "prediction",
        nodes,
        [value("token", integer, 1, 1), *(value(name, real, 1, 1, size) for name in state_names)],
        [
            value("out", real, 1, 1, width),
            *(value(f"{name}_out", real, 1, 1, size) for name in state_names),
        ],
        constants,
    )
    joint = graph(
        "joint",
        [
            helper.make_node("Add", ["enc", "pred"], ["sum"]),
            helper.make_node(config.joint_activation.capitalize(), ["sum"], ["hidden"]),
            helper.make_node("MatMul", ["hidden", "w"], ["y"]),
            helper.make_node("Add", ["y", "b"], ["logits"]),
            helper.make_node("ArgMax", ["logits"], ["token"], axis=1, keepdims=0),
        ],
        [value("enc", real, 1, width), value("pred", real, 1, width)],
        [value("token", integer, 1)],
        [tensor("w", model.joint_out.weight.T), tensor("b", model.joint_out.bias)],
    )  # fmt: skip

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    sessions = []
    with tempfile.TemporaryDirectory() as folder:
        for index, exported in enumerate((encoder, prediction, joint)):
            source, target = Path(folder, f"{index}.onnx"), Path(folder, f"{index}.int8.onnx")
            onnx.save(exported, source)
            quantize_dynamic(source, target, weight_type=QuantType.QInt8)
            sessions.append(
                onnxruntime.InferenceSession(
                    target.read_bytes(), options, providers=["CPUExecutionProvider"]
                )
            )
    encoder_session, prediction_session, joint_session = sessions

    def bind(session, arrays):
        binding = session.io_binding()
        held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(a) for name, a in arrays.items()}
        for item in session.get_inputs():
            binding.bind_ortvalue_input(item.name, held[item.name])
        for item in session.get_outputs():
            binding.bind_ortvalue_output(item.name, held[item.name])
        return binding, held

    # Two prediction bindings that read and write each other's state, so that adopting one is a swap.
    buffers = [{name: np.zeros((1, 1, size), np.float32) for name in state_names} for _ in range(2)]
    projection = np.zeros((1, width), np.float32)
    steps, token_arrays = [], []
    for here in range(2):
        token_array = np.zeros((1, 1), np.int64)
        arrays = {"token": token_array, "out": projection.reshape(1, 1, width)}
        arrays |= buffers[here]
        arrays |= {f"{name}_out": array for name, array in buffers[1 - here].items()}
        steps.append(bind(prediction_session, arrays)[0])
        token_arrays.append(token_array)
    enc_row, token_out = np.zeros((1, width), np.float32), np.zeros(1, np.int64)
    joint_binding, _ = bind(joint_session, {"enc": enc_row, "pred": projection, "token": token_out})
    blank = config.blank_id

    def decode(enc):
        enc_proj = encoder_session.run(None, {"x": np.asarray(enc, np.float32)})[0]
        for state in buffers:
            for array in state.values():
                array[:] = 0
        here, tokens = 0, []
        token_arrays[here][0, 0] = blank  # its embedding row is zero
        prediction_session.run_with_iobinding(steps[here])
        for row in enc_proj:
            enc_row[0] = row
            for _ in range(config.max_symbols):
                joint_session.run_with_iobinding(joint_binding)
                token = int(token_out[0])
                if token == blank:
                    break
                tokens.append(token)
                here = 1 - here
                token_arrays[here][0, 0] = token
                prediction_session.run_with_iobinding(steps[here])
        return tokens

    return decode
