"""The two models, ``FloatModel`` and ``Int8Model``: dataclasses of arrays, and their validation.

Tensors carry NVIDIA NeMo's parameter names. Arrays of a model are read-only, so one model serves
any number of threads.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pkrnnt import decoder, greedy, reference
from pkrnnt.hypothesis import Hypothesis, RnntDecodeState
from pkrnnt.joint import Int8Joint
from pkrnnt.kernels.linear import Linear
from pkrnnt.prediction import Int8Prediction, LstmLayer
from pkrnnt.reference import LstmWeights
from pkrnnt.saturation import SaturationCounters

EMBED = "decoder.prediction.embed"
LSTM = "decoder.prediction.dec_rnn.lstm"
JOINT_ENC = "joint.enc"
JOINT_PRED = "joint.pred"
JOINT_OUT = "joint.joint_net.2"  # joint_net.1 in checkpoints trained without dropout

# A requantize input shifted left stays below this, so that adding an int16 cannot leave int32.
ACCUMULATOR_LIMIT = 2**31 - 2**16


def _check_types(part: str, values: Any) -> None:
    """Every field of a dataclass of scalars holds what it is annotated with: files may hold anything."""
    for item in fields(values):
        value, kind = getattr(values, item.name), str(item.type)
        integers = value if isinstance(value, tuple) else (value,)
        if kind == "float":
            fits = type(value) is float and 0 < value < np.inf
            kind = "finite float above 0"
        elif kind in ("int", "MultiplierShift", "tuple[int, int, int]"):
            wanted = {"int": 1, "MultiplierShift": 2}.get(kind, 3)
            fits = len(integers) == wanted and all(type(one) is int for one in integers)
            fits = fits and isinstance(value, tuple) == (wanted > 1)
        else:
            fits = kind != "str" or type(value) is str
        if not fits:
            raise ValueError(f"{part}{item.name} is {value!r}, wanted {kind}")


@dataclass(frozen=True)
class Config:
    """Sizes and decoding rules of a model."""

    vocab_size: int
    """Tokens without blank (V); the joint has V + 1 output rows."""
    blank_id: int
    """Output row of blank, 0..V; NeMo puts it last."""
    pred_hidden: int
    pred_layers: int
    embed_dim: int
    joint_hidden: int
    enc_hidden: int
    joint_activation: str
    """``"relu"``, ``"sigmoid"`` or ``"tanh"``"""
    max_symbols: int = 10
    """Most tokens on one frame."""
    frame_seconds: float | None = None
    """Duration of one encoder frame, where known."""
    vocabulary: tuple[str, ...] | None = None
    """The V token pieces in the order of their ids, blank left out; None where unknown."""

    def __post_init__(self) -> None:
        _check_types("", self)
        for name in (
            "vocab_size", "pred_hidden", "pred_layers", "embed_dim", "joint_hidden", "enc_hidden",
            "max_symbols",
        ):  # fmt: skip
            value = getattr(self, name)
            least = 0 if name == "vocab_size" else 1
            if not least <= value < 2**31:
                raise ValueError(f"{name} is {value}, wanted at least {least} and below 2^31")
        if not 0 <= self.blank_id <= self.vocab_size:
            raise ValueError(
                f"blank_id is {self.blank_id}, wanted 0..{self.vocab_size}, "
                f"one of the {self.vocab_size + 1} output rows"
            )
        if self.joint_activation not in reference.ACTIVATIONS:
            raise ValueError(
                f"joint_activation is {self.joint_activation!r}, "
                f"wanted one of {sorted(reference.ACTIVATIONS)}"
            )
        if self.vocabulary is not None:
            if isinstance(self.vocabulary, str) or not all(
                isinstance(piece, str) for piece in self.vocabulary
            ):
                raise ValueError("vocabulary holds something that is not a list of str")
            object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
            if len(self.vocabulary) != self.vocab_size:
                raise ValueError(
                    f"the vocabulary has {len(self.vocabulary)} entries and the joint "
                    f"{self.vocab_size + 1} output rows, wanted {self.vocab_size} entries: "
                    f"one less than rows, blank has none"
                )
        if self.frame_seconds is not None and not (
            type(self.frame_seconds) in (int, float) and 0 < self.frame_seconds < 10
        ):
            raise ValueError(f"frame_seconds is {self.frame_seconds!r}, wanted 0..10 seconds")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Config:
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"config has unknown entries {unknown}, wanted {sorted(known)}")
        try:
            return cls(**values)
        except TypeError as error:
            raise ValueError(f"config is incomplete: {error}") from None


def _check_shapes(config: Config, embed: NDArray[Any], linears: Mapping[str, Any]) -> None:
    """Every matrix has the shape its config says, so that nothing reads beyond one."""
    size, joint = config.pred_hidden, config.joint_hidden
    wanted = {
        **{
            f"{LSTM}.weight_{suffix}_l{layer}": (
                4 * size,
                config.embed_dim if suffix == "ih" and layer == 0 else size,
            )
            for layer in range(min(config.pred_layers, len(linears)))
            for suffix in ("ih", "hh")
        },
        f"{JOINT_ENC}.weight": (joint, config.enc_hidden),
        f"{JOINT_PRED}.weight": (joint, size),
        f"{JOINT_OUT}.weight": (config.vocab_size + 1, joint),
    }
    if set(wanted) != set(linears):
        raise ValueError(
            f"the model has {(len(linears) - 3) // 2} LSTM layers, wanted {config.pred_layers}"
        )
    for name, shape in wanted.items():
        if linears[name].shape != shape:
            raise ValueError(f"tensor {name} has shape {linears[name].shape}, wanted {shape}")
    if embed.ndim != 2 or embed.shape[1] != config.embed_dim:
        raise ValueError(
            f"tensor {EMBED}.weight has shape {embed.shape}, wanted [rows, {config.embed_dim}]"
        )
    _check_embedding_rows(embed.shape[0], config)


class _Model:
    """What both models share: derived attributes on a frozen dataclass, and pickling without them."""

    config: Config

    @property
    def max_symbols(self) -> int:
        return self.config.max_symbols

    @cached_property
    def digest(self) -> str:
        """sha256 of weights and metadata: two models with one digest decode alike."""
        return digest(self.tensors(), self.meta())

    def tensors(self) -> Mapping[str, NDArray[Any]]:
        """Every array under the name it has in the file."""
        raise NotImplementedError

    def meta(self) -> dict[str, Any]:
        """Everything beside the arrays, as JSON values."""
        raise NotImplementedError

    def _derive(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        given = tuple(getattr(self, item.name) for item in fields(self) if item.init)  # type: ignore[arg-type]
        return type(self), given


@dataclass(frozen=True, eq=False)
class FloatModel(_Model):
    """A float32 RNN-T decoder: prediction network and joint. Made by ``from_tensors`` or ``load``."""

    config: Config
    embed: NDArray[np.float32]
    """[V or V + 1, embed_dim]; V rows only where blank is last"""
    lstm: tuple[LstmWeights, ...]
    """the layers, bottom first"""
    joint_enc: reference.Linear
    """[J, E]"""
    joint_pred: reference.Linear
    """[J, H]"""
    joint_out: reference.Linear
    """[V + 1, J]"""
    prediction: reference.Prediction = field(init=False, repr=False)
    joint: reference.Joint = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weights = {name: a for name, a in self.tensors().items() if a.ndim == 2}
        del weights[f"{EMBED}.weight"]
        _check_shapes(self.config, self.embed, weights)
        self._derive(
            embed=_read_only(self.embed),
            lstm=tuple(
                LstmWeights(_read_only_linear(one.input), _read_only_linear(one.hidden))
                for one in self.lstm
            ),
            joint_enc=_read_only_linear(self.joint_enc),
            joint_pred=_read_only_linear(self.joint_pred),
            joint_out=_read_only_linear(self.joint_out),
        )
        self._derive(
            prediction=reference.Prediction(self.embed, self.lstm),
            joint=reference.Joint(
                self.joint_enc, self.joint_pred, self.joint_out, self.config.joint_activation
            ),
        )

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, ArrayLike],
        *,
        vocabulary: Sequence[str] | None = None,
        blank_id: int | None = None,
        joint_activation: str = "relu",
        max_symbols: int = 10,
        frame_seconds: float | None = None,
    ) -> FloatModel:
        """A model from weights under NeMo's names; sizes are taken from their shapes.

        Args:
            tensors: float16, float32 or float64 arrays; nothing missing, nothing else.
            vocabulary: the V token pieces, blank left out.
            blank_id: output row of blank, None for the last.
            joint_activation, max_symbols, frame_seconds: as in ``Config``.

        Raises:
            ValueError: missing or unexpected tensors, shapes that contradict each other, a value
                that is not finite, or a vocabulary of another size than the joint.
        """
        found = {name: _float32(name, value) for name, value in tensors.items()}
        for part in ("weight", "bias"):  # without dropout NeMo numbers the last layer 1
            old = f"joint.joint_net.1.{part}"
            if old in found and f"{JOINT_OUT}.{part}" not in found:
                found[f"{JOINT_OUT}.{part}"] = found.pop(old)
        layers = 1
        while any(name.startswith(LSTM) and name.endswith(f"_l{layers}") for name in found):
            layers += 1
        lstm_names = [
            f"{LSTM}.{part}_{suffix}_l{layer}"
            for layer in range(layers)
            for suffix in ("ih", "hh")
            for part in ("weight", "bias")
        ]
        joint_names = [
            f"{name}.{part}"
            for name in (JOINT_ENC, JOINT_PRED, JOINT_OUT)
            for part in ("weight", "bias")
        ]
        _check_names(found, [f"{EMBED}.weight", *lstm_names, *joint_names])
        for name, value in found.items():
            wanted = 2 if ".weight" in name else 1
            if value.ndim != wanted or not value.size:
                raise ValueError(
                    f"tensor {name} has shape {value.shape}, wanted {wanted} dimensions, none empty"
                )
        embed = found[f"{EMBED}.weight"]
        rows, joint_hidden = found[f"{JOINT_OUT}.weight"].shape
        config = Config(
            vocab_size=rows - 1,
            blank_id=rows - 1 if blank_id is None else blank_id,
            pred_hidden=found[f"{LSTM}.weight_hh_l0"].shape[1],
            pred_layers=layers,
            embed_dim=embed.shape[1],
            joint_hidden=joint_hidden,
            enc_hidden=found[f"{JOINT_ENC}.weight"].shape[1],
            joint_activation=joint_activation,
            max_symbols=max_symbols,
            frame_seconds=frame_seconds,
            vocabulary=None if vocabulary is None else tuple(vocabulary),
        )
        _check_embedding_rows(embed.shape[0], config)

        def linear(weight: str, bias: str, rows: int, cols: int) -> reference.Linear:
            return reference.Linear(
                _take(found, weight, np.float32, (rows, cols)),
                _take(found, bias, np.float32, (rows,)),
            )

        def gates(suffix: str, layer: int, cols: int) -> reference.Linear:
            weight, bias = (f"{LSTM}.{part}_{suffix}_l{layer}" for part in ("weight", "bias"))
            return linear(weight, bias, 4 * config.pred_hidden, cols)

        return cls(
            config=config,
            embed=_take(found, f"{EMBED}.weight", np.float32, embed.shape),
            lstm=tuple(
                LstmWeights(
                    gates("ih", layer, config.pred_hidden if layer else config.embed_dim),
                    gates("hh", layer, config.pred_hidden),
                )
                for layer in range(layers)
            ),
            joint_enc=linear(*_parts(JOINT_ENC), joint_hidden, config.enc_hidden),
            joint_pred=linear(*_parts(JOINT_PRED), joint_hidden, config.pred_hidden),
            joint_out=linear(*_parts(JOINT_OUT), rows, joint_hidden),
        )

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Every weight under NeMo's name."""
        named: dict[str, NDArray[np.float32]] = {f"{EMBED}.weight": self.embed}
        for layer, weights in enumerate(self.lstm):
            for suffix, linear in (("ih", weights.input), ("hh", weights.hidden)):
                named[f"{LSTM}.weight_{suffix}_l{layer}"] = linear.weight
                named[f"{LSTM}.bias_{suffix}_l{layer}"] = linear.bias
        for name, linear in (
            (JOINT_ENC, self.joint_enc),
            (JOINT_PRED, self.joint_pred),
            (JOINT_OUT, self.joint_out),
        ):
            named[f"{name}.weight"] = linear.weight
            named[f"{name}.bias"] = linear.bias
        return named

    def meta(self) -> dict[str, Any]:
        """Everything beside the arrays, as JSON values."""
        return {"config": self.config.to_json()}

    def decode_frames(
        self,
        enc: ArrayLike,
        state: RnntDecodeState,
        max_symbols: int,
        counters: SaturationCounters | None = None,  # noqa: ARG002
    ) -> Hypothesis:
        """One chunk along the float path; see ``greedy.rnnt_decode_frames``. Nothing saturates."""
        return greedy.decode_frames(
            self.prediction, self.joint, self.config.blank_id, enc, state, max_symbols
        )

    def decode_utterances(
        self, utterances: Sequence[ArrayLike], max_symbols: int, first: int
    ) -> list[Hypothesis]:
        """Whole utterances one by one; ``first`` is the number of the first, for messages."""
        found = []
        for index, enc in enumerate(utterances, first):
            try:
                found.append(greedy.rnnt_greedy(self, enc, max_symbols))
            except ValueError as error:
                raise ValueError(f"utterance {index}: {error}") from None
        return found


