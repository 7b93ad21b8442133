"""Large models: weights stay out of protobufs and in their files, and what is saved is whole or absent."""

import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib import files
from calib.errors import DataError, ModelError
from calib.graph import load, normalize, save
from calib.runtime import ort

MIB = 1 << 20
X = np.random.default_rng(0).normal(size=(3, 512)).astype(np.float32)


def weight(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    array = np.random.default_rng(seed).standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1]))
    return numpy_helper.from_array(array, name)


def two_layers(seed: int = 0) -> onnx.ModelProto:
    """Return an opset 11 model with two weights of 1 MiB, one in a Constant node, and small ones."""
    nodes = [
        helper.make_node("Constant", [], ["w2"], value=weight("w2", 512, 512, seed=seed + 1)),
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[2, 3]),
        helper.make_node("Conv", ["u", "w1"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "one", "zero", "zero", "one"], ["n"]),
        helper.make_node("Reshape", ["n", "shape"], ["r"]),
        helper.make_node("Identity", ["r"], ["i"]),
        helper.make_node("MatMul", ["i", "w2"], ["y"]),
    ]
    tensors = [
        weight("w1", 512, 512, 1, 1, seed=seed),
        numpy_helper.from_array(np.ones(512, np.float32), "one"),
        numpy_helper.from_array(np.zeros(512, np.float32), "zero"),
        numpy_helper.from_array(np.array([-1, 512]), "shape"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 512]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


def external(proto: onnx.ModelProto, folder: Path) -> Path:
    """Save a model with every tensor, of Constant nodes too, in a file of its own."""
    folder.mkdir()
    onnx.save_model(
        proto,
        folder / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
        convert_attribute=True,
    )
    return folder / "m.onnx"


def run(path: Path) -> npt.NDArray[np.generic]:
    with ort.OrtRunner(path) as runner:
        return runner.run({"x": X})["y"]


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save, "LARGE", MIB)


@pytest.fixture
def expected(tmp_path: Path) -> npt.NDArray[np.generic]:
    onnx.save(two_layers(), tmp_path / "expected.onnx")
    return run(tmp_path / "expected.onnx")


class TestSave:
    def test_one_file_is_a_plain_onnx_model(self, tmp_path: Path) -> None:
        model = ir.from_proto(two_layers())
        save.save(model, tmp_path / "m.onnx")
        assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
        saved = onnx.load(tmp_path / "m.onnx")
        onnx.checker.check_model(saved, full_check=True)
        given = ir.to_proto(model)
        for proto in (saved, given):
            proto.graph.initializer.sort(key=lambda tensor: tensor.name)
            del proto.graph.value_info[:]  # of weights, which have it themselves
        assert saved == given

    @pytest.mark.usefixtures("lowered")
    def test_large_weights_lie_beside_it(self, tmp_path: Path, expected: npt.NDArray[np.generic]) -> None:
        path = tmp_path / "out" / "m.onnx"
        save.save(ir.from_proto(two_layers()), path)
        assert sorted(file.name for file in path.parent.iterdir()) == ["m.onnx", "m.onnx.data"]
        assert path.stat().st_size < 10_000
        assert (path.parent / "m.onnx.data").stat().st_size < 2.1 * MIB
        onnx.checker.check_model(path, full_check=True)
        shutil.move(path.parent, tmp_path / "moved")
        moved = tmp_path / "moved" / "m.onnx"
        np.testing.assert_array_equal(run(moved), expected)
        np.testing.assert_array_equal(run_in_memory(load.load(moved)), expected)

    def test_any_type_of_weight(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        arrays = {
            str(dtype): np.arange(3000).astype(dtype).reshape(3, 1000)
            for dtype in (np.float16, np.float64, np.int8, np.int64, np.bool_, ir.DataType.BFLOAT16.numpy())
        }
        tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        strings = helper.make_tensor("strings", TensorProto.STRING, [400], [b"text"] * 400)
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
            [*tensors, strings],
        )
        for large in (save.LARGE, 0):
            monkeypatch.setattr(save, "LARGE", large)
            save.save(ir.from_proto(helper.make_model(graph)), tmp_path / "m.onnx")
            found = load.load(tmp_path / "m.onnx").graph.initializers
            assert found.keys() == {*arrays, "strings"}
            for name, array in arrays.items():
                tensor = found[name].const_value
                assert tensor is not None
                np.testing.assert_array_equal(tensor.numpy(), array)
                assert tensor.numpy().dtype == array.dtype

    @pytest.mark.parametrize("large", [MIB, 100 * MIB])
    def test_an_error_leaves_what_was_there(
        self, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: npt.NDArray[np.generic]
    ) -> None:
        monkeypatch.setattr(save, "LARGE", large)
        path = tmp_path / "out" / "m.onnx"
        save.save(ir.from_proto(two_layers()), path)
        before = {file.name: files.sha256(file) for file in path.parent.iterdir()}
        model = ir.from_proto(two_layers(seed=7))

        def broken() -> ir.TensorProtocol:
            raise OSError(28, "No space left on device")

        tensor = ir.LazyTensor(broken, ir.DataType.FLOAT, ir.Shape([512, 512, 1, 1]), name="w1")
        model.graph.initializers["w1"].const_value = tensor
        with pytest.raises(DataError, match="No space left on device"):
            save.save(model, path)
        assert {file.name: files.sha256(file) for file in path.parent.iterdir()} == before
        np.testing.assert_array_equal(run(path), expected)

    @pytest.mark.parametrize("step", [1, 2])
    def test_a_killed_run_leaves_no_mixed_model(self, step: int, tmp_path: Path) -> None:
        """Killed at the rename of the data, or at that of the model, of a save over another model."""
        onnx.save(two_layers(seed=7), tmp_path / "other.onnx")
        onnx.save(two_layers(), tmp_path / "first.onnx")
        script = f"""
import os, signal
from pathlib import Path
from calib.graph import load, save
save.LARGE = {MIB}
out = Path({str(tmp_path / "m.onnx")!r})
save.save(load.load(Path({str(tmp_path / "first.onnx")!r})), out)
replace, calls = os.replace, []
def killed(*arguments):
    calls.append(arguments)
    if len(calls) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*arguments)
os.replace = killed
save.save(load.load(Path({str(tmp_path / "other.onnx")!r})), out)
"""
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
        assert not (tmp_path / "m.onnx").exists(), "it would read the other's weights"
        save.save(load.load(tmp_path / "other.onnx"), tmp_path / "m.onnx")
        np.testing.assert_array_equal(run(tmp_path / "m.onnx"), run(tmp_path / "other.onnx"))


