"""Pass ForgetUnknownDims."""

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from calib import verify
from calib.graph import load, normalize
from calib.profiles import Profile

TEXT = """<ir_version: 9, opset_import: ["" : 19]> g (float[1, 3, "?", "?"] x, float[n, n] q) => (float[1, 4, "?", "?"] y) {
    y = Conv(x, w) }"""


def test_a_question_mark_is_no_name(tmp_path) -> None:
    proto = onnx.parser.parse_model(TEXT.replace('"?"', "h").replace("q)", "q)"))
    for value in (proto.graph.input[0], proto.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim[2:]:
            dim.dim_param = "?"
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 1, 1), np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx")
    found = normalize.normalize(load.load(tmp_path / "m.onnx"))
    x, q = found.model.graph.inputs
    assert [getattr(size, "value", size) for size in x.shape] == [1, 3, None, None]
    assert [size.value for size in q.shape] == ["n", "n"], "a name is kept"
    assert any('"?"' in step for step in found.steps)
    ir.save(found.model, tmp_path / "normal.onnx")
    verify.verify(tmp_path / "normal.onnx", {"x": Profile(*[(1, 3, 8, 16)] * 3), "q": Profile(*[(2, 2)] * 3)})
