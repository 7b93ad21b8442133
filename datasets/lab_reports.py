"""A production log of text lines from laboratory reports: an example of plugging your own data into calib.

calib asks a source for two things: ``metadata()``, one flat record per sample, and ``inputs(index)``, the model's
inputs of one sample. :func:`production_log` returns such a source. Nothing here imports calib.

The log is SYNTHETIC: invented reports, drawn with free fonts and degraded as four kinds of device would.
``lab-reports.md`` is its data card.
"""

import io
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from datasets import Dataset, Features, Value, load_from_disk
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter, gaussian_filter1d

Array = NDArray[np.float32]
Scan = Callable[[Array, float, np.random.Generator], Array]

# --- What the reports say -------------------------------------------------------------------------------------------


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(";")]


# Name, unit, lower and upper reference limit. Order matters: a page prints neighbours, as a panel does.
ANALYTES = _entries("""
    Haemoglobin g/dL 12.0 17.5; Haematocrit % 36.0 50.0; Erythrocytes T/L 4.0 5.9; Leukocytes G/L 4.0 10.0;
    Platelets G/L 150 400; MCV fL 80 96; MCH pg 27.0 33.0; MCHC g/dL 32.0 36.0; RDW % 11.5 14.5; Neutrophils % 40 75;
    Lymphocytes % 20 45; Monocytes % 2.0 10.0; Eosinophils % 0.5 6.0; Basophils % 0.1 1.5; Reticulocytes % 0.5 2.0;
    Sodium mmol/L 135 145; Potassium mmol/L 3.5 5.1; Chloride mmol/L 98 107; Calcium mmol/L 2.15 2.55;
    Magnesium mmol/L 0.70 1.05; Phosphate mmol/L 0.80 1.50; Glucose mmol/L 3.9 5.6; HbA1c % 4.0 5.6;
    Urea mmol/L 2.5 7.8; Creatinine umol/L 62 106; Uric acid umol/L 200 420; Bilirubin umol/L 3 21; ALT U/L 10 45;
    AST U/L 10 40; GGT U/L 8 60; ALP U/L 40 130; LDH U/L 135 225; CK U/L 40 190; Lipase U/L 13 60; Amylase U/L 28 100;
    Albumin g/L 35 52; Total protein g/L 64 83; CRP mg/L 0.3 5.0; Lactate mmol/L 0.5 2.0; Cholesterol mmol/L 3.0 5.2;
    HDL mmol/L 1.0 2.2; LDL mmol/L 1.6 3.4; Triglycerides mmol/L 0.6 1.7; Ferritin ug/L 30 300; Iron umol/L 9 30;
    Transferrin g/L 2.0 3.6; Troponin T ng/L 3 14; NT-proBNP ng/L 20 125; INR ratio 0.90 1.20; Quick % 70 120;
    aPTT s 25 37; Thrombin time s 14 21; Fibrinogen g/L 2.0 4.0; D-dimer mg/L 0.10 0.50; Antithrombin % 80 120;
    U-Protein mg/L 20 150; U-Albumin mg/L 2 20; U-Creatinine mmol/L 4.0 18.0; U-Sodium mmol/L 40 220;
    U-Leukocytes /uL 2 25; TSH mU/L 0.40 4.00; fT4 pmol/L 12.0 22.0; fT3 pmol/L 3.1 6.8; Cortisol nmol/L 170 540;
    Prolactin mU/L 90 400; LH U/L 1.7 8.6; FSH U/L 1.5 12.4; Estradiol pmol/L 45 850; Testosterone nmol/L 8.6 29.0;
    PTH pmol/L 1.6 6.9; Vitamin D nmol/L 50 125; Vitamin B12 pmol/L 145 570; Folate nmol/L 8.8 42.0
""")
# Name, doses to choose from, unit and route.
DRUGS = _entries("""
    Metformin 500|850|1000 mg; Ramipril 2.5|5|10 mg; Bisoprolol 2.5|5 mg; Amlodipine 5|10 mg; Torasemide 5|10|20 mg;
    Simvastatin 20|40 mg; Atorvastatin 20|40|80 mg; Rosuvastatin 5|10 mg; Pantoprazole 20|40 mg; Omeprazole 20|40 mg;
    Levothyroxine 50|75|100 ug; Aspirin 100 mg; Clopidogrel 75 mg; Apixaban 2.5|5 mg; Rivaroxaban 15|20 mg;
    Candesartan 8|16 mg; Valsartan 80|160 mg; Losartan 50|100 mg; Enalapril 5|10 mg; Lisinopril 5|10|20 mg;
    Metoprolol 47.5|95 mg; Carvedilol 6.25|12.5 mg; Spironolactone 25|50 mg; Furosemide 40 mg; Digoxin 0.125 mg;
    Allopurinol 100|300 mg; Prednisolone 5|20|50 mg; Ibuprofen 400|600 mg; Paracetamol 500|1000 mg;
    Diclofenac 50|75 mg; Tramadol 50|100 mg; Gabapentin 100|300 mg; Pregabalin 75|150 mg; Sertraline 50|100 mg;
    Citalopram 10|20 mg; Mirtazapine 15|30 mg; Venlafaxine 75|150 mg; Quetiapine 25|100 mg; Lorazepam 0.5|1 mg;
    Zopiclone 3.75|7.5 mg; Amoxicillin 500|1000 mg; Cefuroxime 250|500 mg; Ciprofloxacin 250|500 mg;
    Doxycycline 100 mg; Azithromycin 250|500 mg; Sitagliptin 50|100 mg; Empagliflozin 10|25 mg; Glimepiride 1|2|3 mg;
    Azathioprine 50 mg; Folate 5 mg; Tamsulosin 0.4 mg; Finasteride 5 mg; Montelukast 10 mg;
    Enoxaparin 40|60|80 mg s.c.; Heparin 5000|7500 IU s.c.; Insulin 6|8|12|20 IU s.c.; Fondaparinux 2.5 mg s.c.;
    Filgrastim 300 ug s.c.; Ceftriaxone 1|2 g i.v.; Vancomycin 500|1000 mg i.v.; Meropenem 1|2 g i.v.;
    Ondansetron 4|8 mg i.v.; Morphine 2.5|5|10 mg s.c.
""")
HEADERS = _entries("""
    Patient ID: LX-{n:06d}; Sample {a:02d}-{b:03d}-{c:04d}; Collected {day} {time}; Received {day} {time};
    Order No. {n:06d}{a:02d}; Case LR-{c:04d}/{a:02d}; Ward {a:d}B, bed {bed:d}; Reported {day} {time}
""")
COMMENTS = _entries("""
    Sample slightly haemolysed; Result confirmed by repeat; Please repeat in {bed} weeks; Fasting sample;
    Lipaemic serum, see note; Phoned to ward at {time}; Clotted, please send again; Interpret with caution;
    eGFR {a} mL/min; Platelet clumps seen; Within therapeutic range; No growth after 48 h;
    Trough level before dose {bed}; Material: EDTA blood; Material: serum; Validated {time}, technician {a}
""")
SCHEDULES = ("1-0-0", "1-0-1", "0-0-1", "1-1-1", "daily", "if needed")
SITES = ("north", "south", "harbour", "campus", "airport", "hillside")
# A report column is this wide; a result that does not fit is printed without its reference range.
COLUMN = 32

