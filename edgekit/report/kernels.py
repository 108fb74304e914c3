"""How fast the kernels are for what they had to do: multiply-accumulates by clock cycle tell a build without SIMD from any other."""

from __future__ import annotations

from edgekit.report.folder import mapping, number
from edgekit.report.summary import FLOAT, RunSummary, VariantSummary

PLAIN_RATE = {"int8": 1.0, "float": 0.4}
"""MACs by cycle below which kernels are as slow as plain ones: measured on x86-64, those without SIMD do 0.6 (int8) and 0.25 (float),
the built-in optimised ones 7 and 7; published figures of a Pi 3 and a Pi 4 with NEON give 1.8 and more."""

MIN_MACS = 5_000_000
"""In a smaller model other costs than the kernels count."""

COUNTED_THREADS = 2
"""More threads than this do not speed every model up, and are not held against it."""


def macs_per_cycle(summary: RunSummary, variant: VariantSummary) -> float | None:
    """MACs that one thread did in one clock cycle; None where MACs or clock are not known, or the model is too small to tell."""
    model = mapping(summary.request.get("float_model" if variant.name == FLOAT else "model"))
    macs = number(model.get("macs"))
    mhz = summary.thermal.clock_max_mhz or number(summary.facts.get("cpu_mhz"))
    if macs is None or macs < MIN_MACS or not mhz or not variant.median_ns:
        return None
    threads = min(variant.threads or 1, COUNTED_THREADS)
    return macs / (variant.median_ns / 1e9) / (mhz * 1e6) / threads


def set_up_text(summary: RunSummary, variant: VariantSummary) -> str:
    """What the variant ran with: interpreter, delegate, threads, kernels, and what the processor offers."""
    interpreter, delegate = mapping(summary.facts.get("interpreter")), variant.delegate
    parts = [f"{interpreter.get('name')} {interpreter.get('version')}"] if interpreter.get("name") else []
    if delegate.total_operators is not None and delegate.delegated_operators is not None:
        name = delegate.name or "no delegate"
        parts.append(f"{name}, {delegate.delegated_operators} of {delegate.total_operators} operators delegated")
    if variant.threads:
        parts.append(f"{variant.threads} thread{'s' if variant.threads > 1 else ''}")
    if delegate.kernels not in (None, "default"):
        parts.append(f"kernels: {delegate.kernels}")
    features = summary.facts.get("cpu_features")
    if isinstance(features, list):
        parts.append(
            f"the processor has {' '.join(map(str, features)) or 'none of the instructions that kernels choose by'}"
        )
    rate = macs_per_cycle(summary, variant)
    if rate is not None:
        parts.append(f"{rate:.2g} MACs a cycle")
    return ", ".join(parts)
