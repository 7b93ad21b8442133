"""Builds and times models on TensorRT 8.6 (weakly typed, INT8 and FP16 flags); needs only tensorrt, pycuda and numpy."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pycuda.driver as cuda
import tensorrt as trt

BATCH = 32
RUNS, WARM_UP = 200, 20


class Log(trt.ILogger):
    def __init__(self):
        super().__init__()
        self.errors = []

    def log(self, severity, message):
        if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
            self.errors.append(message)


LOG = Log()


def build(path, shape, int8):
    builder = trt.Builder(LOG)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, LOG)
    if not parser.parse_from_file(str(path)):
        raise RuntimeError("; ".join(str(parser.get_error(i)) for i in range(parser.num_errors)))
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    sources = (trt.TacticSource.JIT_CONVOLUTIONS, trt.TacticSource.EDGE_MASK_CONVOLUTIONS)
    config.set_tactic_sources(sum(1 << int(source) for source in sources))
    for flag in (trt.BuilderFlag.FP16, *([trt.BuilderFlag.INT8] if int8 else [])):
        config.set_flag(flag)
    profile = builder.create_optimization_profile()
    profile.set_shape(network.get_input(0).name, shape, shape, shape)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("; ".join(LOG.errors[-3:]))
    return trt.Runtime(LOG).deserialize_cuda_engine(plan)


def run(engine, x):
    """Return the output and the milliseconds of each timed run, without transfers."""
    context, stream = engine.create_execution_context(), cuda.Stream()
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    out = next(name for name in names if engine.get_tensor_mode(name) == trt.TensorIOMode.OUTPUT)
    context.set_input_shape("x", x.shape)
    y = np.empty(tuple(context.get_tensor_shape(out)), np.float32)
    memory = {"x": cuda.mem_alloc(x.nbytes), out: cuda.mem_alloc(y.nbytes)}
    for name, place in memory.items():
        context.set_tensor_address(name, int(place))
    cuda.memcpy_htod(memory["x"], np.ascontiguousarray(x))
    times = []
    for _ in range(WARM_UP + RUNS):
        start, end = cuda.Event(), cuda.Event()
        start.record(stream)
        context.execute_async_v3(stream.handle)
        end.record(stream)
        end.synchronize()
        times.append(start.time_till(end))
    cuda.memcpy_dtoh(y, memory[out])
    return y, times[WARM_UP:]


def measure(path, feeds):
    kind, _, variant = path.stem.partition("-")
    row, x = {"model": kind, "variant": variant}, feeds[kind]
    start = time.time()
    LOG.errors.clear()
    try:
        x = x if kind == "deconv" else np.tile(x, (BATCH // len(x), 1, 1, 1))
        engine = build(path, x.shape, int8=variant != "float")
        row["build_s"] = round(time.time() - start, 1)
        inspected = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        row["layers"] = len(json.loads(inspected, strict=False)["Layers"])
        y, times = run(engine, x)
        row["ms_p50"], row["ms_p99"] = (round(float(np.percentile(times, q)), 4) for q in (50, 99))
        reference = path.with_suffix(".npy")
        if reference.exists():
            wanted = np.load(reference)
            row["nrmse_to_onnxruntime"] = float(np.sqrt(np.mean((y - wanted) ** 2) / np.mean(wanted**2)))
    except RuntimeError as error:
        row["error"] = str(error)[:300]
    return row


def main(folder, out, *models):
    cuda.init()
    context = cuda.Device(0).retain_primary_context()
    context.push()
    trt.init_libnvinfer_plugins(LOG, "")
    feeds = dict(np.load(Path(folder) / "feeds.npz"))
    versions = {"tensorrt": trt.__version__, "gpu": cuda.Device(0).name(), "batch": BATCH}
    with open(out, "a") as stream:
        for path in map(Path, models):
            row = measure(path, feeds) | versions
            print(json.dumps(row), file=stream, flush=True)
            print(json.dumps(row), flush=True)
    context.pop()  # or PyCUDA aborts at exit


if __name__ == "__main__":
    main(*sys.argv[1:])