# Fonts that ship with matplotlib, and the factor by which their width is condensed: report printers set narrow type.
FONTS = (
    ("DejaVuSans.ttf", 0.66),
    ("DejaVuSans-Bold.ttf", 0.62),
    ("DejaVuSans-Oblique.ttf", 0.66),
    ("DejaVuSansMono.ttf", 0.62),
    ("DejaVuSansMono-Bold.ttf", 0.62),
    ("DejaVuSerif.ttf", 0.64),
    ("STIXGeneral.ttf", 0.86),
    ("STIXGeneralBol.ttf", 0.82),
)


@dataclass(frozen=True)
class Page:
    """One document: what its lines have in common."""

    document: str
    device: str
    site: str
    day: date
    lines: int
    panel: int  # the analyte its first result reports
    brackets: bool  # whether it brackets reference ranges
    font: int
    wear: float  # 0: the device as new, 1: due for replacement


@dataclass(frozen=True)
class Line:
    """One line of a page, not yet drawn."""

    index: int
    page: Page
    text: str

    def record(self) -> dict[str, str]:
        """The line's metadata."""
        return {
            "id": f"line-{self.index:05d}",
            "document": self.page.document,
            "device": self.page.device,
            "site": self.page.site,
            "day": self.page.day.isoformat(),
            "text": self.text,
        }


def _rng(seed: int, index: int, purpose: str) -> np.random.Generator:
    # A stream of its own for each page, text and image: none changes when another draws more or fewer numbers.
    return np.random.default_rng([seed, index, ("page", "text", "image").index(purpose)])