MultiplierShift = tuple[int, int]
"""A real factor multiplier * 2**(shift - 31); multiplier is 0 or 2**30..2**31 - 1, shift -31..30."""


LINEAR_PARTS = {"weight": np.int8, "bias": np.int32, "multiplier": np.int32, "shift": np.int8}
"""Tensors of an int8 matrix in a file, and their dtypes; biases are effective, shifts one a row."""


def row_factors(linear: Linear) -> NDArray[np.float64]:
    """float64 [rows]: the real factor of each row, weight scale * input scale / output scale."""
    return np.ldexp(linear.multiplier.astype(np.float64), linear.shift.astype(np.int32) - 31)


@dataclass(frozen=True)
class LstmS8:
    """Integers of one LSTM layer beside its matrices, and the scales they came from."""

    hidden_scale: float
    hidden_zero_point: int
    cell_scale_power: int
    """the cell's scale is 2**cell_scale_power"""
    cell_clip: int
    """limit of |c| in integers, 0 for none"""
    forget_to_cell: MultiplierShift
    input_to_cell: MultiplierShift
    output: MultiplierShift


@dataclass(frozen=True)
class JointS8:
    """Integers of the joint beside its matrices, and the scales they came from."""

    enc_scale: float
    enc_inverse_scale: float
    """float32 value: a frame becomes nearest(x * enc_inverse_scale) + enc_zero_point"""
    enc_zero_point: int
    sum_scale: float
    """of the int16 projections and of their sum"""
    activation_left_shift: int
    """sigmoid and tanh: sum_scale is 2**(activation_left_shift - 12); 0 for relu"""
    hidden: MultiplierShift
    hidden_scale: float
    hidden_zero_point: int
    logit_scale: float
    softmax: tuple[int, int, int]
    """(multiplier, shift, diff_min) from logits to Q5.26"""


