import contextlib
import io
import json
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from calib.data.source import Fault, Source
from calib.data.sources import images, open_source
from calib.data.sources.images import decode, open_images
from calib.errors import ConfigError, DataError

RNG = np.random.default_rng(5)
PHOTO = RNG.integers(0, 256, (6, 9, 3), np.uint8)


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def save(path, array=PHOTO, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def read_all(source):
    return {item.record["id"]: item for item in source.items() if not isinstance(item, Fault)}


def faults(source):
    return [item for item in source.items() if isinstance(item, Fault)]


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_lossless_formats_give_their_pixels(kind):
    data = encoded(Image.fromarray(PHOTO), kind, **({"lossless": True} if kind == "WEBP" else {}))
    np.testing.assert_array_equal(decode(data, "x"), PHOTO)


def test_every_mode_follows_its_rule(tmp_path):
    photo, gray = Image.fromarray(PHOTO), Image.fromarray(PHOTO[..., 0])
    palette = photo.quantize(8)
    np.testing.assert_array_equal(decode(encoded(palette), "x"), np.asarray(palette.convert("RGB")))
    np.testing.assert_array_equal(decode(encoded(gray), "x"), PHOTO[..., 0])
    bits = gray.convert("1")
    np.testing.assert_array_equal(decode(encoded(bits), "x"), np.asarray(bits).astype(np.uint8) * 255)
    cmyk = encoded(photo.convert("CMYK"), "TIFF")
    np.testing.assert_array_equal(decode(cmyk, "x"), np.asarray(photo.convert("CMYK").convert("RGB")))
    deep = RNG.integers(0, 65536, (4, 5)).astype(np.uint16)
    for kind in ("PNG", "TIFF"):
        found = decode(encoded(Image.fromarray(deep), kind), "x")
        assert found.dtype == np.uint16
        np.testing.assert_array_equal(found, deep)
    portable = b"P5 5 4 65535\n" + deep.astype(">u2").tobytes()
    np.testing.assert_array_equal(decode(portable, "x"), deep)
    for image in (
        Image.fromarray(deep.astype(np.float32)),
        Image.fromarray(deep.astype(np.int32)),
        photo.convert("LAB"),
    ):
        with pytest.raises(DataError, match=r"x has (F|I|LAB) pixels; save it"):
            decode(encoded(image, "TIFF"), "x")


def test_transparency_is_laid_over_white():
    alpha = RNG.integers(0, 256, (6, 9, 1)).astype(np.uint8)
    found = decode(encoded(Image.fromarray(np.dstack([PHOTO, alpha]))), "x")
    share = alpha / 255
    np.testing.assert_array_equal(found, np.floor(PHOTO * share + 255 * (1 - share) + 0.5))
    gray = decode(encoded(Image.fromarray(np.dstack([PHOTO[..., :1], alpha]))), "x")
    np.testing.assert_array_equal(gray, found[..., 0])
    one_colour = Image.fromarray(np.uint8([[10, 20], [10, 30]]))
    assert decode(encoded(one_colour, transparency=10), "x").tolist() == [[255, 20], [255, 30]]
    palette = Image.fromarray(np.uint8([[0, 1]])).convert("P")
    palette.putpalette([9, 9, 9, 70, 80, 90])
    assert decode(encoded(palette, transparency=0), "x").tolist() == [[[255, 255, 255], [70, 80, 90]]]


@pytest.mark.parametrize(
    ("orientation", "turned"), [(3, PHOTO[::-1, ::-1]), (6, np.rot90(PHOTO, -1)), (8, np.rot90(PHOTO))]
)
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_orientation_is_applied(orientation, turned, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    np.testing.assert_array_equal(decode(encoded(Image.fromarray(PHOTO), kind, exif=exif), "x"), turned)


def bomb(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def test_what_cannot_be_decoded_is_an_error_that_names_it(tmp_path):
    whole = {
        kind: encoded(Image.fromarray(PHOTO.repeat(20, 0)), kind) for kind in ("PNG", "JPEG", "TIFF", "BMP", "WEBP")
    }
    cases = [
        (b"", "is not an image"),
        (b"hello", "is not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is not an image"),
        (bomb(10001, 10000), "more than 100,000,000 pixels"),
        (bomb(2**31 - 1, 2**31 - 1), "more than 100,000,000 pixels"),
        (
            encoded(Image.fromarray(PHOTO), "GIF", save_all=True, append_images=[Image.fromarray(255 - PHOTO)]),
            "2 pictures",
        ),
        (encoded(Image.fromarray(PHOTO), "TIFF", save_all=True, append_images=[Image.fromarray(PHOTO)]), "2 pictures"),
        *((data[: len(data) // 2], "cannot be decoded|is not an image") for data in whole.values()),
    ]
    path = tmp_path / "file.png"
    for data, words in cases:
        for source in (data, path):
            path.write_bytes(data)
            with pytest.raises(DataError, match=words) as caught:
                decode(source, "image 'a/b.png'")
            assert str(caught.value).startswith("image 'a/b.png' ")
    with pytest.raises(DataError, match="cannot be decoded"):
        decode(tmp_path / "missing.png", "x")


def test_any_damage_is_an_error_or_an_image():
    draws = np.random.default_rng(6)
    for kind in ("PNG", "JPEG", "TIFF", "GIF", "WEBP", "BMP", "PPM"):
        data = encoded(Image.fromarray(PHOTO), kind)
        for _ in range(40):
            damaged = bytearray(data)
            for position in draws.integers(0, len(data), 3):
                damaged[position] = draws.integers(0, 256)
            with contextlib.suppress(DataError):
                assert decode(bytes(damaged), "x").dtype in (np.uint8, np.uint16)


def test_a_folder_comes_sorted_with_its_classes(tmp_path):
    for name in ("cat/b.png", "cat/a.JPG", "dog/deep/c.tiff", "z.webp", "cat.png"):
        save(tmp_path / "set" / name)
    save(tmp_path / "set" / ".cache" / "copy.png")
    save(tmp_path / "set" / "._z.png")
    (tmp_path / "set" / "readme.txt").write_text("no image")
    source = open_source("images", {"folder": "set"}, tmp_path)
    items = list(source.items())
    assert [item.record for item in items] == [
        {"id": "cat.png", "folder": ""},
        {"id": "cat/a.JPG", "folder": "cat"},
        {"id": "cat/b.png", "folder": "cat"},
        {"id": "dog/deep/c.tiff", "folder": "deep"},
        {"id": "z.webp", "folder": ""},
    ]
    assert isinstance(open_images(tmp_path, folder="set"), Source)
    np.testing.assert_array_equal(items[2].read()["image"], PHOTO)
    assert [path.name for path in source.files()] == ["cat.png", "a.JPG", "b.png", "c.tiff", "z.webp"]
    assert [item.record for item in source.items()] == [item.record for item in items]


def test_nothing_is_read_before_it_is_asked_for(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"nothing")
    (item,) = open_images(tmp_path, folder=".").items()
    with pytest.raises(DataError, match=r"image 'broken.png' is not an image"):
        item.read()


def test_links_that_leave_are_refused(tmp_path):
    save(tmp_path / "secret.png")
    inside = tmp_path / "set"
    save(inside / "a.png")
    (inside / "again.png").symlink_to("a.png")
    (inside / "b.png").symlink_to("../secret.png")
    (inside / "c.png").symlink_to("nowhere.png")
    (inside / "d.png").symlink_to("d.png")
    (inside / "up").symlink_to(tmp_path)
    (inside / "round").symlink_to(inside)
    os.mkfifo(inside / "pipe.png")
    os.close(os.open(os.fsencode(inside) + b"/\xff.png", os.O_CREAT))
    source = open_images(tmp_path, folder="set")
    assert list(read_all(source)) == ["a.png", "again.png"]
    reasons = {fault.where: fault.reason for fault in faults(source)}
    assert reasons.keys() == {"b.png", "c.png", "d.png", "up", "round", "pipe.png", "\\xff.png"}
    for name, words in (
        ("b.png", "leaves the folder"),
        ("c.png", "leads nowhere"),
        ("d.png", "in a loop"),
        ("up", "leaves the folder"),
        ("round", "links to folders are not followed"),
        ("pipe.png", "not a regular file"),
        ("\\xff.png", "not UTF-8"),
    ):
        assert words in reasons[name]
    swapped = read_all(source)["a.png"]
    (inside / "a.png").unlink()
    (inside / "a.png").symlink_to("../secret.png")
    with pytest.raises(DataError, match=r"image 'a.png' leaves the folder"):
        swapped.read()


def test_a_table_gives_the_samples_and_their_metadata(tmp_path):
    for name in ("x/1.png", "x/2.png", "x/3.png"):
        save(tmp_path / "set" / name)
    save(tmp_path / "out.png")
    (tmp_path / "set" / "link.png").symlink_to("../out.png")
    (tmp_path / "t.csv").write_text(
        '\ufeffpath,text,site\nx/2.png,"a, ""b""",007\n./x/1.png,,9\nx/9.png,t,1\n../out.png,t,1\n'
        "link.png,t,1\nx/3.png,short\n/etc/passwd,t,1\n,t,1\n",
        encoding="utf-8",
    )
    source = open_images(tmp_path, folder="set", metadata="t.csv")
    assert [item.record for item in read_all(source).values()] == [
        {"id": "x/2.png", "folder": "x", "text": 'a, "b"', "site": "007"},
        {"id": "x/1.png", "folder": "x", "text": "", "site": "9"},
    ]
    reasons = [(fault.where, fault.reason) for fault in faults(source)]
    assert [where for where, _ in reasons] == [f"t.csv, line {number}" for number in (4, 5, 6, 7, 8, 9)]
    for (_, reason), words in zip(
        reasons, ("does not exist", "leaves", "leaves", "as many cells", "leaves", "not a path"), strict=True
    ):
        assert words in reason
    assert [path.name for path in source.files()] == ["t.csv", "2.png", "1.png"]

    lines = [{"file": "x/1.png", "n": 1, "ok": True, "none": None}, {"file": "x/2.png", "n": [1]}, 7]
    (tmp_path / "t.jsonl").write_text(
        "\n\n".join(map(json.dumps, lines)) + "\n{]\n" + '{"file": "x/3.png", "n": NaN}\n'
    )
    source = open_images(tmp_path, folder="set", metadata="t.jsonl", key="file")
    assert [item.record for item in read_all(source).values()] == [{"id": "x/1.png", "folder": "x", "n": 1, "ok": 1}]
    assert [fault.where for fault in faults(source)] == [f"t.jsonl, line {number}" for number in (3, 5, 6, 7)]


def test_wrong_options_and_tables(tmp_path):
    save(tmp_path / "set" / "a.png")
    (tmp_path / "empty").mkdir()
    for options, words in (
        ({"folder": "sett"}, "not a folder"),
        ({"folder": ""}, "folder must be a path"),
        ({"folder": "set", "metadata": "missing.csv"}, r"a .csv or .jsonl file that exists"),
        ({"folder": "set", "metadata": "set"}, r"a .csv or .jsonl file that exists"),
        ({"folder": 3}, "folder must be a string"),
        ({"folder": "set", "metadatas": ""}, "did you mean 'metadata'"),
        ({}, "'folder' is missing"),
    ):
        with pytest.raises(ConfigError, match=words):
            open_source("images", options, tmp_path)
    with pytest.raises(DataError, match="holds no images"):
        list(open_images(tmp_path, folder="empty").items())
    for text, words in (
        (b"id,path\n1,a.png\n", "has a column 'id'"),
        (b"file,text\na.png,1\n", "line 2 has no column 'path'"),
        (b"path,text\na.png,\xff\n", "cannot be read.*UTF-8 CSV"),
        (b'path,text\na.png,"x\n', "cannot be read"),
        (b"path\n", "holds no images"),
    ):
        (tmp_path / "t.csv").write_bytes(text)
        with pytest.raises(DataError, match=words):
            list(open_images(tmp_path, folder="set", metadata="t.csv").items())


def test_the_order_is_that_of_sorted_paths(tmp_path):
    names = ["a/b.png", "a.png", "a-b.png", "a/b/c.png", "é.png", "z/a.png", "Z.png", "a0.png"]
    for name in names:
        save(tmp_path / name)
    found = [str(item.record["id"]) for item in open_images(tmp_path, folder=".").items()]
    assert found == sorted(names, key=os.fsencode)
    assert images.suffixes() >= {".png", ".jpg", ".jpeg", ".webp", ".tif"} and ".eps" not in images.suffixes()
