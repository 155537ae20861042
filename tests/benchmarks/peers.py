"""What a user would pick instead: ONNX Runtime and sherpa-onnx, weights in int8, one thread.

Both get dynamic quantization (``onnxruntime.quantization``), as sherpa-onnx publishes its models.
"""

import tempfile
from pathlib import Path

import numpy as np

try:
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime.quantization import QuantType, quantize_dynamic
except ImportError:
    onnxruntime = None
try:
    import sherpa_onnx
except ImportError:
    sherpa_onnx = None

SHORTEST = 50  # feature frames of sherpa-onnx's first utterance


def tensor(name, array):
    return numpy_helper.from_array(np.ascontiguousarray(array), name)


def value(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def graph(name, nodes, inputs, outputs, constants):
    made = helper.make_graph(nodes, name, inputs, outputs, constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def lstm(layer, weights, size):
    """An LSTM node and its constants: PyTorch's gates i, f, g, o are ONNX's i, o, f, c."""

    def gates(array):
        i, f, g, o = np.split(array, 4)
        return np.concatenate([i, o, f, g])[None]

    inputs = [f"x{layer}", f"w{layer}", f"r{layer}", f"b{layer}", "", f"h{layer}", f"c{layer}"]
    outputs = [f"y{layer}", f"h{layer}_out", f"c{layer}_out"]
    bias = [gates(weights.input.bias), gates(weights.hidden.bias)]
    return helper.make_node("LSTM", inputs, outputs, hidden_size=size), [
        tensor(f"w{layer}", gates(weights.input.weight)),
        tensor(f"r{layer}", gates(weights.hidden.weight)),
        tensor(f"b{layer}", np.concatenate(bias, axis=1)),
    ]


def onnx_runtime(model):
    """A function from encoder frames [T, E] to tokens, or None where onnxruntime is missing.

    Everything a careful user would do is done: encoder frames are projected once, the prediction
    network's projection is part of its graph, argmax is part of the joint's graph, buffers are bound
    once.
    """
    if onnxruntime is None:
        return None
    config = model.config
    layers, size, width = config.pred_layers, config.pred_hidden, config.joint_hidden
    real, integer = TensorProto.FLOAT, TensorProto.INT64

    encoder = graph(
        "encoder_projection",
        [node("MatMul", "x w", "y"), node("Add", "y b", "out")],
        [value("x", real, "T", config.enc_hidden)],
        [value("out", real, "T", width)],
        [tensor("w", model.joint_enc.weight.T), tensor("b", model.joint_enc.bias)],
    )

    nodes = [node("Gather", "embed token", "x0")]
    constants = [tensor("embed", model.embed)]
    states = {"h": [], "c": []}
    for layer, weights in enumerate(model.lstm):
        made, weights = lstm(layer, weights, size)
        nodes += [made, node("Squeeze", f"y{layer} axis", f"x{layer + 1}")]
        constants += weights
        for part in "hc":
            states[part].append(f"{part}{layer}")
    nodes += [
        node("MatMul", f"x{layers} w", "y"),
        node("Add", "y b", "out"),
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
            node("Add", "enc pred", "sum"),
            node(config.joint_activation.capitalize(), "sum", "hidden"),
            node("MatMul", "hidden w", "y"),
            node("Add", "y b", "logits"),
            node("ArgMax", "logits", "token", axis=1, keepdims=0),
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


def sherpa(model, utterances):
    """A function from an utterance's number to its tokens, or None where sherpa-onnx is missing.

    sherpa-onnx takes audio, so its encoder is a graph that holds the frames of all utterances and
    gives those whose number the length of the audio tells; features are computed beforehand.
    """
    if onnxruntime is None or sherpa_onnx is None:
        return None
    config = model.config
    layers, size = config.pred_layers, config.pred_hidden
    real, integer, short = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32

    ends = np.cumsum([0, *map(len, utterances)])
    encoder = graph(
        "encoder",
        [
            node("Sub", "length shortest", "number"),
            node("Gather", "starts number", "start"),
            node("Gather", "ends number", "end"),
            node("Slice", "frames start end axis", "chosen"),
            node("Transpose", "chosen", "turned", perm=[0, 2, 1]),
            node("Identity", "turned", "outputs"),
            node("Sub", "end start", "encoded_lengths"),
        ],
        [value("audio_signal", real, 1, 80, "T"), value("length", integer, 1)],
        [value("outputs", real, 1, config.enc_hidden, "U"), value("encoded_lengths", integer, 1)],
        [
            tensor("shortest", np.array([SHORTEST])),
            tensor("starts", ends[:-1]),
            tensor("ends", ends[1:]),
            tensor("axis", np.array([1])),
            tensor("frames", np.concatenate(utterances)[None].astype(np.float32)),
        ],
    )
    helper.set_model_props(
        encoder,
        {
            "vocab_size": str(config.vocab_size),
            "subsampling_factor": "8",
            "normalize_type": "",
            "pred_rnn_layers": str(layers),
            "pred_hidden": str(size),
            "feat_dim": "80",
        },
    )
    nodes = [node("Gather", "embed targets", "rows"), node("Transpose", "rows", "x0", perm=[1, 0, 2])]
    constants = [tensor("embed", model.embed), tensor("axis1", np.array([1]))]
    for layer, weights in enumerate(model.lstm):
        made, weights = lstm(layer, weights, size)
        bounds = f"from{layer} to{layer} axis0"
        nodes += [
            node("Slice", f"h {bounds}", f"h{layer}"),
            node("Slice", f"c {bounds}", f"c{layer}"),
            made,
            node("Squeeze", f"y{layer} axis1", f"x{layer + 1}"),
        ]
        constants += [
            *weights,
            tensor(f"from{layer}", np.array([layer])),
            tensor(f"to{layer}", np.array([layer + 1])),
        ]
    for part in "hc":
        names = " ".join(f"{part}{layer}_out" for layer in range(layers))
        nodes.append(node("Concat", names, f"{part}_out", axis=0))
    nodes += [
        node("Transpose", f"x{layers}", "outputs", perm=[1, 2, 0]),
        node("Identity", "target_length", "lengths"),
    ]
    state = (real, layers, 1, size)
    decoder = graph(
        "decoder",
        nodes,
        [
            value("targets", short, 1, 1), value("target_length", short, 1),
            value("h", *state), value("c", *state),
        ],
        [
            value("outputs", real, 1, size, 1), value("lengths", short, 1),
            value("h_out", *state), value("c_out", *state),
        ],
        [*constants, tensor("axis0", np.array([0]))],
    )  # fmt: skip
    joiner = graph(
        "joiner",
        [
            node("Transpose", "encoder_outputs", "e", perm=[0, 2, 1]),
            node("MatMul", "e w_enc", "ew"),
            node("Add", "ew b_enc", "enc"),
            node("Transpose", "decoder_outputs", "d", perm=[0, 2, 1]),
            node("MatMul", "d w_pred", "dw"),
            node("Add", "dw b_pred", "pred"),
            node("Unsqueeze", "enc two", "enc4"),
            node("Unsqueeze", "pred one", "pred4"),
            node("Add", "enc4 pred4", "sum"),
            node(config.joint_activation.capitalize(), "sum", "hidden"),
            node("MatMul", "hidden w_out", "ow"),
            node("Add", "ow b_out", "outputs"),
        ],
        [
            value("encoder_outputs", real, 1, config.enc_hidden, "T"),
            value("decoder_outputs", real, 1, size, "U"),
        ],
        [value("outputs", real, 1, "T", "U", config.vocab_size + 1)],
        [
            tensor("one", np.array([1])),
            tensor("two", np.array([2])),
            *(
                item
                for name in ("enc", "pred", "out")
                for linear in [getattr(model, f"joint_{name}")]
                for item in (tensor(f"w_{name}", linear.weight.T), tensor(f"b_{name}", linear.bias))
            ),
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name, exported in (("encoder", encoder), ("decoder", decoder), ("joiner", joiner)):
            paths[name] = str(Path(folder, f"{name}.onnx"))
            onnx.save(exported, paths[name])
            if name != "encoder":
                source, paths[name] = paths[name], str(Path(folder, f"{name}.int8.onnx"))
                quantize_dynamic(source, paths[name], weight_type=QuantType.QInt8)
        tokens = Path(folder, "tokens.txt")
        pieces = [f"t{index} {index}\n" for index in range(config.vocab_size)]
        tokens.write_text("".join(pieces) + f"<blk> {config.vocab_size}\n")
        recognizer = sherpa_onnx.OfflineRecognizer.from_transducer(
            **paths, tokens=str(tokens), model_type="nemo_transducer", num_threads=1
        )
    streams = []
    for number in range(len(utterances)):
        stream = recognizer.create_stream()
        stream.accept_waveform(16000, np.zeros((SHORTEST + number) * 160, np.float32))
        streams.append(stream)

    def decode(number):
        recognizer.decode_stream(streams[number])
        return [int(token[1:]) for token in streams[number].result.tokens]

    return decode