@dataclass(frozen=True)
class Quantization:
    """Every scalar of an int8 model; written into its file."""

    granularity: str
    """``"row"``, or ``"gate"`` where the rows of an LSTM gate share a multiplier"""
    embed_scale: float
    lstm: tuple[LstmS8, ...]
    joint: JointS8
    rounding: str = "double"
    """of requantization: CMSIS-NN's default, the only one there is so far"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Quantization:
        try:
            joint = dict(values["joint"])
            layers = [dict(layer) for layer in values["lstm"]]
            for scalars in (joint, *layers):
                for name, value in scalars.items():
                    if isinstance(value, list):
                        scalars[name] = tuple(value)
            return cls(
                **{k: v for k, v in values.items() if k not in ("lstm", "joint")},
                lstm=tuple(LstmS8(**layer) for layer in layers),
                joint=JointS8(**joint),
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"quantization entries do not fit: {error!r}") from None


@dataclass(frozen=True, eq=False)
class Int8Model(_Model):
    """An int8 RNN-T decoder; every integer frozen. Made by ``quant.quantize_model`` or ``load``.

    ``docs/fixed_point.md`` defines what its integers mean.
    """

    config: Config
    quantization: Quantization
    embed: NDArray[np.int8]
    """[V or V + 1, embed_dim], zero point 0"""
    lstm: tuple[tuple[Linear, Linear], ...]
    """(input, hidden) matrices of each layer, bottom first; gate order i, f, g, o"""
    joint_enc: Linear
    joint_pred: Linear
    joint_out: Linear
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """how the model was made: JSON values"""
    gate_table: bool = True
    """whether layer 0's input gates are tabled for every token: faster, the same bytes"""
    prediction: Int8Prediction = field(init=False, repr=False)
    joint: Int8Joint = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._derive(
            embed=_read_only(self.embed),
            # Through JSON: a copy of what a file would hold, and nothing that it could not.
            provenance=json.loads(json.dumps(dict(self.provenance))),
        )
        self._validate()
        scalars = self.quantization.joint
        layers = [
            LstmLayer(
                input,
                hidden,
                hidden_zero_point=layer.hidden_zero_point,
                cell_scale_power=layer.cell_scale_power,
                cell_clip=layer.cell_clip,
                forget_to_cell=layer.forget_to_cell,
                input_to_cell=layer.input_to_cell,
                output=layer.output,
            )
            for (input, hidden), layer in zip(self.lstm, self.quantization.lstm, strict=True)
        ]
        self._derive(
            prediction=Int8Prediction(self.embed, layers, self.gate_table),
            joint=Int8Joint(
                self.joint_enc,
                self.joint_pred,
                self.joint_out,
                enc_inverse_scale=scalars.enc_inverse_scale,
                enc_zero_point=scalars.enc_zero_point,
                activation=self.config.joint_activation,
                activation_left_shift=scalars.activation_left_shift,
                hidden=scalars.hidden,
                hidden_zero_point=scalars.hidden_zero_point,
                softmax=scalars.softmax,
            ),
        )

    @classmethod
    def from_tensors(
        cls,
        tensors: dict[str, NDArray[Any]],
        config: Config,
        quantization: Quantization,
        provenance: Mapping[str, Any],
        *,
        kernels: str | None = None,
        gate_table: bool = True,
    ) -> Int8Model:
        """A model from the tensors of its file.

        Args:
            tensors: as in a file; emptied, so that no weight is held packed and unpacked at once.
            config, quantization, provenance: as in a file.
            kernels: kernel variant, None for the one in use.
            gate_table: whether to table layer 0's input gates.

        Raises:
            ValueError: names the tensor that does not fit.
        """
        found = tensors
        if config.pred_layers > len(found):
            raise ValueError(f"{len(found)} tensors cannot hold {config.pred_layers} LSTM layers")
        _check_names(found, _int8_names(config))

        def linear(names: Mapping[str, str], rows: int, cols: int) -> Linear:
            arrays = {
                part: _take(
                    found, name, LINEAR_PARTS[part], (rows, cols) if part == "weight" else (rows,)
                )
                for part, name in names.items()
            }
            return Linear(**arrays, kernels=kernels)

        size = config.pred_hidden
        embed_shape = np.shape(found[f"{EMBED}.weight"])
        if len(embed_shape) != 2:
            raise ValueError(f"tensor {EMBED}.weight has shape {embed_shape}, wanted two dimensions")
        _check_embedding_rows(embed_shape[0], config)
        return cls(
            config=config,
            quantization=quantization,
            embed=_take(found, f"{EMBED}.weight", np.int8, (embed_shape[0], config.embed_dim)),
            lstm=tuple(
                (
                    linear(_gate_parts("ih", layer), 4 * size, size if layer else config.embed_dim),
                    linear(_gate_parts("hh", layer), 4 * size, size),
                )
                for layer in range(config.pred_layers)
            ),
            joint_enc=linear(_linear_parts(JOINT_ENC), config.joint_hidden, config.enc_hidden),
            joint_pred=linear(_linear_parts(JOINT_PRED), config.joint_hidden, size),
            joint_out=linear(_linear_parts(JOINT_OUT), config.vocab_size + 1, config.joint_hidden),
            provenance=provenance,
            gate_table=gate_table,
        )

    def linears(self) -> dict[str, Linear]:
        """Every matrix under NeMo's name of its weight."""
        named: dict[str, Linear] = {}
        for layer, (input, hidden) in enumerate(self.lstm):
            named[f"{LSTM}.weight_ih_l{layer}"] = input
            named[f"{LSTM}.weight_hh_l{layer}"] = hidden
        named[f"{JOINT_ENC}.weight"] = self.joint_enc
        named[f"{JOINT_PRED}.weight"] = self.joint_pred
        named[f"{JOINT_OUT}.weight"] = self.joint_out
        return named

    def layer_inputs(self) -> dict[str, tuple[float, int]]:
        """(scale, zero point) of the int8 input of every matrix, by the name of its weight."""
        scalars = self.quantization.joint
        inputs = {}
        x = (self.quantization.embed_scale, 0)
        for index, layer in enumerate(self.quantization.lstm):
            inputs[f"{LSTM}.weight_ih_l{index}"] = x
            x = (layer.hidden_scale, layer.hidden_zero_point)
            inputs[f"{LSTM}.weight_hh_l{index}"] = x
        inputs[f"{JOINT_ENC}.weight"] = (scalars.enc_scale, scalars.enc_zero_point)
        inputs[f"{JOINT_PRED}.weight"] = x
        inputs[f"{JOINT_OUT}.weight"] = (scalars.hidden_scale, scalars.hidden_zero_point)
        return inputs

    def weight_scales(self) -> dict[str, NDArray[np.float64]]:
        """Scale of each weight tensor: float64 [rows], or [1] for the embedding."""
        scalars = self.quantization.joint
        outputs = dict.fromkeys(self.linears(), GATE_SCALE)
        outputs[f"{JOINT_ENC}.weight"] = outputs[f"{JOINT_PRED}.weight"] = scalars.sum_scale
        outputs[f"{JOINT_OUT}.weight"] = scalars.logit_scale
        inputs = self.layer_inputs()
        return {
            f"{EMBED}.weight": np.array([self.quantization.embed_scale]),
            **{
                name: row_factors(linear) * outputs[name] / inputs[name][0]
                for name, linear in self.linears().items()
            },
        }

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Every array under the name it has in the file; weights and biases are copies."""
        named: dict[str, NDArray[Any]] = {f"{EMBED}.weight": self.embed}
        for name, linear in self.linears().items():
            for part in LINEAR_PARTS:
                named[name.replace("weight", part)] = getattr(linear, part)
        return named

    def meta(self) -> dict[str, Any]:
        """Everything beside the arrays, as JSON values."""
        return {
            "config": self.config.to_json(),
            "quantization": self.quantization.to_json(),
            "provenance": dict(self.provenance),
        }

    def configured(self, *, kernels: str | None = None, gate_table: bool = True) -> Int8Model:
        """The same model for another kernel variant, or without the gate table; the same results.

        Raises:
            ValueError: a kernel variant that is not available here.
        """
        return Int8Model.from_tensors(
            self.tensors(),
            self.config,
            self.quantization,
            self.provenance,
            kernels=kernels,
            gate_table=gate_table,
        )

    def decode_frames(
        self,
        enc: ArrayLike,
        state: RnntDecodeState,
        max_symbols: int,
        counters: SaturationCounters | None = None,
    ) -> Hypothesis:
        """One chunk by the fused decoder; see ``greedy.rnnt_decode_frames``."""
        return decoder.decode_frames(
            self.prediction, self.joint, self.config.blank_id, enc, state, max_symbols, counters
        )

    def decode_utterances(
        self, utterances: Sequence[ArrayLike], max_symbols: int, first: int
    ) -> list[Hypothesis]:
        """Whole utterances in one stretch without the GIL; ``first`` is the number of the first."""
        start = greedy.rnnt_decode_init(self)
        return decoder.decode_utterances(
            self.prediction, self.joint, self.config.blank_id, utterances, start, max_symbols, first
        )

    def _validate(self) -> None:
        """The bounds of docs/fixed_point.md section 8, on which the kernels rely."""
        scalars = self.quantization
        if scalars.rounding != "double":
            raise ValueError(f"rounding is {scalars.rounding!r}, wanted 'double'")
        if scalars.granularity not in ("row", "gate"):
            raise ValueError(f"granularity is {scalars.granularity!r}, wanted 'row' or 'gate'")
        if len(scalars.lstm) != self.config.pred_layers:
            raise ValueError(
                f"quantization has {len(scalars.lstm)} LSTM layers, wanted {self.config.pred_layers}"
            )
        _check_types("", scalars)
        _check_types("joint ", scalars.joint)
        for index, layer in enumerate(scalars.lstm):
            _check_types(f"LSTM layer {index} ", layer)
        _check_shapes(self.config, self.embed, self.linears())
        if self.embed.dtype != np.int8:
            raise ValueError(f"tensor {EMBED}.weight has dtype {self.embed.dtype}, wanted int8")
        joint = scalars.joint
        limits: list[tuple[str, Any, int, int]] = [
            ("joint enc_zero_point", joint.enc_zero_point, -128, 127),
            ("joint hidden_zero_point", joint.hidden_zero_point, -128, 127),
            ("joint activation_left_shift", joint.activation_left_shift, -4, 4),
            ("softmax multiplier", joint.softmax[0], 2**30, 2**31 - 1),
            ("softmax shift", joint.softmax[1], 0, 31),
            ("softmax diff_min", joint.softmax[2], -(2**31), 0),
        ]
        pairs = {"joint hidden": joint.hidden}
        for index, layer in enumerate(scalars.lstm):
            limits += [
                (f"LSTM layer {index} hidden_zero_point", layer.hidden_zero_point, -128, 127),
                (f"LSTM layer {index} cell_scale_power", layer.cell_scale_power, -16, -8),
                (f"LSTM layer {index} cell_clip", layer.cell_clip, 0, 32767),
            ]
            for name in ("forget_to_cell", "input_to_cell", "output"):
                pair = getattr(layer, name)
                pairs[f"LSTM layer {index} {name}"] = pair
                # Products of two Q0.15 values reach 2^30: they may only be shifted right.
                limits.append((f"LSTM layer {index} {name} shift", pair[1], -31, 0))
        limits.append(("joint hidden shift", joint.hidden[1], -31, 15))
        for name, value, low, high in limits:
            if not low <= value <= high:
                raise ValueError(f"{name} is {value}, wanted {low}..{high}")
        with np.errstate(over="ignore", under="ignore"):
            inverse = float(np.float32(joint.enc_inverse_scale))
        if inverse != joint.enc_inverse_scale:
            raise ValueError(
                f"joint enc_inverse_scale is {joint.enc_inverse_scale}, wanted a finite float32"
            )
        for name, (multiplier, shift) in pairs.items():
            _check_multipliers(name, np.array([multiplier]), np.array([shift]))
        _check_weights(f"{EMBED}.weight", self.embed)
        for name, linear in self.linears().items():
            _check_linear(name, linear)
            if scalars.granularity == "gate" and name.startswith(LSTM):
                _check_gates(name, linear)
        wide = int(np.max(self.joint_out.shift))
        if wide > 0:
            raise ValueError(
                f"{JOINT_OUT}.shift holds {wide}, wanted 0 or less: logits keep a common scale"
            )


GATE_SCALE = 2.0**-12
"""Scale of the int16 gate pre-activations, Q3.12."""


def _parts(name: str) -> tuple[str, str]:
    return f"{name}.weight", f"{name}.bias"


def _linear_parts(name: str) -> dict[str, str]:
    return {part: f"{name}.{part}" for part in LINEAR_PARTS}


def _gate_parts(suffix: str, layer: int) -> dict[str, str]:
    return {part: f"{LSTM}.{part}_{suffix}_l{layer}" for part in LINEAR_PARTS}


def _int8_names(config: Config) -> list[str]:
    groups = [
        *(_gate_parts(suffix, layer) for layer in range(config.pred_layers) for suffix in ("ih", "hh")),
        *(_linear_parts(name) for name in (JOINT_ENC, JOINT_PRED, JOINT_OUT)),
    ]  # fmt: skip
    return [f"{EMBED}.weight", *(name for group in groups for name in group.values())]


def _float32(name: str, value: ArrayLike) -> NDArray[np.float32]:
    array = np.asarray(value)
    if array.dtype.kind != "f":
        raise ValueError(f"tensor {name} has dtype {array.dtype}, wanted a floating-point type")
    with np.errstate(over="ignore"):  # what overflows float32 is refused as infinite
        array = array.astype(np.float32)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"tensor {name} holds {array[index]} at index {list(index)} "
            f"({len(bad)} such values), wanted finite weights"
        )
    return array


def _check_names(found: Mapping[str, Any], wanted: list[str]) -> None:
    missing = [name for name in wanted if name not in found]
    unexpected = sorted(set(found) - set(wanted))
    if missing or unexpected:
        raise ValueError(
            f"tensors do not fit an RNN-T decoder: missing {missing or 'none'}, "
            f"unexpected {unexpected or 'none'}"
        )


def _take(tensors: dict[str, Any], name: str, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Removes a tensor from the dict, an array of the dtype and shape it must have."""
    array = np.asarray(tensors.pop(name))
    if array.dtype != dtype:
        raise ValueError(f"tensor {name} has dtype {array.dtype}, wanted {np.dtype(dtype)}")
    if array.shape != shape:
        raise ValueError(f"tensor {name} has shape {array.shape}, wanted {shape}")
    return array


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A copy of its own that nobody can write to."""
    array = np.array(array, order="C")
    array.flags.writeable = False
    return array


def _read_only_linear(linear: reference.Linear) -> reference.Linear:
    return reference.Linear(_read_only(linear.weight), _read_only(linear.bias))


def _check_embedding_rows(rows: int, config: Config) -> None:
    """An embedding has a row for every output row, or none for blank where blank is last."""
    outputs = config.vocab_size + 1
    if rows != outputs and not (rows == outputs - 1 and config.blank_id == config.vocab_size):
        raise ValueError(
            f"the embedding has {rows} rows and the joint {outputs} output rows, wanted "
            f"{outputs} or {outputs - 1} embedding rows; more output rows than that are not an "
            f"RNN-T's (a TDT model adds one per duration)"
        )


def _check_weights(name: str, weight: NDArray[np.int8]) -> None:
    """Weights keep to [-127, 127], on which kernels rely."""
    if (weight == -128).any():
        index = [int(i) for i in np.argwhere(weight == -128)[0]]
        raise ValueError(f"tensor {name} holds -128 at index {index}, wanted -127..127")


def _check_multipliers(name: str, multiplier: NDArray[Any], shift: NDArray[Any]) -> None:
    """Multipliers are 0 or normalized Q31 mantissas; shifts -31..30."""
    bad = (multiplier != 0) & ((multiplier < 2**30) | (multiplier > 2**31 - 1))
    bad |= (shift < -31) | (shift > 30)
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{name} row {row} has multiplier {int(multiplier[row])} and shift "
            f"{int(shift[row])}, wanted 0 or 2^30..2^31-1, and -31..30"
        )


def _check_gates(name: str, linear: Linear) -> None:
    """The rows of an LSTM gate share one multiplier and shift, as CMSIS-NN's LSTM wants them."""
    pairs = np.stack([linear.multiplier, linear.shift]).reshape(2, 4, -1)
    if (pairs != pairs[:, :, :1]).any():
        raise ValueError(f"{name} has several multipliers in a gate, wanted one: granularity is 'gate'")


def _check_linear(name: str, linear: Linear) -> None:
    """Proves from the real weights that no accumulator, shifted as its row says, leaves int32."""
    weight = linear.weight
    _check_weights(name, weight)
    _check_multipliers(name, linear.multiplier, linear.shift)
    bound = np.abs(weight).sum(axis=1, dtype=np.int64) * 128
    bound = (bound + np.abs(linear.bias.astype(np.int64))).astype(object)
    bound <<= np.maximum(linear.shift, 0).astype(object)
    if (bound >= ACCUMULATOR_LIMIT).any():
        row = int(np.argmax(bound >= ACCUMULATOR_LIMIT))
        raise ValueError(
            f"{name} row {row} may reach {bound[row]} in its accumulator, "
            f"wanted less than {ACCUMULATOR_LIMIT}"
        )


def digest(tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> str:
    """sha256 of arrays and JSON values, the same whatever the order they come in."""
    sha = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        sha.update(f"\n{name} {little.dtype.str} {little.shape}\n".encode())
        sha.update(little.data)
    return sha.hexdigest()
