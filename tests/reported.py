"""The public reports of ../shared/peers.md, section 4: what was reported, and which test shows what calib makes of it.

Those that are about a model are rebuilt as a small one (`cases`). Each must be quantized in every form, stay within the
bound that follows from its scales (`checked`, `error_bounds`), and be built by TensorRT-RTX with its layers in INT8. What
a report needs beyond that has a test of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import reported_layers as layers
from . import reported_nets as nets
from .reported_case import Case


@dataclass(frozen=True)
class Report:
    """A row of the table.

    Attributes:
        threads: where it was reported.
        symptom: what happened there.
        tests: that show what happens here, as "file::name"; "" for none.
        cases: models rebuilt from it, by name.
        without: why no model is rebuilt from it.
    """

    threads: str
    symptom: str
    tests: tuple[str, ...] = ()
    cases: Mapping[str, Callable[[], Case]] | None = None
    without: str = ""


REPORTS: dict[int, Report] = {
    1: Report(
        "microsoft/onnxruntime#10503, #21979",
        "memory grows with the number of samples",
        ("test_reported.py::test_memory_does_not_grow_with_the_samples",),
    ),
    2: Report(
        "NVIDIA/Model-Optimizer#619",
        "scales change with the calibration batch size",
        ("test_reported.py::test_scales_depend_on_neither_batch_size_nor_order",),
    ),
    3: Report(
        "NVIDIA/TensorRT#774, #1023, #1411",
        "scales change with batch size and order",
        (
            "test_reported.py::test_scales_depend_on_neither_batch_size_nor_order",
            "test_histogram.py::test_any_split_order_and_merge_give_the_same_histogram",
            "test_golden.py::test_scales_do_not_depend_on_the_batch_size",
        ),
    ),
    4: Report(
        "NVIDIA/TensorRT#2757",
        "counts saturate at 2^24",
        ("test_histogram.py::test_more_values_than_a_packed_counter_holds",),
        without="a histogram is enough to show it",
    ),
    5: Report(
        "NVIDIA/TensorRT#4023, OpenPPL/ppq#410",
        "KL calibration takes hours",
        without="is about time, which no test asserts; experiments/benchmarks/calibration.py measures it",
    ),
    6: Report(
        "NVIDIA/TensorRT#1826",
        "a zero scale for a dead channel is refused by the parser",
        ("test_qdq.py::test_rules",),
        {"conv with a zero filter": layers.conv_with_a_zero_filter},
    ),
    7: Report(
        "NVIDIA/TensorRT#521, #663, #1102, #3020",
        "a tensor of zeros: 'uniformly zero', and no engine",
        (
            "test_reported.py::test_a_dead_relu_is_named_and_a_plan_helps",
            "test_calibrators.py::test_no_scale_without_values",
            "test_study.py::test_a_tensor_of_zeros_needs_a_plan_that_keeps_its_reader_in_float",
        ),
        {"dead Relu, its reader in float": layers.dead_relu},
    ),
    8: Report(
        "NVIDIA/Model-Optimizer PR #2369",
        "OverflowError where the first batch is all zero",
        ("test_reported.py::test_a_first_batch_of_zeros_changes_no_scale",),
        {"first samples of zeros": layers.first_samples_of_zeros},
    ),
    9: Report(
        "NVIDIA/Model-Optimizer#18, PR #1558, PR #2412",
        "FP16 models: overflow, or 'Too many bins'",
        ("test_reported.py::test_fp16_where_values_are_large_or_small_stays_exact",),
        {"FP16 model with activations of 6e4 and 1e-6": nets.large_and_small_in_fp16},
    ),
    13: Report(
        "NVIDIA/Model-Optimizer#713, #565",
        "dynamic height and width are refused",
        ("test_reported.py::test_free_sizes_are_calibrated_with_images_of_several",),
        {"free batch, height and width": lambda: nets.convolutions("batch", "h", "w")},
    ),
    14: Report(
        "NVIDIA/TensorRT#289, #2978",
        "the model's batch is 1, the loader's is not",
        (
            "test_reported.py::test_a_batch_of_one_is_calibrated_with_eight_samples",
            "test_errors.py::TestFixedBatch::test_of_four_and_six_samples",
        ),
        {"batch of 8": lambda: nets.convolutions(8, 16, 24)},
    ),
    15: Report(
        "microsoft/onnxruntime#19694, NVIDIA/TensorRT#1694, #1699, #2380, NVIDIA/Model-Optimizer#117, MQBench#113, ppq#339",
        "ConvTranspose per channel: wrong axis, wrong results",
        cases={
            "ConvTranspose": lambda: layers.conv_transpose(1, bias=False),
            "ConvTranspose with a bias": lambda: layers.conv_transpose(1, bias=True),
            "ConvTranspose in two groups": lambda: layers.conv_transpose(2, bias=True),
            "ConvTranspose that no plan names": layers.conv_transpose_by_default,
        },
    ),
    16: Report(
        "microsoft/onnxruntime#17718, PR #26152, neuralmagic/sparseml#1701, quic/aimet PR #3184",
        "the channel axis of Gemm and MatMul",
        ("test_graph.py::test_the_channel_axis_is_that_of_the_output", "test_random_graphs.py::test_the_bound_catches"),
        {
            "Gemm": lambda: layers.gemm(0, square=False),
            "Gemm, square": lambda: layers.gemm(0, square=True),
            "Gemm transB": lambda: layers.gemm(1, square=False),
            "Gemm transB, square": lambda: layers.gemm(1, square=True),
            "MatMul [K, N]": lambda: layers.matmul((8, 12)),
            "MatMul [K, K]": lambda: layers.matmul((8, 8)),
            "MatMul [B, K, N]": lambda: layers.matmul((3, 8, 12)),
            "MatMul of two activations": layers.matmul_of_two_activations,
        },
    ),
    18: Report(
        "microsoft/onnxruntime PR #22020, #25278, #21645, #21000, #24815",
        "an int32 bias is clipped where weights are tiny; a scalar bias crashes",
        cases={
            "tiny weights": lambda: layers.tiny_weights("vector"),
            "tiny weights, scalar bias": lambda: layers.tiny_weights("scalar"),
        },
    ),
    19: Report(
        "microsoft/onnxruntime#14229, onnx/onnx-tensorrt#850",
        "a quantized bias is refused by the parser",
        ("test_reported.py::test_no_bias_is_quantized",),
        {"Conv with a bias": layers.conv_with_bias},
    ),
    20: Report(
        "NVIDIA/TensorRT#3629, #1114, ultralytics/yolov5#2509, #966, #997",
        "SiLU networks collapse, or are fused badly",
        ("test_reported.py::test_nothing_stands_between_a_conv_and_its_silu",),
        {"SiLU chain": nets.silu_chain},
    ),
    21: Report(
        "ultralytics PR #25020, #25920",
        "leaving Sigmoid out by type keeps every activation in FP32",
        (
            "test_reported.py::test_what_is_no_layer_cannot_be_left_out",
            "test_reported.py::test_all_that_is_not_int8_is_fp16",
        ),
        without="the SiLU chain above is its model",
    ),
    22: Report(
        "microsoft/onnxruntime#14233, ultralytics PR #26171, #26220, NVIDIA/TensorRT#3187, #1691",
        "boxes and scores under one scale: no detection is left",
        ("test_reported.py::test_scores_beside_boxes_keep_their_resolution",),
        {"boxes and scores": nets.detection_head},
    ),
    23: Report(
        "NVIDIA/TensorRT#1992, #1144, #3270, #3861, pytorch/TensorRT#2007",
        "the residual Add runs in FP32",
        ("test_reported.py::test_the_residual_is_read_through_qdq",),
        {
            "residual block": lambda: nets.residual_block(downsample=False),
            "residual block that samples down": lambda: nets.residual_block(downsample=True),
        },
    ),
    25: Report(
        "NVIDIA/TensorRT#4242, #4554, #3197, #2067, #1532, NVIDIA/Model-Optimizer#80",
        "INT8 is slower than FP16, because the rest is FP32",
        ("test_reported.py::test_all_that_is_not_int8_is_fp16",),
        {"Linear, LayerNormalization, Relu": nets.linear_stack},
    ),
    27: Report(
        "NVIDIA/TensorRT#4832, NVIDIA/Model-Optimizer#118",
        "an FP16 scale on FP32 data: the types cannot be inferred",
        ("test_reported.py::test_a_model_that_has_qdq_already_is_refused",),
        {"FP16 model, a layer in FP32": nets.several_types},
    ),
    28: Report(
        "ultralytics#24729, wyoming-whisper-trt PR #1020, pytorch/TensorRT PR #3759, NVIDIA/TensorRT#4095",
        "TensorRT 11 has no calibrators",
        ("test_golden.py::test_caches_are_read_and_written_back_line_by_line",),
        without="is about an API that was removed; old caches are read and written",
    ),
    29: Report(
        "NVIDIA/TensorRT#681, #3131, #1785, #3659, #1378, rmccorm4/tensorrt-utils#18",
        "a cache whose names are not the model's",
        (
            "test_reported.py::test_a_tensor_renamed_after_calibration_is_noticed",
            "test_cache.py::test_names_with_spaces_colons_and_brackets",
        ),
    ),
    30: Report(
        "microsoft/onnxruntime#17235",
        "a cache that lacks tensors",
        ("test_reported.py::test_a_cache_that_lacks_a_tensor_is_refused",),
    ),
    31: Report(
        "NVIDIA/TensorRT#1685, #2414",
        "'Unrecognized attribute: axis' below opset 13",
        ("test_graph.py::test_a_wild_model_is_normalized_and_computes_the_same",),
        {"opset 11": layers.opset_11},
    ),
    35: Report(
        "microsoft/onnxruntime#13358, inference-examples#363, neuralmagic/sparseml PR #1125",
        "a weight that a Constant or Cast node makes",
        cases={"weights from Constant, Cast and Transpose": layers.weights_from_nodes},
    ),
    36: Report(
        "microsoft/onnxruntime#8811, #14142, #17760, #28716, PR #3854",
        "equal node names, none, and '' inputs",
        cases={"unnamed nodes": lambda: layers.names("unnamed"), "one name for all": lambda: layers.names("equal")},
    ),
    37: Report(
        "microsoft/onnxruntime#12556, #19503, optimum#1418",
        "an exclusion that matches nothing is ignored",
        (
            "test_qdq.py::test_a_plan_that_matches_nothing_is_an_error",
            "test_errors.py::TestConfiguration::test_of_a_plan",
        ),
        without="the plan is enough to show it",
    ),
    40: Report(
        "microsoft/onnxruntime#11072, #16470, #17098, #23268, NVIDIA/Model-Optimizer#55",
        "models over 2 GB, and weights in a file of their own",
        (
            "test_reported.py::test_weights_in_another_folder_and_over_the_limit_of_one_file",
            "test_errors.py::TestModels::test_external_weights",
        ),
    ),
    41: Report(
        "NVIDIA/TensorRT#1458, Polygraphy's calibrator",
        "several inputs, of integers too",
        cases={"word numbers, mask and features": nets.text_encoder},
    ),
    43: Report(
        "NVIDIA/Model-Optimizer#48, NVIDIA/TensorRT#4079, #2354, #2527",
        "the engine's output differs from that of the simulation",
        (
            "test_reported.py::test_a_small_resnet_is_near_its_float_model",
            "test_qdq.py::test_rounding_is_half_to_even_and_clamps_at_minus_128",
        ),
        {"small ResNet": nets.small_resnet},
    ),
    44: Report(
        "NVIDIA/Model-Optimizer#236",
        "auto_quantize fails with Conv2d",
        without="is about a hook on torch modules; calib's layers are ONNX nodes, and Convs are in most models here",
    ),
    45: Report(
        "NVIDIA/TensorRT#4616",
        "'the first 1301 layers in FP32': not a word of ONNX nodes",
        ("test_reported.py::test_verify_speaks_of_onnx_nodes",),
    ),
    48: Report(
        "quic/aimet#3060, ultralytics PR #26171",
        "BatchNormalization is not folded before quantizing",
        ("test_reported.py::test_batch_normalization_is_folded_before_weights_are_quantized",),
        {"Conv and BatchNormalization": layers.conv_batch_norm},
    ),
    50: Report(
        "vllm-project/llm-compressor#1025, NVlabs/FoundationPose#298",
        "nothing tells whether a calibration set is good",
        without="is about data, not about a model",
    ),
}


def cases() -> dict[str, Callable[[], Case]]:
    """Return every rebuilt model by a name with its row."""
    return {f"{row}: {name}": made for row, report in REPORTS.items() for name, made in (report.cases or {}).items()}