def _page(seed: int, number: int) -> Page:
    rng = _rng(seed, number, "page")
    return Page(
        document=f"report-{number:04d}",
        device=str(rng.choice(list(DEVICES), p=[device.share for device in DEVICES.values()])),
        site=str(rng.choice(SITES)),
        day=date(2026, 3, 2) + timedelta(days=number // 8),
        lines=int(rng.integers(5, 21)),
        panel=int(rng.integers(len(ANALYTES))),
        brackets=bool(rng.random() < 0.3),
        font=int(rng.integers(len(FONTS))),
        wear=float(rng.beta(2, 3)),
    )


def _result(page: Page, position: int, rng: np.random.Generator) -> str:
    name, unit, low, high = ANALYTES[(page.panel + position) % len(ANALYTES)].rsplit(maxsplit=3)
    # On a log scale, in units of half the reference interval: one value in five falls outside, none is absurd.
    deviation = rng.triangular(-1.8, 0.0, 1.8)
    half = math.log(float(high) / float(low)) / 2
    value = math.exp(math.log(float(low)) + half * (1 + deviation))
    shown = f"{value:.{len(low.partition('.')[2])}f}"
    flag = " H" if float(shown) > float(high) else " L" if float(shown) < float(low) else ""
    limits = f"[{low}-{high}]" if page.brackets else f"{low}-{high}"
    full = f"{name} {shown} {unit} {limits}{flag}"
    return full if len(full) <= COLUMN else f"{name} {shown} {unit}{flag}"


def _drug(rng: np.random.Generator) -> str:
    name, doses, unit = str(rng.choice(DRUGS)).split(maxsplit=2)
    return f"{name} {rng.choice(doses.split('|'))} {unit} {rng.choice(SCHEDULES)}"


def _text(seed: int, index: int, page: Page, position: int) -> str:
    rng = _rng(seed, index, "text")
    kind = "header" if position < 2 else rng.choice(["result", "drug", "comment", "header"], p=[0.66, 0.16, 0.12, 0.06])
    if kind == "result":
        return _result(page, position, rng)
    if kind == "drug":
        return _drug(rng)
    return str(rng.choice(HEADERS if kind == "header" else COMMENTS)).format(
        n=rng.integers(1_000_000),
        a=rng.integers(10, 100),
        b=rng.integers(1000),
        c=rng.integers(10_000),
        bed=rng.integers(2, 9),
        day=page.day.isoformat(),
        time=f"{rng.integers(6, 22):02d}:{rng.integers(60):02d}",
    )


def draw_lines(lines: int, seed: int) -> Iterator[Line]:
    """Draw the log's lines without rendering them; a shorter log is the beginning of a longer one."""
    index = number = 0
    while index < lines:
        page = _page(seed, number)
        for position in range(min(page.lines, lines - index)):
            yield Line(index, page, _text(seed, index, page, position))
            index += 1
        number += 1


# --- What the devices make of them ----------------------------------------------------------------------------------
# Each takes ink coverage, float32 [rows, columns] in 0..1, and returns grey levels of the same shape in 0..255.


def _flatbed(ink: Array, wear: float, rng: np.random.Generator) -> Array:
    paper, black = rng.uniform(225, 262), rng.uniform(10, 90)
    grey: Array = paper + (black - paper) * gaussian_filter(ink, 0.3 + 1.1 * wear)
    return grey + rng.normal(0, 1 + 4 * wear, ink.shape).astype(np.float32)


def _fax(ink: Array, wear: float, rng: np.random.Generator) -> Array:
    toner = gaussian_filter(ink, 0.35) + rng.normal(0, 0.10 + 0.12 * wear, ink.shape)
    black = toner > rng.uniform(0.38, 0.52)
    black ^= rng.random(ink.shape) < 0.001 + 0.005 * wear
    # A scan line lost on the wire repeats the one above it.
    for row in np.flatnonzero(rng.random(len(black) - 1) < 0.06 * wear):
        black[row + 1] = black[row]
    return np.where(black, 0, 255).astype(np.float32)


def _phone(ink: Array, wear: float, rng: np.random.Generator) -> Array:
    rows, columns = ink.shape
    # The crop's corners are a little off the line's: a small tilt and perspective in one transform.
    corners = np.array([[0, 0], [0, rows], [columns, rows], [columns, 0]]) + rng.normal(0, 0.035 * rows, (4, 2))
    sheet = Image.fromarray(ink).transform(
        (columns, rows), Image.Transform.QUAD, tuple(corners.ravel()), Image.Resampling.BICUBIC
    )
    y, x = np.mgrid[-1 : 1 : rows * 1j, -1 : 1 : columns * 1j]
    light = rng.uniform(150, 215) + rng.normal(0, 25) * x + rng.normal(0, 10) * y - rng.uniform(0, 25) * x**2
    grey = light * (1 - rng.uniform(0.62, 0.85) * gaussian_filter(np.asarray(sheet), rows * (0.025 + 0.048 * wear)))
    file = io.BytesIO()
    _picture(grey + rng.normal(0, 3 + 6 * wear, ink.shape)).save(file, "jpeg", quality=int(rng.integers(15, 45)))
    return np.asarray(Image.open(file), np.float32)


def _thermal(ink: Array, wear: float, rng: np.random.Generator) -> Array:
    columns = ink.shape[1]
    # The print head is a row of heating dots along the line: each column has its own strength, some dots are dead.
    head = 1 + gaussian_filter1d(rng.normal(0, 1.5, columns), 6) - 0.7 * (rng.random(columns) < 0.01 + 0.03 * wear)
    contrast = rng.uniform(70, 110) - 75 * wear
    grey: Array = rng.uniform(195, 235) - contrast * np.clip(head, 0.1, 1.3) * gaussian_filter(ink, 0.5 + 0.6 * wear)
    grey += gaussian_filter1d(rng.normal(0, 8, columns), 2)
    return grey + rng.normal(0, 3 + 3 * wear, ink.shape).astype(np.float32)


@dataclass(frozen=True)
class Device:
    """A way onto the record: its share of the pages, the height in pixels it gives a line, and what it does to it."""

    share: float
    rows: tuple[int, int]
    scan: Scan


DEVICES: Mapping[str, Device] = {
    "flatbed": Device(0.55, (40, 60), _flatbed),
    "fax": Device(0.20, (22, 28), _fax),
    "phone": Device(0.20, (36, 60), _phone),
    "thermal": Device(0.05, (30, 42), _thermal),
}


@lru_cache(maxsize=len(FONTS))
def _font(file: str) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", file), 64)


def _typeset(text: str, font: int, rows: int, rng: np.random.Generator) -> Array:
    """Ink coverage of a line as a text detector crops it, float32 [rows, columns] in 0..1."""
    file, condense = FONTS[font]
    face = _font(file)
    _, top, _, bottom = face.getbbox("(Ag", anchor="ls")
    above, below, left, right = rng.uniform(4, 14, 4)
    height, width = bottom - top + above + below, face.getlength(text) + left + right
    image = Image.new("L", (round(width), round(height)))
    ImageDraw.Draw(image).text((left, above - top), text, fill=255, font=face, anchor="ls")
    size = (round(width * condense * rng.uniform(0.96, 1.04) * rows / height), rows)
    return np.asarray(image.resize(size, Image.Resampling.BOX), np.float32) / np.float32(255)


def _picture(grey: Array) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))


