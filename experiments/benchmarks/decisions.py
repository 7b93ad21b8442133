"""The measurements behind docs/decisions.md, on the golden lines (128 calibrate, 160 evaluate).

    .venv/bin/python experiments/benchmarks/decisions.py

1. Q/DQ as written against ONNX Runtime's fused INT8 kernels: CER, equal tokens, time.
2. MSE scales from bin centres against exact bin means: CER.
3. MSE scales from linear grids of 128 to 2,048 candidates below amax: how far CER moves when scales hardly do.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx_ir as ir
import onnxruntime
from calibration import MODEL, ROOT, golden_lines  # the benchmark beside this file

from calib import calibrators, kernels, metrics, observe, pipeline, qdq
from calib.data import writing
from calib.data.sets import SampleSet
from calib.graph import layers, load, normalize
from calib.histogram import Histogram
from calib.plan import Plan
from calib.qdq import Form
from calib.scales import Origin, Scales, scale_of
from calib.statistics import Observed, Statistics

PLAN, FORM = Plan(layers={"*": "int8"}), Form(rest="fp32")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = list(golden_lines(288))
        header = {"target": "text"}
        calibration = writing.write(Path(folder) / "calibration", lines[:128], header)
        evaluation = writing.write(Path(folder) / "evaluation", lines[128:], header)
        model = normalize.normalize(load.load(load.locate(MODEL, ROOT))).model
        found = layers.find(model)
        seen = observe.observe(model, calibration, layers.activations(found), batch_size=4)
        path = Path(folder) / "model.onnx"
        ir.save(model, path)
        float_tokens = score("FP32", path, evaluation, fused=False)
        histograms = {tensor: item.histogram for tensor, item in seen.tensors.items()}
        for name, change in (("exact means", lambda histogram: histogram), ("bin centres", centred)):
            statistics = {tensor: Statistics(change(histogram)) for tensor, histogram in histograms.items()}
            scales = pipeline.scales_from(model, PLAN, Observed(statistics), calibrators.Mse(), Origin("mse"))
            ir.save(qdq.quantize(model, PLAN, scales, FORM).model, path)
            written = score(f"MSE from {name}, as written", path, evaluation, fused=False)
            print(f"    tokens equal to FP32 {np.mean(written == float_tokens):.4f}")
            if name == "exact means":
                fused = score(f"MSE from {name}, fused kernels", path, evaluation, fused=True)
                equal = np.mean(fused == float_tokens), np.mean(fused == written)
                print(f"    tokens equal to FP32 {equal[0]:.4f}, to as written {equal[1]:.4f}")
        for candidates in (128, 256, 512, 1024, 2048):
            grid = {tensor: best_of_grid(histogram, candidates) for tensor, histogram in histograms.items()}
            activations = {tensor: scale_of(amax) for tensor, amax in grid.items()}
            scales = Scales(activations, layers.weight_scales(model, found), Origin("mse"))
            ir.save(qdq.quantize(model, PLAN, scales, FORM).model, path)
            score(f"MSE from a grid of {candidates}", path, evaluation, fused=False)


def best_of_grid(histogram: Histogram, candidates: int) -> float:
    grid = histogram.amax * np.arange(candidates // 16, candidates + 1) / candidates
    means, counts = histogram.means(), histogram.counts.astype(np.float64)
    return float(grid[np.argmin(kernels.quantization_errors(means, counts, grid))])


def centred(histogram: Histogram) -> Histogram:
    """Return the histogram as if only counts were kept: each bin's mean is its centre."""
    return replace(histogram, residuals=histogram.counts * (1 << 12))


def score(title: str, model: Path, samples: SampleSet, *, fused: bool) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_quant_qdq", "0" if fused else "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    metric = metrics.make("ctc-text", {}, session.get_modelmeta().custom_metadata_map)
    tokens, edits, characters = [], 0.0, 0.0
    start = perf_counter()
    for batch in samples.batches(8):
        (output,) = session.run(None, batch.inputs)
        tokens.append(output.argmax(axis=2))
        targets = [str(samples.entries[i].metadata["text"]) for i in batch.positions]
        for sample in metric.score({"output": output}, targets):
            edits += sample.values["cer"][0]
            characters += sample.values["cer"][1]
    print(f"{title}: CER {edits / characters:.4f}, {perf_counter() - start:.1f} s")
    return np.concatenate(tokens)


if __name__ == "__main__":
    main()
