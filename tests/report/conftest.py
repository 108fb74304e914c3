"""Run folders and bundle reports by the contract, from a seed: what the agent writes, in every state it may be left in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@dataclass
class Shape:
    """What a generated run is like. The defaults are an undisturbed 30 s run of a bundle on a board with sensors."""

    seed: int = 0
    seconds: float = 30.0
    block_s: float = 1.0
    median_ms: float = 8.0
    float_ms: float | None = None
    noise: float = 0.005
    spikes: float = 0.0
    slow_down: float = 0.0
    state: str = "done"
    valid: bool = True
    invalid_reasons: tuple[str, ...] = ()
    error: dict[str, Any] | None = None
    temperature: bool = True
    start_c: float = 45.0
    rise_c: float = 2.0
    tau_s: float = 5.0
    throttle: tuple[tuple[float, float], ...] = ()
    word: bool = True
    busy_other: float = 0.01
    kept_every: int = 1
    kind: str = "bundle"
    manifest: bool = True
    partitions: int = 1
    delegated: int = 60
    governor: str = "performance"
    machine: str = "aarch64"
    name: str = "mobilenet_v2"
    memory: bool = True


def _latencies(rng: np.random.Generator, shape: Shape, at_s: float, median_ms: float, seconds: float) -> np.ndarray:
    """One block: log-normal noise around a median that the heat slows down, with rare spikes."""
    slowed = median_ms * (1.0 + shape.slow_down * min(1.0, at_s / max(shape.seconds, 1e-9)))
    if any(start <= at_s < end for start, end in shape.throttle):
        slowed *= 1.5
    n = max(1, int(seconds / (slowed / 1000.0)))
    values = slowed * np.exp(rng.normal(0.0, shape.noise, n))
    if shape.spikes:
        values = values * np.where(rng.random(n) < shape.spikes, 3.0 + rng.random(n), 1.0)
    return np.round(values * 1e6).astype(np.int64)


def _variant(
    rng: np.random.Generator, shape: Shape, blocks: list[tuple[float, np.ndarray]], size: int
) -> dict[str, Any]:
    every = np.concatenate([latencies for _, latencies in blocks]) if blocks else np.empty(0, dtype=np.int64)
    described, first = [], 0
    for start_s, latencies in blocks:
        described.append(
            {"start_s": start_s, "first": first, "count": len(latencies), "wall_ns": int(latencies.sum() * 1.001)}
        )
        first += len(latencies)
    histogram = None
    if shape.kept_every > 1:
        bins, counts = np.unique(every >> 10, return_counts=True)
        widths = [1024] * bins.size
        histogram = {"lower_ns": (bins << 10).tolist(), "width_ns": widths, "counts": counts.tolist()}
    memory: dict[str, Any] = {"memory_unknown": "clear_refs: permission denied"}
    if shape.memory:
        base = 42_000_000
        memory = {
            "memory": {
                stage: {"peak_rss_bytes": base + int(size * share) + int(rng.integers(0, 4096)), "rss_bytes": base}
                for stage, share in (
                    ("import", 0),
                    ("load", 1),
                    ("allocate", 1.6),
                    ("first_invoke", 1.9),
                    ("sustained", 1.9),
                )
            }
        }
    return {
        "file_sha256": "ab" * 32,
        "size_bytes": size,
        "io": {"inputs": [{"name": "x", "shape": [1, 224, 224, 3], "dtype": "int8"}]},
        "input": {"kind": "golden", "samples": 4, "note": ""},
        "threads": 4,
        "first_inference_ns": 41_000_000,
        "warmup": {"count": 12, "total_ns": 130_000_000},
        "count": len(every),
        "busy_ns": sum(block["wall_ns"] for block in described),
        "kept_every": shape.kept_every,
        "histogram": histogram,
        "blocks": described,
        "delegate": {
            "name": "XNNPACK",
            "partitions": shape.partitions,
            "delegated_operators": shape.delegated,
            "total_operators": 66,
        },
        **memory,
    }


def _samples(rng: np.random.Generator, shape: Shape) -> list[dict[str, Any]]:
    samples = []
    for t_s in np.arange(0.0, shape.seconds, 0.5):
        celsius = shape.start_c + shape.rise_c * (1.0 - np.exp(-t_s / shape.tau_s)) + rng.normal(0, 0.05)
        hot = any(start <= t_s < end for start, end in shape.throttle)
        samples.append(
            {
                "t_s": float(t_s),
                "temperature_c": round(float(celsius), 2) if shape.temperature else None,
                "zones": {"cpu-thermal": round(float(celsius), 2)} if shape.temperature else {},
                "cpu_khz": {"policy0": 1_000_000 if hot else 1_500_000},
                "rss_bytes": {"model": 46_000_000},
                "cpu_busy_other": shape.busy_other,
                "cooling_state": {},
                **({"throttle_word": 0x80008 if hot else 0x0} if shape.word else {}),
                "unknown": {} if shape.temperature else {"temperature": "no thermal zone under /sys/class/thermal"},
            }
        )
    return samples


def _events(shape: Shape) -> list[dict[str, Any]]:
    events = [
        {"t_s": 0.0, "kind": "stage", "message": "warm-up"},
        {"t_s": 1.0, "kind": "stage", "message": "sustained"},
    ]
    for start, end in shape.throttle:
        events.append({"t_s": start, "kind": "throttle_on", "message": "soft temperature limit", "cause": "thermal"})
        events.append({"t_s": end, "kind": "throttle_off", "message": ""})
    return events


def write_run(folder: Path, shape: Shape) -> Path:
    """A whole run folder of ``shape``."""
    rng = np.random.default_rng(shape.seed)
    folder.mkdir(parents=True)
    blocks: dict[str, list[tuple[float, np.ndarray]]] = {"model": [], "float": []}
    names = ["model", "float"] if shape.float_ms is not None else ["model"]
    at_s, turn = 0.0, 0
    while at_s + 1e-9 < shape.seconds:
        name = names[turn % len(names)]
        median = shape.median_ms if name == "model" else float(shape.float_ms or 0.0)
        latencies = _latencies(rng, shape, at_s, median, min(shape.block_s, shape.seconds - at_s))
        blocks[name].append((round(at_s, 3), latencies))
        at_s, turn = at_s + shape.block_s, turn + 1
    sizes = {"model": 3_600_000, "float": 13_900_000}
    for name in names:
        suffix = "" if name == "model" else "-float"
        every = np.concatenate([latencies for _, latencies in blocks[name]])
        every[:: shape.kept_every].astype("<i8").tofile(folder / f"latencies{suffix}.bin")
        np.array([41_000_000] + [9_000_000] * 11, dtype="<i8").tofile(folder / f"warmup{suffix}.bin")
    model = {"name": shape.name, "kind": shape.kind, "sha256": "ab" * 32, "size_bytes": sizes["model"]}
    request = {
        "schema": 1,
        "id": folder.name,
        "created_utc": "2026-01-02T03:04:05Z",
        "model": model,
        "float_model": {**model, "size_bytes": sizes["float"]} if shape.float_ms is not None else None,
        "device": "pi4",
        "duration_s": shape.seconds,
        "threads": 4,
        "block_s": shape.block_s,
        "seed": shape.seed,
    }
    facts = {
        "schema": 1,
        "hostname": "pi4",
        "board_model": "Raspberry Pi 4 Model B Rev 1.4",
        "kernel": "6.6.31",
        "machine": shape.machine,
        "userland_bits": 64,
        "python": "3.11.2",
        "cpu_count": 4,
        "cpu_model": None,
        "memory_total_bytes": 4_000_000_000,
        "governor": shape.governor,
        "cpu_limits_khz": {"policy0": {"cpuinfo_max_khz": 1_500_000, "scaling_max_khz": 1_500_000}},
        "boot_id": None,
        "interpreter": {"name": "ai_edge_litert", "version": "2.1.0"},
        "unknown": {
            "cpu_model": "/proc/cpuinfo names no CPU",
            "boot_id": "/proc/sys/kernel/random/boot_id: no such file",
        },
    }
    variants = {name: _variant(rng, shape, blocks[name], sizes[name]) for name in names}
    result = {
        "schema": 1,
        "state": shape.state,
        "valid": shape.valid,
        "invalid_reasons": list(shape.invalid_reasons),
        "warnings": [],
        "error": shape.error,
        "clock": "CLOCK_MONOTONIC_RAW",
        "variants": variants,
    }
    status = {
        "schema": 1,
        "state": shape.state,
        "stage": "sustained",
        "elapsed_s": shape.seconds,
        "duration_s": shape.seconds,
    }
    documents = {"request": request, "facts": facts, "result": result, "status": status}
    if shape.manifest:
        documents["bundle"] = manifest(name=shape.name)
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    for name, lines in (("samples", _samples(rng, shape)), ("events", _events(shape))):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "log.txt").write_text("", encoding="utf-8")
    return folder


def _share(right: int, count: int) -> dict[str, Any]:
    value = right / count
    half = 1.96 * (value * (1 - value) / count) ** 0.5
    return {"right": right, "value": value, "low": value - half, "high": value + half}


def manifest(*, name: str = "mobilenet_v2", accuracy: bool = True, floats: bool = False) -> dict[str, Any]:
    """A bundle's manifest: everything verified, everything integer unless ``floats``."""
    spec = {
        "name": "input",
        "source_shape": [1, 3, 224, 224],
        "source_dtype": "float32",
        "tensor": "serving_default_input:0",
        "shape": [1, 224, 224, 3],
        "dtype": "int8",
        "permutation": [0, 2, 3, 1],
        "quant": {"scale": 0.018658, "zero_point": -14},
        "meaning": "image",
    }
    float_operators = [
        {"index": 61, "op": "SOFTMAX", "outputs": ["probabilities"], "reason": "the recipe keeps it float"}
    ]
    operators = [
        {"op": "CONV_2D", "count": 35, "float_count": 0},
        {"op": "DEPTHWISE_CONV_2D", "count": 17, "float_count": 0},
        {"op": "ADD", "count": 10, "float_count": 0},
        {"op": "MEAN", "count": 1, "float_count": 0},
        {"op": "FULLY_CONNECTED", "count": 1, "float_count": 0},
        {"op": "SOFTMAX", "count": 1, "float_count": 1 if floats else 0},
    ]
    return {
        "schema": 1,
        "edgekit": "0.1.0",
        "model": {"name": name, "format": "onnx", "sha256": "cd" * 32, "size_bytes": 14_000_000},
        "files": {
            "model.tflite": {"sha256": "ab" * 32, "size_bytes": 3_600_000},
            "float.tflite": {"sha256": "ef" * 32, "size_bytes": 13_900_000},
        },
        "inputs": [spec],
        "outputs": [{**spec, "name": "logits", "source_shape": [1, 1000], "shape": [1, 1000], "meaning": "logits"}],
        "preprocessing": {
            "resize": [256, 256],
            "fit": "short-side",
            "crop": [224, 224],
            "mean": [127.0],
            "std": [128.0],
        },
        "recipe": {"name": "full-int8"},
        "calibration": {
            "digest": "sha256:0123",
            "count": 100,
            "source": "folder of images",
            "split_seed": 0,
            "ranges": {"x": {"min": -1, "max": 1}},
        },
        "frontend": {"name": "onnx2tf", "version": "2.6.9", "route_notes": ["direct"]},
        "versions": {"numpy": "2.5.5", "litert-quantizer": "0.11.0"},
        "verification": {
            "parity": {
                "reference": "onnxruntime 1.32.0",
                "samples": 16,
                "passed": True,
                "limit_db": 60.0,
                "outputs": [
                    {
                        "name": "logits",
                        "max_abs_error": 1.9e-5,
                        "max_rel_error": 3e-6,
                        "sqnr_db": 112.4,
                        "worst_slice": {"axis": 1, "index": 7, "sqnr_db": 98.0, "max_abs_error": 1e-5},
                        "near_zero_slices": 0,
                    }
                ],
            },
            "int8": {
                "samples": 64,
                "outputs": [
                    {
                        "name": "logits",
                        "sqnr_db": 24.1,
                        "mean_slice_db": 22.9,
                        "worst_slice": {"axis": 1, "index": 412, "sqnr_db": 13.2},
                        "worst_sample_db": 18.8,
                        "constant_slices": 0,
                        "agreement": {"same": 60, "count": 64, "value": 0.9375, "low": 0.85, "high": 0.98},
                    }
                ],
            },
            "accuracy": {
                "metric": "top1",
                "count": 500,
                "float": _share(361, 500),
                "int8": _share(354, 500),
                "difference_points": {"value": -1.4, "low": -2.9, "high": 0.1},
                "lost": 13,
                "gained": 6,
                "source": "labels.csv",
            }
            if accuracy
            else None,
            "audit": {
                "operators_total": 65,
                "operators": operators,
                "float_operators": float_operators if floats else [],
                "io": [{"name": "input", "dtype": "int8"}],
                "full_integer": not floats,
            },
            "gates": [
                {
                    "name": "parity",
                    "verdict": "passed",
                    "measured": 112.4,
                    "limit": 60.0,
                    "message": "112.4 dB, at least 60 dB",
                },
                {
                    "name": "accuracy",
                    "verdict": "passed",
                    "measured": -1.4,
                    "limit": -3.0,
                    "message": "loses 1.4 points, at most 3",
                },
            ],
            "passed": True,
        },
    }


def report_json(**changes: Any) -> dict[str, Any]:
    """A bundle's report.json; ``changes`` go to :func:`manifest`."""
    made = manifest(**changes)
    return {
        "schema": 1,
        "kind": "bundle",
        "name": made["model"]["name"],
        "created_utc": "2026-01-02T03:04:05Z",
        "manifest": made,
        "stages": [
            {"name": "intake", "seconds": 4.1, "peak_rss_bytes": 812_000_000},
            {"name": "calibrate", "seconds": 9.9, "peak_rss_bytes": 420_000_000},
            {"name": "quantize", "seconds": 0.8, "peak_rss_bytes": None},
        ],
    }


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """``make_run(seconds=10, ...)`` writes a run folder of that :class:`Shape` and gives its path."""

    def make(folder: str = "20260102T030405Z-mobilenet_v2-pi4", **shape: Any) -> Path:
        return write_run(tmp_path / folder, Shape(**shape))

    return make


@pytest.fixture
def make_manifest() -> Callable[..., dict[str, Any]]:
    """:func:`manifest`."""
    return manifest


@pytest.fixture
def make_report() -> Callable[..., dict[str, Any]]:
    """:func:`report_json`."""
    return report_json