def render(line: Line, seed: int) -> bytes:
    """The line as its page's device recorded it: a grey PNG."""
    rng = _rng(seed, line.index, "image")
    device = DEVICES[line.page.device]
    ink = _typeset(line.text, line.page.font, int(rng.integers(*device.rows)), rng)
    file = io.BytesIO()
    _picture(device.scan(ink, line.page.wear, rng)).save(file, "png")
    return file.getvalue()


# --- The source that calib reads ------------------------------------------------------------------------------------

HEIGHT, STEP, WIDEST = 48, 160, 640


class LabReports:
    """Text lines for a PP-OCR recognizer, read from a Hugging Face dataset folder."""

    def __init__(self, data: Dataset) -> None:
        """Serve ``data``, with columns id, document, device, site, day, text and image (PNG bytes)."""
        self._data = data

    def metadata(self) -> Sequence[Mapping[str, str]]:
        """One record per line: id, document, device, site, day (ISO) and text."""
        records: list[dict[str, str]] = self._data.remove_columns("image").to_list()
        return records

    def inputs(self, index: int) -> Mapping[str, Array]:
        """``x``: float32 [3, 48, width], BGR in -1..1, zero right of the line; width is 160, 320, 480 or 640."""
        image = Image.open(io.BytesIO(self._data[index]["image"])).convert("RGB")
        width = min(math.ceil(HEIGHT * image.width / image.height), WIDEST)
        bgr = np.asarray(image.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32)[..., ::-1]
        # Few distinct widths, so that lines of one width fill a batch.
        x: Array = np.zeros((3, HEIGHT, math.ceil(width / STEP) * STEP), np.float32)
        x[..., :width] = (bgr.transpose(2, 0, 1) / 255 - 0.5) / 0.5
        return {"x": x}


def production_log(lines: int = 3000, seed: int = 2026, folder: str | None = None) -> LabReports:
    """The log's source; its folder is generated on first use, by default in ``runs/production-logs``."""
    name = f"lab-reports-{lines}-{seed}"
    target = Path(folder) if folder else Path(__file__).parents[1] / "runs" / "production-logs" / name
    if not target.exists():
        _generate(lines, seed, target)
    data = load_from_disk(str(target))
    if len(data) != lines:
        raise ValueError(f"{target} holds {len(data)} lines, not the {lines} asked for: name another folder")
    return LabReports(data)


def _generate(lines: int, seed: int, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    records = [line.record() | {"image": render(line, seed)} for line in draw_lines(lines, seed)]
    columns = dict.fromkeys(("id", "document", "device", "site", "day", "text"), Value("string"))
    features = Features(columns | {"image": Value("binary")})
    # Written beside the target and renamed, so that a run that is killed leaves no half log under its name.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".lab-reports-") as scratch:
        Dataset.from_list(records, features=features).save_to_disk(Path(scratch, "data"))
        os.replace(Path(scratch, "data"), target)
