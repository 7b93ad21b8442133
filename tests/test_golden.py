"""Against the scales that TensorRT 8.6 itself calibrated on an H200, and its accuracy on real text lines.

tests/golden holds its calibration caches and the inputs that made them: ten distributions, [64, 3, 32, 32] each, and 288
text lines of which the first 128 calibrate and the other 160 evaluate.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from calib import cache, calibrators, evaluate, metrics, observe, pipeline, qdq, scales
from calib.data import writing
from calib.data.sets import SampleSet
from calib.graph import layers, load, normalize
from calib.histogram import Histogram, LinearCounter
from calib.plan import Plan
from calib.qdq import Form
from calib.runtime.ort import OrtRunner
from calib.scales import Origin, scale_of
from calib.statistics import Observed, Statistics

GOLDEN = Path(__file__).parent / "golden"
CACHES = sorted(GOLDEN.glob("*.cache"))
DISTRIBUTIONS = np.load(GOLDEN / "dist_inputs.npz", allow_pickle=False)
MODEL = "package:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"


def statistics(values: np.ndarray) -> Statistics:
    histogram = Histogram.of(values)
    linear = LinearCounter(histogram.amax)
    linear.add(values)
    return Statistics(histogram, linear.histogram())


@pytest.mark.parametrize("tensor", DISTRIBUTIONS.files)
@pytest.mark.parametrize("batch", [4, 16, 64])
def test_max_is_tensorrts_minmax_to_the_bit(tensor: str, batch: int) -> None:
    theirs = cache.read(GOLDEN / f"dist_IInt8MinMaxCalibrator_{batch}.cache").activations
    assert scale_of(calibrators.Max().amax(statistics(DISTRIBUTIONS[tensor]))) == theirs[tensor]


@pytest.mark.parametrize("tensor", DISTRIBUTIONS.files)
@pytest.mark.parametrize("kind", ["IInt8EntropyCalibrator", "IInt8EntropyCalibrator2"])
def test_entropy_is_tensorrts_of_one_batch(tensor: str, kind: str) -> None:
    theirs = cache.read(GOLDEN / f"dist_{kind}_64.cache").activations
    ours = scale_of(calibrators.Entropy().amax(statistics(DISTRIBUTIONS[tensor])))
    assert ours == pytest.approx(theirs[tensor], rel=2e-7)


def test_tensorrts_own_entropy_depends_on_the_batching() -> None:
    """The reason for ours: the same data gave TensorRT scales that differ by a fifth."""
    theirs = [cache.read(GOLDEN / f"dist_IInt8EntropyCalibrator2_{batch}.cache").activations for batch in (4, 16, 64)]
    spread = {tensor: max(t[tensor] for t in theirs) / min(t[tensor] for t in theirs) for tensor in DISTRIBUTIONS.files}
    assert max(spread.values()) > 1.2


@pytest.mark.parametrize("path", CACHES, ids=lambda path: path.name)
def test_caches_are_read_and_written_back_line_by_line(path: Path, tmp_path: Path) -> None:
    scales.save(cache.read(path), tmp_path / "scales.json")
    cache.write(scales.load(tmp_path / "scales.json"), tmp_path / "written.cache")
    assert (tmp_path / "written.cache").read_bytes().rstrip(b"\n") == path.read_bytes().rstrip(b"\n")


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[SampleSet, SampleSet]:
    archive = np.load(GOLDEN / "ocr_lines.npz", allow_pickle=False)
    images, texts, widths = archive["x"], archive["t"], archive["w"]
    folder = tmp_path_factory.mktemp("lines")

    def samples(start: int, stop: int) -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, str]]]:
        for i in range(start, stop):
            x = ((images[i].astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1).copy()
            x[:, :, widths[i] :] = 0
            yield f"line-{i}", {"x": x}, {"text": str(texts[i])}

    return (
        writing.write(folder / "calibration", samples(0, 128), {"target": "text"}),
        writing.write(folder / "evaluation", samples(128, 288), {"target": "text"}),
    )


@pytest.fixture(scope="module")
def model() -> ir.Model:
    return normalize.normalize(load.load(load.locate(MODEL, Path()))).model


@pytest.fixture(scope="module")
def seen(model: ir.Model, lines: tuple[SampleSet, SampleSet]) -> Observed:
    return observe.observe(model, lines[0], qdq.quantizable(model), qdq.unranged(model), batch_size=8)


def score(path: Path, samples: SampleSet) -> tuple[float, float]:
    with OrtRunner(path) as runner:
        metric = metrics.make("ctc-text", {}, runner.metadata)
        found = evaluate.evaluate(runner, samples, metric, model_sha256="", batch_size=8)
    return found.value("cer"), found.value("exact")


def test_pp_ocr_v4_in_int8_reads_the_golden_lines(
    model: ir.Model, lines: tuple[SampleSet, SampleSet], seen: Observed, tmp_path: Path
) -> None:
    """FP32 is .0157 on these lines, ONNX Runtime's best INT8 .0281."""
    assert len(layers.find(model)) == 51
    assert len(layers.activations(layers.find(model))) == 55
    ir.save(model, tmp_path / "fp32.onnx")
    assert score(tmp_path / "fp32.onnx", lines[1]) == (pytest.approx(0.0157, abs=5e-5), pytest.approx(0.831, abs=5e-4))
    everything = Plan(layers={"*": "int8"})
    found = pipeline.scales_from(model, everything, seen, calibrators.Mse(), Origin("mse"))
    ir.save(qdq.quantize(model, everything, found, Form(rest="fp32")).model, tmp_path / "int8.onnx")
    assert score(tmp_path / "int8.onnx", lines[1])[0] <= 0.026
    assert (tmp_path / "int8.onnx").stat().st_size < 0.3 * (tmp_path / "fp32.onnx").stat().st_size


def test_scales_do_not_depend_on_the_batch_size(model: ir.Model, lines: tuple[SampleSet, SampleSet]) -> None:
    """Measured bit for bit equal on AVX2; ONNX Runtime's kernels may differ in the last bit on another processor."""
    few = replace(lines[0], entries=lines[0].entries[:20])
    tensors = layers.activations(layers.find(model))
    one, three = (observe.observe(model, few, tensors, batch_size=size) for size in (1, 3))  # 3 leaves a ragged batch
    for tensor in tensors:
        first, second = one.tensors[tensor].histogram, three.tensors[tensor].histogram
        assert first.total == second.total
        assert first.amax == pytest.approx(second.amax, rel=1e-5)


def test_the_second_pass_rounds_as_the_first(
    model: ir.Model, lines: tuple[SampleSet, SampleSet], seen: Observed
) -> None:
    """Where fewer tensors are read, ONNX Runtime fuses more and rounds otherwise: a value was above the first pass's amax."""
    again = observe.observe_linear(model, lines[0], seen, batch_size=8)
    for tensor, item in again.tensors.items():
        assert item.linear is not None
        assert item.linear.counts.sum() == item.histogram.total, tensor
