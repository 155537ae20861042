"""What the user sees: a progress bar, a table, JSON."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from tqdm import tqdm

from quant.attribution import TensorCost
from quant.calibration import POSITIONS, Agreement, Disagreement

# A site that saturates more often than this is worth a word.
SATURATION_WARNING = 0.01


def progress(items: Iterable[Any], label: str) -> Iterable[Any]:
    """A progress bar on standard error, shown once a loop has taken two seconds."""
    return tqdm(items, desc=label, delay=2, leave=False, dynamic_ncols=True)


def _divergence(found: Disagreement) -> dict[str, Any]:
    return {
        "utterance": found.utterance,
        "frame": found.frame,
        "float_label": found.float_label,
        "int8_label": found.int8_label,
        "float_margin": found.margin,
    }


def agreement_json(result: Agreement) -> dict[str, Any]:
    """One section of the report, as JSON values."""
    kinds = result.kinds()
    first = {found.utterance: found for found in result.disagreements if found.first}
    return {
        "utterances": result.utterances,
        "joint_calls": result.joint_calls,
        "argmax_agreement": result.argmax_agreement,
        "argmax_agreement_nonblank": result.argmax_agreement_nonblank,
        "disagreements": {kind: len(found) for kind, found in kinds.items()},
        "disagreement_margins": {
            kind: {
                "median": median([one.margin for one in found]),
                "max": max(one.margin for one in found),
            }
            for kind, found in kinds.items()
            if found
        },
        "utterances_identical": result.utterances_identical,
        "utterances_identical_frames": result.utterances_identical_frames,
        "different_utterances": [_divergence(first[index]) for index in result.different_tokens],
        "tokens": result.tokens,
        "token_edits": result.token_edits,
        "words": result.words,
        "wer_float": result.word_error_rate(result.word_errors_float),
        "wer_int8": result.word_error_rate(result.word_errors_int8),
        "by_position": [
            {"tokens_before": [low, high], "joint_calls": calls, "agreeing": agreeing}
            for (low, high), (calls, agreeing) in zip(POSITIONS, result.by_position, strict=True)
            if calls
        ],
        "saturation": result.saturation,
    }


def tensor_json(cost: TensorCost) -> dict[str, Any]:
    return {name: getattr(cost, name) for name in TensorCost.__dataclass_fields__}


def saturation_warnings(name: str, result: Agreement) -> list[str]:
    """A sentence for every place that saturates often."""
    return [
        f"{name}: {counts['saturated'] / counts['total']:.1%} of the {site} values saturate; "
        f"the calibration frames may not be like these"
        for site, counts in result.saturation.items()
        if counts["total"] and counts["saturated"] > SATURATION_WARNING * counts["total"]
    ]


def table(rows: list[list[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in rows
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f} %"


def _largest_margin(found: list[Disagreement]) -> str:
    return f" (float margin up to {max(one.margin for one in found):.3f})" if found else ""


def agreement_table(sections: dict[str, Agreement]) -> str:
    """The agreement figures, one column a section."""
    columns = []
    for result in sections.values():
        kinds = result.kinds()
        columns.append(
            [
                str(result.utterances),
                str(result.joint_calls),
                _percent(result.argmax_agreement),
                _percent(result.argmax_agreement_nonblank),
                *(f"{len(found)}{_largest_margin(found)}" for found in kinds.values()),
                f"{result.utterances_identical} of {result.utterances}",
                f"{result.utterances_identical_frames} of {result.utterances}",
                f"{result.token_edits} of {result.tokens}",
                _percent(result.word_error_rate(result.word_errors_float)),
                _percent(result.word_error_rate(result.word_errors_int8)),
                str(sum(c["saturated"] for s, c in result.saturation.items() if "gate" in s)),
                str(sum(c["saturated"] for s, c in result.saturation.items() if "gate" not in s)),
            ]
        )
    labels = [
        "utterances",
        "joint calls",
        "argmax agreement",
        "argmax agreement, non-blank calls",
        "  token -> blank",
        "  blank -> token",
        "  token -> token",
        "identical utterances, tokens",
        "identical utterances, tokens and frames",
        "token edits",
        "word error rate, float",
        "word error rate, int8",
        "saturated gates (beyond +-8)",
        "saturated elsewhere",
    ]
    for index, (low, high) in enumerate(POSITIONS):
        # Only worth a line where some utterance is long enough to have two.
        if any(result.by_position[max(index, 1)][0] for result in sections.values()):
            labels.append(f"agreement after {low} tokens" + (f", before {high}" if high else ""))
            for column, result in zip(columns, sections.values(), strict=True):
                calls, agreeing = result.by_position[index]
                column.append(_percent(agreeing / calls if calls else None))
    header = ["", *sections]
    return table([header, *([label, *row] for label, *row in zip(labels, *columns, strict=True))])


def tensor_table(costs: list[TensorCost]) -> str:
    """Tensors, the one that costs most first."""
    rows = [["tensor, costliest first", "dtype", "bytes", "scale", "SQNR", "SQNR of logits"]]
    for cost in costs:
        rows.append(
            [
                cost.name,
                cost.dtype,
                str(cost.bytes),
                f"{cost.scale:.3g}",
                f"{cost.sqnr_db:.1f} dB",
                f"{cost.logit_sqnr_db:.1f} dB",
            ]
        )
    return table(rows)
