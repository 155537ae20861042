"""docs/fixed_point.md once more in plain Python integers: slow, without NumPy arithmetic, and written
from the text of the specification rather than from the kernels. Nothing here can wrap around."""

INT32 = 2**31


def dhm(a, b):
    return (a * b + 2**30) >> 31


def dpot(x, e):
    mask = 2**e - 1
    return (x >> e) + int((x & mask) > (mask >> 1) + (x < 0))


def requantize(v, m, s):
    shifted = v * 2 ** max(s, 0)
    assert -INT32 <= shifted < INT32, "the loader must exclude this"
    return dpot(dhm(shifted, m), max(-s, 0))


def clamp(v, low, high):
    return max(low, min(high, v))


def sat8(v):
    return clamp(v, -128, 127)


def sat16(v):
    return clamp(v, -32768, 32767)


def activation(x, left_shift, kind, table):
    n = max(-left_shift, 0)
    d = (x * 3 * 2 ** max(left_shift, 0) + (2 ** (n - 1) if n else 0)) >> n
    k = 9 if kind == "sigmoid" else 8
    u, f = abs(d) >> k, abs(d) & (2**k - 1)
    if u >= 255:
        r = 0x7FFF << 10 if kind == "sigmoid" else 0xFFFF << 8
    else:
        r = (table[u] << k) + f * (table[u + 1] - table[u])
    if kind == "sigmoid":
        return (r + 512) >> 10 if d >= 0 else (2**25 - r + 511) >> 10
    return (r - 2**23 + 128) >> 8 if d >= 0 else (-r + 2**23 + 127) >> 8


def linear(weight, bias, multiplier, shift, x):
    """R(bias + W x) by rows; everything a nested list of ints."""
    out = []
    for row, b, m, s in zip(weight, bias, multiplier, shift, strict=True):
        acc = b + sum(w * v for w, v in zip(row, x, strict=True))
        assert abs(acc) < INT32
        out.append(requantize(acc, m, s))
    return out


def lstm_step(layer, x, h, c, table):
    """(h', c') of one layer; ``layer`` is the dict that ``plain_model`` makes."""
    size = len(h)
    a = [sat16(v) for v in linear(*layer["input"], x)]
    b = linear(*layer["hidden"], h)
    pre = [sat16(p + q) for p, q in zip(a, b, strict=True)]
    limit = layer["cell_clip"]
    low, high = (-limit, limit) if limit > 0 else (-32768, 32767)
    h_new, c_new = [], []
    for j in range(size):
        i, f, g, o = (
            activation(pre[gate * size + j], 0, "tanh" if gate == 2 else "sigmoid", table)
            for gate in range(4)
        )
        carried = sat16(requantize(f * c[j], *layer["forget_to_cell"]))
        cell = clamp(requantize(i * g, *layer["input_to_cell"]) + carried, low, high)
        squashed = activation(cell, layer["cell_scale_power"] + 12, "tanh", table)
        c_new.append(cell)
        h_new.append(sat8(requantize(o * squashed, *layer["output"]) + layer["hidden_zero_point"]))
    return h_new, c_new


K = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def exp_negative(v):
    if v == 0:
        return 2**31 - 1
    w = (v & (2**24 - 1)) - 2**24
    rem = w - v
    x = (w << 5) + 2**28
    x2 = dhm(x, x)
    c = 1895147668
    inner = dhm(dpot(dhm(x2, x2), 2) + dhm(x2, x), 715827883) + x2
    r = c + dhm(c, x + dpot(inner, 1))
    for k, factor in enumerate(K):
        if rem >> (24 + k) & 1:
            r = dhm(r, factor)
    return r


def reciprocal(v):
    t = v + 2**31 - 1
    h = (t + 1) // 2 if t >= 0 else -((-t + 1) // 2)
    x = 1515870810 + dhm(h, -1010580540)
    for _ in range(3):
        x += clamp(dhm(x, 2**29 - dhm(h, x)) * 4, -INT32, INT32 - 1)
    return clamp(x * 2, -INT32, INT32 - 1)


