"""Q/DQ for TensorRT: a plan and scales written into the graph, and the rest of it in FP16 where that is safe.

Which inputs are quantized (`placement`):

1. Both data inputs of a planned Conv, ConvTranspose, Gemm or MatMul: activations per tensor, constant weights per output
   channel. The channel axis depends on the operator: Conv 0, Gemm by transB, MatMul the last. A ConvTranspose is quantized
   only where the plan names it, with one scale: TensorRT-RTX builds none in INT8, and about the axis TensorRT's
   documentation and its kernels disagree.
2. A bias is not quantized: TensorRT takes it in float.
3. Outputs of layers are not quantized of themselves: nothing may stand between a layer and what fuses into it (ReLU, Clip,
   SiLU, HardSwish, the residual Add).
4. A tensor has one Q/DQ pair, shared by every layer that reads it in INT8; layers in float read the tensor itself.
5. Where the output of an INT8 Conv is added to another tensor, that other one (the residual) is read through Q/DQ: else the
   addition keeps the Conv from fusing.
6. Tensors that only data movement lies between (Reshape, Transpose, Slice, Split, MaxPool, Concat, nearest Resize, ...)
   share one scale, so that the movement happens in INT8 and one quantization serves all; unless their ranges differ too much
   (`MAX_RATIO`), which would cost the smaller one its resolution.
7. A Concat that is read in INT8 and joins outputs of INT8 layers has Q/DQ on its inputs too, with the scale of its output.
8. A product with a vector (one row or one column, GEMV) stays in float, as in NVIDIA's ModelOpt; TensorRT-RTX would build it
   in INT8, and what that gains was not measured.
9. A LayerNormalization that follows an INT8 Conv reads it through Q/DQ, so that the Conv may write INT8.
10. An embedding table that a Gather reads is left alone, also where a layer reads the same table as its weight.
11. The two products of attention, around its Softmax, stay in float: TensorRT fuses all three in FP16 and not in INT8.
12. A MatMul that makes query, key and value at once has one weight scale: with one a channel TensorRT builds it in float.

Rules 8, 11 and that of ConvTranspose hold for layers that are in INT8 by the plan's default, not for those that it names.

How they are written (`write`): weights as INT8 with a DequantizeLinear, so that the file shrinks to about a quarter, or as
float with both, for TensorRT 8. What is not in INT8 gets its type in `rest`.
"""

from calib.qdq.placement import Placement, place, quantizable, unify
from calib.qdq.quantize import Form, Quantized, quantize
from calib.qdq.record import Decisions
from calib.qdq.rest import unranged

__all__ = ["Decisions", "Form", "Placement", "Quantized", "place", "quantizable", "quantize", "unify", "unranged"]