def run_in_memory(model: ir.Model) -> npt.NDArray[np.generic]:
    with ort.in_memory(model) as runner:
        return runner.run({"x": X})["y"]


class TestLoad:
    def test_external_weights_are_mapped_and_outlive_their_file(
        self, tmp_path: Path, expected: npt.NDArray[np.generic]
    ) -> None:
        path = external(two_layers(), tmp_path / "in")
        model = load.load(path)
        tensor = model.graph.initializers["w1"].const_value
        assert tensor is not None
        assert isinstance(np.asarray(tensor.numpy()).base.base.obj, mmap.mmap)
        shutil.rmtree(tmp_path / "in")
        np.testing.assert_array_equal(run_in_memory(model), expected)
        save.save(normalize.normalize(model).model, tmp_path / "elsewhere" / "m.onnx")
        np.testing.assert_allclose(run(tmp_path / "elsewhere" / "m.onnx"), expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.usefixtures("lowered")
    def test_a_model_may_be_saved_over(self, tmp_path: Path, expected: npt.NDArray[np.generic]) -> None:
        path = tmp_path / "m.onnx"
        save.save(ir.from_proto(two_layers()), path)
        published = load.load(path)
        for _ in range(2):
            save.save(normalize.normalize(load.load(path)).model, path)
            np.testing.assert_allclose(run(path), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(run_in_memory(published), expected)

    def test_missing_bytes_are_found(self, tmp_path: Path) -> None:
        path = external(two_layers(), tmp_path / "in")
        data = tmp_path / "in" / "weights.bin"
        os.truncate(data, data.stat().st_size - 4)
        with pytest.raises(ModelError, match=r"weight '\w+' in weights\.bin cannot be read.*truncated"):
            load.load(path)

    def test_a_length_that_the_shape_does_not_need_is_refused(self, tmp_path: Path) -> None:
        path = external(two_layers(), tmp_path / "in")
        proto = onnx.load(path, load_external_data=False)
        proto.graph.initializer[0].dims[0] = 511
        onnx.save(proto, path)
        with pytest.raises(
            ModelError, match=r"'w1' in weights\.bin cannot be read \(it has 1048576 bytes where its shape"
        ):
            load.load(path)

    def test_the_digest_needs_no_parsing_of_one_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        onnx.save(two_layers(), tmp_path / "one.onnx")
        path = external(two_layers(), tmp_path / "in")
        first = load.sha256(path)
        with (tmp_path / "in" / "weights.bin").open("r+b") as stream:
            stream.write(b"\xff")
        assert load.sha256(path) != first
        monkeypatch.setattr(load, "_read", pytest.fail)
        assert load.sha256(tmp_path / "one.onnx") == files.sha256(tmp_path / "one.onnx")

    @pytest.mark.parametrize("at", [(1 << 20) - 8, (1 << 20) - 7, (1 << 20) - 1, 1 << 20])
    def test_the_key_is_found_across_blocks(self, at: int, tmp_path: Path) -> None:
        (tmp_path / "m.onnx").write_bytes(b"\0" * at + b"location" + b"\0" * 9)
        assert load._may_be_external(tmp_path / "m.onnx")

    def test_the_digest_of_a_file_with_the_word_is_the_files(self, tmp_path: Path) -> None:
        proto = two_layers()
        proto.graph.node[0].name = "location"
        onnx.save(proto, tmp_path / "m.onnx")
        assert load.sha256(tmp_path / "m.onnx") == files.sha256(tmp_path / "m.onnx")


@pytest.mark.usefixtures("lowered")
def test_no_protobuf_holds_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: npt.NDArray[np.generic]
) -> None:
    """From an external model to a saved one, and in ONNX Runtime: what is over 2 GiB could not pass through one."""
    sizes: list[int] = []

    def measured(function: Callable[..., onnx.ModelProto], *, given: bool) -> Callable[..., onnx.ModelProto]:
        def call(value: onnx.ModelProto, *arguments: object, **options: object) -> onnx.ModelProto:
            result = function(value, *arguments, **options)
            sizes.append((value if given else result).ByteSize())
            return result

        return call

    for module, name in ((onnx.shape_inference, "infer_shapes"), (onnx.version_converter, "convert_version")):
        monkeypatch.setattr(module, name, measured(getattr(module, name), given=True))
    monkeypatch.setattr(ir, "to_proto", measured(ir.to_proto, given=False))
    model = normalize.normalize(load.load(external(two_layers(), tmp_path / "in"))).model
    save.save(model, tmp_path / "out.onnx")
    np.testing.assert_allclose(run(tmp_path / "out.onnx"), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run_in_memory(model), expected, rtol=1e-4, atol=1e-5)
    assert len(sizes) > 4
    assert max(sizes) < 20_000


PEAK = """
import sys
from pathlib import Path
import numpy as np
from calib import qdq
from calib.graph import load, normalize, save
from calib.plan import Plan
from calib.qdq import Form
from calib.ranges import Range
from calib.scales import Origin, Scales

def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))

before = status("VmRSS")
model = load.load(Path(sys.argv[1]))
normalized = normalize.normalize(model).model
activations = {tensor: np.float32(0.02) for tensor in qdq.place(normalized, Plan()).tensors}
ranges = {tensor: Range(1.0, 0.1) for tensor in qdq.unranged(normalized)}
quantized = qdq.quantize(normalized, Plan(), Scales(activations, {}, Origin("test"), ranges), Form())
assert len(quantized.placement.int8) == 25
save.save(normalized, Path(sys.argv[2]))
save.save(quantized.model, Path(sys.argv[2]).with_name("int8.onnx"))
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
def test_quantizing_takes_less_than_three_times_the_size(tmp_path: Path) -> None:
    """A 100 MB model: 20 Conv of 4 MB with BatchNormalization and 5 Gemm, loaded, normalized, quantized and saved."""
    nodes, tensors, last = [], [numpy_helper.from_array(np.ones(1024, np.float32), "one")], "x"
    for index in range(25):
        if index == 20:
            nodes += [helper.make_node("Flatten", [last], ["flat"])]
            last = "flat"
        if index < 20:
            tensors.append(weight(f"w{index}", 1024, 1024, 1, 1, seed=index))
            nodes.append(helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"]))
            inputs = [f"c{index}", "one", "one", "one", "one"]
            nodes.append(helper.make_node("BatchNormalization", inputs, [f"n{index}"]))
            last = f"n{index}"
        else:
            tensors.append(weight(f"w{index}", 1024, 1024, seed=index))
            nodes.append(helper.make_node("Gemm", [last, f"w{index}"], [f"c{index}"], transB=1))
            last = f"c{index}"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1024, 1, 1])
    y = helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", 1024])
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)]), tmp_path / "m.onnx")
    size = (tmp_path / "m.onnx").stat().st_size
    arguments = [sys.executable, "-c", PEAK, str(tmp_path / "m.onnx"), str(tmp_path / "out.onnx")]
    answer = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert size < int(answer.stdout) < 2.75 * size