def confidence_q15(logits, k, softmax):
    m, s, diff_min = softmax
    n = len(logits)
    if n == 1:
        return 32767
    top = max(logits)
    e = {
        v: exp_negative(dhm((logit - top) * 2**s, m))
        for v, logit in enumerate(logits)
        if logit - top >= diff_min
    }
    total = min(sum(dpot(value, 12) for value in e.values()), 2**32 - 1)
    headroom = 32 - total.bit_length()
    q = reciprocal((total << headroom) - 2**31)
    y = clamp(dpot(dhm(q, e[k]), 12 - headroom + 15) - 32768, -32768, 32767)
    return clamp((n * (y + 32768) - 65536) // (2 * (n - 1)), 0, 32767)


def joint_logits(joint, enc_proj, pred_proj, table):
    hidden = []
    for p, q in zip(enc_proj, pred_proj, strict=True):
        total = sat16(p + q)
        if joint["activation"] == "relu":
            value = max(total, 0)
        else:
            value = activation(total, joint["left_shift"], joint["activation"], table)
        hidden.append(sat8(requantize(value, *joint["hidden"]) + joint["hidden_zero_point"]))
    return linear(*joint["out"], hidden)


def plain_model(model):
    """A model's integers as nested lists, for the functions here."""

    def parts(linear):
        return [getattr(linear, part).tolist() for part in ("weight", "bias", "multiplier", "shift")]

    scalars = model.quantization
    layers = [
        {
            "input": parts(input),
            "hidden": parts(hidden),
            "hidden_zero_point": layer.hidden_zero_point,
            "cell_scale_power": layer.cell_scale_power,
            "cell_clip": layer.cell_clip,
            "forget_to_cell": layer.forget_to_cell,
            "input_to_cell": layer.input_to_cell,
            "output": layer.output,
        }
        for (input, hidden), layer in zip(model.lstm, scalars.lstm, strict=True)
    ]
    joint = {
        "activation": model.config.joint_activation,
        "left_shift": scalars.joint.activation_left_shift,
        "hidden": scalars.joint.hidden,
        "hidden_zero_point": scalars.joint.hidden_zero_point,
        "softmax": scalars.joint.softmax,
        "enc": parts(model.joint_enc),
        "pred": parts(model.joint_pred),
        "out": parts(model.joint_out),
    }
    return {"embed": model.embed.tolist(), "layers": layers, "joint": joint}


def greedy(plain, enc_int8, blank_id, max_symbols, table):
    """Tokens, frames, Q0.15 confidences and the adopted (h, c) of a whole utterance of int8 frames."""
    h = [[layer["hidden_zero_point"]] * len(layer["hidden"][0][0]) for layer in plain["layers"]]
    c = [[0] * len(row) for row in h]
    joint, last = plain["joint"], None
    tokens, frames, confidences = [], [], []
    ahead = None
    for t, frame in enumerate(enc_int8):
        enc_proj = [sat16(v) for v in linear(*joint["enc"], frame)]
        for _ in range(max_symbols):
            if ahead is None:
                x = [0] * len(plain["embed"][0]) if last is None else plain["embed"][last]
                stepped = []
                for layer, h_l, c_l in zip(plain["layers"], h, c, strict=True):
                    x, c_new = lstm_step(layer, x, h_l, c_l, table)
                    stepped.append((x, c_new))
                ahead = [sat16(v) for v in linear(*joint["pred"], x)], stepped
            logits = joint_logits(joint, enc_proj, ahead[0], table)
            token = logits.index(max(logits))
            if token == blank_id:
                break
            tokens.append(token)
            frames.append(t)
            confidences.append(confidence_q15(logits, token, joint["softmax"]))
            h, c = map(list, zip(*ahead[1], strict=True))
            last, ahead = token, None
    return tokens, frames, confidences, h, c
