"""Pages of medical paperwork, each scanned, faxed or photographed the right way up or turned: a second example of a source.

calib asks a source for two things: ``metadata()``, one flat record per sample, and ``inputs(index)``, the arrays of
one sample, here the picture from which the recipe's declared preprocessing makes the model's input.
:func:`mail_room` returns such a source. Nothing here imports calib.

The pages are SYNTHETIC: invented letters, reports and forms. ``scanned-pages.md`` is their data card.
"""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import gaussian_filter, gaussian_filter1d

Array = NDArray[np.float32]
Colour = tuple[int, int, int]

# A sheet of A4 at 90 dots an inch; sizes of type are in these dots.
WIDTH, HEIGHT = 744, 1052
ANGLES = (0, 90, 180, 270)

# --- What the pages say ---------------------------------------------------------------------------------------------


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(";")]


WORDS = """
    the patient was seen in our clinic on account of chest pain and shortness of breath which had become worse over two
    weeks there is no history of fever weight loss or recent travel blood pressure and pulse were normal at rest the
    heart sounds are regular without murmur lungs are clear and the abdomen is soft laboratory results show mild anaemia
    with normal renal function we recommend to continue the present treatment and to repeat the tests in six weeks please
    stop ibuprofen and take pantoprazole once daily an appointment for echocardiography has been made thank you for your
    kind referral the wound heals well sutures may be removed on day ten physiotherapy is to be continued at home
""".split()  # noqa: SIM905  # a list of 120 strings would be longer
RESULTS = _entries("""
    Haemoglobin g/dL; Leukocytes, automated G/L; Platelets (EDTA) G/L; Sodium, serum mmol/L; Potassium, serum mmol/L;
    Creatinine, enzymatic umol/L; Urea mmol/L; Fasting glucose mmol/L; Bilirubin, total umol/L; ALT (GPT) U/L; GGT U/L;
    C-reactive protein mg/L; TSH, basal mU/L; INR ratio; Vitamin B12 pmol/L; Urine protein, 24 h mg/d
""")
NOTES = _entries("see note; repeated; outside range; below limit; confirmed; pending; H; L")
FIELDS = _entries("""
    Surname Example; Forename Maria; Birthday 04.11.1958; Insurance A 123 456 789; Ward 3B, bed 2; Doctor A. Example;
    Allergies none known; Medication Metformin 850 mg; Telephone 555-0142
""")
TITLES = _entries(
    "Discharge letter; Laboratory report; Consent form; Referral; Admission sheet; Prescription; Invoice; Findings"
)
SECTIONS = _entries("Diagnosis; History; Examination; Results; Treatment; Recommendation; Remarks")
STAMPS = _entries("RECEIVED; COPY; PAID; URGENT; CONFIDENTIAL; SCANNED; FILE")
HOUSES = _entries("Harbour Clinic; St Anne Hospital; Hillside Practice; Campus Laboratory; North Medical Centre")

FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "STIXGeneral")
BOLD = {"STIXGeneral": "STIXGeneralBol"}
INKS: tuple[Colour, ...] = ((20, 20, 25), (35, 35, 60), (60, 60, 60))
PENS: tuple[Colour, ...] = ((25, 40, 140), (20, 20, 30), (30, 90, 160))
STAMP_INKS: tuple[Colour, ...] = ((190, 40, 50), (60, 60, 170), (50, 50, 60))


@lru_cache(maxsize=200)
def _font(name: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf"), size)


@dataclass(frozen=True)
class Document:
    """What the pages of one document have in common."""

    name: str
    device: str
    house: str
    font: str
    size: int  # of its type
    ink: Colour
    wear: float  # 0: the device as new, 1: due for replacement


@dataclass(frozen=True)
class Page:
    """One page, not yet drawn; `angle` is how far it is turned clockwise from upright."""

    index: int
    document: Document
    kind: str
    angle: int

    def record(self) -> dict[str, str]:
        """The page's metadata."""
        return {
            "id": f"page-{self.index:05d}",
            "document": self.document.name,
            "device": self.document.device,
            "kind": self.kind,
            "angle": str(self.angle),
        }


def _rng(seed: int, index: int, purpose: str) -> np.random.Generator:
    # A stream of its own for each document, sheet and scan: none changes when another draws more or fewer numbers.
    return np.random.default_rng([seed, index, ("document", "sheet", "scan").index(purpose)])


def draw_pages(pages: int, seed: int) -> list[Page]:
    """Draw which pages there are without rendering them; a shorter log is the beginning of a longer one."""
    result: list[Page] = []
    number = 0
    while len(result) < pages:
        rng = _rng(seed, number, "document")
        document = Document(
            name=f"document-{number:04d}",
            device=str(rng.choice(list(DEVICES), p=[device.share for device in DEVICES.values()])),
            house=str(rng.choice(HOUSES)),
            font=str(rng.choice(FONTS)),
            size=int(rng.integers(13, 19)),
            ink=INKS[rng.integers(len(INKS))],
            wear=float(rng.beta(2, 2)),
        )
        for _ in range(min(int(rng.integers(2, 7)), pages - len(result))):
            kind = str(rng.choice(list(KINDS), p=[kind.share for kind in KINDS.values()]))
            result.append(Page(len(result), document, kind, int(rng.choice(ANGLES))))
        number += 1
    return result


class Sheet:
    """A sheet of paper that is being printed and written on."""

    def __init__(self, document: Document, rng: np.random.Generator) -> None:
        """Start with an empty sheet."""
        self.document, self.rng = document, rng
        self.image = Image.new("RGB", (WIDTH, HEIGHT), "white")
        self.draw = ImageDraw.Draw(self.image)
        self.left, self.right = (int(rng.integers(45, 95)) for _ in range(2))
        self.line = round(document.size * rng.uniform(1.3, 1.7))  # from one line of type to the next

    def text(self, x: float, y: float, text: str, scale: float = 1.0, bold: bool = False) -> None:
        """Print `text` with its upper left corner at x, y."""
        self.draw.text((x, y), text, fill=self.document.ink, font=self._face(scale, bold))

    def _face(self, scale: float, bold: bool) -> ImageFont.FreeTypeFont:
        name = self.document.font
        return _font(BOLD.get(name, f"{name}-Bold") if bold else name, max(7, round(self.document.size * scale)))

    def sentence(self, words: int) -> str:
        """Some words of running text."""
        start = int(self.rng.integers(len(WORDS)))
        return " ".join((WORDS * 2)[start : start + words]).capitalize()

    def paragraph(self, y: float, lines: int) -> float:
        """Print some lines of running text from y down, and return where they end."""
        full = (WIDTH - self.left - self.right) / self._face(1.0, False).getlength("n")
        start = int(self.rng.integers(len(WORDS)))
        for line in range(lines):
            words, room = [], full * (self.rng.uniform(0.2, 0.8) if line == lines - 1 else 0.96)
            while room > 0:
                words.append(WORDS[start % len(WORDS)])
                room -= len(words[-1]) + 1
                start += 1
            self.text(self.left, y, " ".join(words))
            y += self.line
        return y + self.line / 2

    def head(self) -> float:
        """Print the house's letterhead and the page's title, and return where they end."""
        y = int(self.rng.integers(30, 70))
        if self.rng.random() < 0.7:
            self.draw.rectangle((self.left, y, self.left + 26, y + 26), fill=PENS[self.rng.integers(len(PENS))])
        self.text(self.left + 36, y, self.document.house, 1.6, bold=True)
        self.text(self.left + 36, y + 2 * self.document.size, "12 Quay Street, Tel. 555-0142", 0.8)
        self.text(self.left, y + 70, str(self.rng.choice(TITLES)), 1.4, bold=True)
        return y + 70 + 2.2 * self.line

    def scribble(self, x: float, y: float, width: float, height: float) -> None:
        """Write something illegible by hand on a line that begins at x, y."""
        rng, pen = self.rng, PENS[self.rng.integers(len(PENS))]
        turns = max(2.0, width / (0.6 * height))
        t = np.linspace(0, 1, int(14 * turns))
        # Most letters are low, a few rise and fewer fall below the line; strokes differ in width and lean forward.
        heights = rng.choice((0.35, 0.45, 1.0, -0.45), int(turns) + 2, p=(0.35, 0.3, 0.25, 0.1))
        phase = 2 * math.pi * np.cumsum(np.interp(t, np.linspace(0, 1, 9), rng.uniform(0.6, 1.4, 9))) * turns / len(t)
        up = 0.5 * height * np.interp(t, np.linspace(0, 1, len(heights)), heights) * (1 - np.cos(phase))
        across = x + width * t + 0.22 * height * np.sin(phase + 1.2) + 0.35 * up
        down = y - up + rng.normal(0, 0.04 * width) * t
        self.draw.line([*zip(across, down, strict=True)], fill=pen, width=int(rng.integers(1, 4)), joint="curve")

    def attach(self, x: float, y: float, piece: Image.Image, angle: float) -> None:
        """Put a piece, ink on white, on the sheet with its centre at x, y, turned by an angle in degrees."""
        mask = piece.convert("L").point(lambda level: 255 - level).rotate(angle, Image.Resampling.BICUBIC, expand=True)
        ink = piece.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor="white")
        self.image.paste(ink, (round(x - mask.width / 2), round(y - mask.height / 2)), mask)

    def stamp(self) -> None:
        """Stamp the sheet, at whatever angle the hand held the stamp."""
        rng, text = self.rng, f"{self.rng.choice(STAMPS)} {self.rng.integers(1, 29):02d} MAR 2026"
        face, ink = _font("DejaVuSans-Bold", int(rng.integers(18, 34))), STAMP_INKS[rng.integers(len(STAMP_INKS))]
        piece = Image.new("RGB", (round(face.getlength(text)) + 24, round(face.size) + 24), "white")
        draw = ImageDraw.Draw(piece)
        draw.rectangle((2, 2, piece.width - 3, piece.height - 3), outline=ink, width=3)
        draw.text((12, 8), text, fill=ink, font=face)
        self.attach(rng.uniform(150, WIDTH - 150), rng.uniform(150, HEIGHT - 150), piece, rng.uniform(-180, 180))


# --- Kinds of page --------------------------------------------------------------------------------------------------


def _letter(sheet: Sheet) -> None:
    rng, y = sheet.rng, sheet.head()
    for part in ("Dr A. Example", "4 Station Road", "Sometown"):
        sheet.text(sheet.left, y, part)
        y += sheet.line
    y += 2 * sheet.line
    end = rng.uniform(0.5, 0.8) * HEIGHT
    while y < end:
        y = sheet.paragraph(y, int(rng.integers(2, 7)))
    sheet.text(sheet.left, y + 5, "Yours sincerely,")
    sheet.scribble(sheet.left, y + 75, rng.uniform(90, 200), rng.uniform(20, 45))


def _report(sheet: Sheet) -> None:
    y, end = sheet.head(), sheet.rng.uniform(0.6, 0.85) * HEIGHT
    for name in sheet.rng.permutation(SECTIONS):
        if y < end:
            sheet.text(sheet.left, y, name, bold=True)
            y = sheet.paragraph(y + 1.2 * sheet.line, int(sheet.rng.integers(3, 9)))


def _grid(sheet: Sheet, y: float, rows: int, columns: Sequence[float]) -> None:
    """Print a table of results; `columns` are the left edges of its columns as shares of the width."""
    rng, width = sheet.rng, WIDTH - sheet.left - sheet.right
    ruled = rng.random() < 0.6
    pitch = sheet.line * rng.uniform(1.0, 1.3)
    top = y
    for row in range(rows):
        name, unit = str(rng.choice(RESULTS)).rsplit(maxsplit=1)
        note = str(rng.choice(NOTES)) if rng.random() < 0.4 else ""
        value, limits = f"{rng.lognormal(2, 1.2):.{rng.integers(3)}f}", f"{rng.integers(50)} - {rng.integers(50, 400)}"
        for column, cell in zip(columns, (name, value, unit, limits, note), strict=False):
            sheet.text(sheet.left + column * width + 3, y, cell, bold=row == 0)
        y += pitch
        if ruled:
            sheet.draw.line((sheet.left, y - 2, sheet.left + width, y - 2), fill=(150, 150, 150))
    if ruled:
        for column in columns:
            at = sheet.left + column * width
            sheet.draw.line((at, top, at, y - 2), fill=(150, 150, 150))


def _table(sheet: Sheet) -> None:
    y = sheet.head()
    rows = round((sheet.rng.uniform(0.55, 0.9) * HEIGHT - y) / (1.15 * sheet.line))
    _grid(sheet, y, rows, (0, 0.42, 0.53, 0.65, 0.82))
    sheet.paragraph(y + 1.35 * rows * sheet.line, 2)


def _numbers(sheet: Sheet) -> None:
    """Columns of bare figures, as a device logs them: few letters say which way is up."""
    rng, y = sheet.rng, float(sheet.rng.integers(40, 120))
    columns = int(rng.integers(3, 7))
    pitch = (WIDTH - sheet.left - sheet.right) / columns
    while y < HEIGHT - 60:
        for column in range(columns):
            sheet.text(sheet.left + column * pitch, y, f"{rng.lognormal(3, 1.5):.{rng.integers(1, 3)}f}")
        y += sheet.line * 1.15


def _form(sheet: Sheet) -> None:
    rng, y = sheet.rng, sheet.head()
    width = WIDTH - sheet.left - sheet.right
    declared = float(rng.uniform(0.35, 0.65)) * HEIGHT  # where the small print is that the signature is for
    while y < HEIGHT - 130:
        if y > declared:
            y, declared = sheet.paragraph(y + 8, int(rng.integers(3, 9))), math.inf
        height = int(rng.integers(38, 66))
        fields = int(rng.integers(1, 4))
        for field in range(fields):
            x = sheet.left + field * width / fields
            sheet.draw.rectangle((x, y, x + width / fields, y + height), outline=(90, 90, 90))
            label, value = str(rng.choice(FIELDS)).split(maxsplit=1)
            sheet.text(x + 4, y + 2, label, 0.75)
            filled = rng.random()
            if filled < 0.4:
                sheet.text(x + 14, y + height - 1.2 * sheet.document.size, value)
            elif filled < 0.7:
                sheet.scribble(x + 14, y + height - 5, rng.uniform(0.3, 0.7) * width / fields, rng.uniform(12, 22))
        y += height


def _sparse(sheet: Sheet) -> None:
    """A cover sheet, or the last page of a letter: a few lines somewhere."""
    rng, y = sheet.rng, float(sheet.rng.uniform(0.3, 0.6)) * HEIGHT
    if rng.random() < 0.5:
        sheet.text(sheet.left + rng.uniform(0, 200), y, str(rng.choice(TITLES)), rng.uniform(1.0, 2.6), bold=True)
        y += 4 * sheet.line
    for _ in range(rng.integers(1, 4)):
        sheet.text(sheet.left + rng.uniform(0, 120), y, sheet.sentence(int(rng.integers(2, 9))))
        y += sheet.line * rng.uniform(1, 3)


def _trace(sheet: Sheet) -> None:
    """A strip of ECG on squared paper, with the few labels that the machine prints."""
    rng, pitch = sheet.rng, int(sheet.rng.integers(10, 16))
    for at in range(0, HEIGHT, pitch):
        shade = (240, 170, 170) if at % (5 * pitch) == 0 else (250, 215, 215)
        sheet.draw.line((0, at, WIDTH, at), fill=shade)
        sheet.draw.line((at, 0, at, HEIGHT), fill=shade)
    leads = int(rng.integers(3, 8))
    x = np.arange(30, WIDTH - 30, 1.5)
    for lead in range(leads):
        base, beat = 130 + lead * (HEIGHT - 200) / leads, x % rng.uniform(90, 140)
        high = rng.uniform(25, 60)
        y = base - high * np.exp(-((beat - 40) ** 2) / 12) - 0.2 * high * np.exp(-((beat - 70) ** 2) / 120)
        y += 0.2 * high * np.exp(-((beat - 47) ** 2) / 10) + rng.normal(0, 0.6, len(x))
        sheet.draw.line([*zip(x, y, strict=True)], fill=(25, 25, 40), width=2)
        sheet.text(32, base - 50, ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2")[lead], bold=True)
    sheet.text(40, 30, f"25 mm/s   10 mm/mV   HR {rng.integers(50, 120)}/min   {sheet.document.house}")
    sheet.text(40, 52, sheet.sentence(6))


def _mixed(sheet: Sheet) -> None:
    """Running text with something printed sideways: a wide table, or labels that were stuck on as they came."""
    rng, document = sheet.rng, sheet.document
    y = sheet.head()
    y = sheet.paragraph(y, int(rng.integers(6, 14)))
    aside = Sheet(document, rng)
    _grid(aside, 10, 9, (0, 0.45, 0.6, 0.75))
    piece = aside.image.crop((aside.left, 0, WIDTH - aside.right, 12 * aside.line))
    turn = int(rng.choice((90, 270, 180)))
    sheet.attach(WIDTH / 2, y + (piece.width if turn != 180 else piece.height) / 2, piece, turn)
    if turn == 180:
        sheet.paragraph(y + piece.height + 10, int(rng.integers(6, 16)))


@dataclass(frozen=True)
class Kind:
    """A kind of page: its share, and what prints it."""

    share: float
    print: Callable[[Sheet], None]


KINDS: Mapping[str, Kind] = {
    "letter": Kind(0.26, _letter),
    "report": Kind(0.18, _report),
    "table": Kind(0.16, _table),
    "form": Kind(0.14, _form),
    "numbers": Kind(0.05, _numbers),
    "sparse": Kind(0.07, _sparse),
    "trace": Kind(0.05, _trace),
    "mixed": Kind(0.09, _mixed),
}


def _sheet(page: Page, seed: int) -> Image.Image:
    """The page upright, as it was printed, stamped and written on."""
    sheet = Sheet(page.document, _rng(seed, page.index, "sheet"))
    KINDS[page.kind].print(sheet)
    if sheet.rng.random() < 0.25:
        sheet.stamp()
    if sheet.rng.random() < 0.2:  # a note in the margin, written by someone who turned the page
        other = Sheet(page.document, sheet.rng)
        other.scribble(10, 50, 190, 26)
        note = other.image.crop((0, 0, 220, 60))
        sheet.attach(sheet.rng.choice((50, WIDTH - 50)), sheet.rng.uniform(200, 850), note, sheet.rng.choice((90, 270)))
    return sheet.image


# --- What the devices make of them ----------------------------------------------------------------------------------
# Each takes the sheet as it lies in the device and returns what it records: levels [rows, columns, 1 or 3], 0..255.


def _scanned(sheet: Image.Image, short: float, skew: float, outside: int) -> Array:
    """The sheet with `short` dots on its short side, turned by `skew` degrees, float32 [rows, columns, 1 or 3]."""
    factor = short / min(sheet.size)
    small = sheet.resize((round(sheet.width * factor), round(sheet.height * factor)), Image.Resampling.BILINEAR)
    fill = outside if small.mode == "L" else (outside,) * 3
    levels: Array = np.asarray(small.rotate(skew, Image.Resampling.BILINEAR, fillcolor=fill), np.float32)
    return levels.reshape(*levels.shape[:2], -1)


def _noise(rng: np.random.Generator, strength: float, levels: Array) -> Array:
    noise: Array = strength * rng.standard_normal((*levels.shape[:2], 1), np.float32)
    return noise


def _blurred(levels: Array, dots: float) -> Array:
    blurred: Array = gaussian_filter(levels, (dots, dots, 0), truncate=3)
    return blurred


def _smooth(coarse: NDArray[np.float64], size: tuple[int, int]) -> Array:
    """Values between those of a coarse grid, float32 [rows, columns]; `size` is (columns, rows)."""
    return np.asarray(Image.fromarray(coarse.astype(np.float32)).resize(size, Image.Resampling.BICUBIC))


def _flatbed(sheet: Image.Image, wear: float, rng: np.random.Generator) -> Array:
    page = 255 - _scanned(sheet, rng.uniform(380, 620), rng.normal(0, 1 + wear), 255)
    page = 255 - rng.uniform(0, 25) - rng.uniform(0.55, 0.95) * _blurred(page, 0.3 + wear)
    return page + _noise(rng, 2 + 5 * wear, page)


def _copier(sheet: Image.Image, wear: float, rng: np.random.Generator) -> Array:
    """A copy of a copy: grey, dirty, off the glass at one side, with streaks along the feed."""
    page = _scanned(sheet.convert("L"), rng.uniform(400, 560), rng.normal(0, 2), 40)
    page = 128 + (_blurred(page, 0.4 + 0.7 * wear) - rng.uniform(150, 215)) * rng.uniform(1.0, 2.2)
    page[:, rng.random(page.shape[1]) < 0.02 * wear] -= 60
    page[: int(rng.uniform(0, 0.06) * len(page))] = 20
    return np.clip(page, 15, 250) + _noise(rng, 4 + 12 * wear, page)


def _fax(sheet: Image.Image, wear: float, rng: np.random.Generator) -> Array:
    """One bit a dot, and a header that the machine prints over whatever lies in it, whichever way round."""
    page = _scanned(sheet.convert("L"), rng.uniform(400, 560), rng.normal(0, 1.5), 255)
    header = (
        f"26-MAR-2026 {rng.integers(6, 22):02d}:14  FROM 555-0{rng.integers(100, 199)}  PAGE {rng.integers(1, 9):02d}"
    )
    grey = _picture(page)
    ImageDraw.Draw(grey).text((12, 4), header, fill=0, font=_font("DejaVuSansMono", 11))
    toner: Array = 1 - np.asarray(grey, np.float32)[..., None] / np.float32(255)
    black = toner + _noise(rng, 0.03 + 0.06 * wear, toner) > rng.uniform(0.18, 0.34)
    black ^= rng.random(black.shape) < 0.001 + 0.008 * wear
    for row in np.flatnonzero(rng.random(len(black) - 1) < 0.10 * wear):  # a line lost on the wire repeats the last
        black[row + 1] = black[row]
    return np.where(black, 0, 255).astype(np.float32)


def _thermal(sheet: Image.Image, wear: float, rng: np.random.Generator) -> Array:
    """A faded print on thermal paper, scanned small."""
    page = _scanned(sheet.convert("L"), rng.uniform(340, 460), rng.normal(0, 2), 255)
    ink = 1 - _blurred(page, 0.4 + 0.5 * wear) / 255
    rows, columns = page.shape[:2]
    fade = _smooth(rng.normal(1, 0.35, (rows // 40 + 2, columns // 40 + 2)), (columns, rows))
    grey = 220 - (160 - 90 * wear) * np.clip(fade, 0.3, 1.5)[..., None] * ink
    grey += gaussian_filter1d(rng.normal(0, 8, page.shape[1]), 2)[:, None]  # each heating dot has its own strength
    return (grey + _noise(rng, 3 + 5 * wear, page)).astype(np.float32) * np.array((1.0, 0.98, 0.9), np.float32)


def _phone(sheet: Image.Image, wear: float, rng: np.random.Generator) -> Array:
    """A photo of the page on a desk: tilt, perspective, shadow, blur, JPEG."""
    factor = rng.uniform(420, 640) / min(sheet.size)
    size = np.array(sheet.size) * factor * rng.uniform(1.0, 1.2, 2)
    columns, rows = map(round, size)
    # Where each corner of the photo lies on the sheet's plane: the margins around it, a turn and perspective.
    turn = math.radians(rng.normal(0, 3))
    corners = np.array([(-1, -1), (-1, 1), (1, 1), (1, -1)]) * size / (2 * factor) * rng.normal(1, 0.025, (4, 1))
    corners = corners @ np.array([(math.cos(turn), math.sin(turn)), (-math.sin(turn), math.cos(turn))])
    corners += np.array(sheet.size) / 2 + rng.normal(0, 25, 2)
    paper = sheet.convert("RGBA")  # opaque: what lies outside it is not
    shape = ((columns, rows), Image.Transform.QUAD, tuple(corners.ravel()), Image.Resampling.BILINEAR)
    seen = np.asarray(paper.transform(*shape), np.float32)
    cover = seen[..., 3:] / 255
    desk = np.array((150, 115, 85)) * rng.uniform(0.35, 1.4) + rng.normal(0, 12, 3)
    grain = _smooth(rng.normal(0, 12, (rows, columns // 60 + 2)), (columns, rows))
    y, x = np.mgrid[-1 : 1 : rows * 1j, -1 : 1 : columns * 1j].astype(np.float32)
    light = rng.uniform(0.55, 0.95) + rng.normal(0, 0.12) * x + rng.normal(0, 0.12) * y
    edge = (rng.normal(0, 1) * x + rng.normal(0, 1) * y + rng.normal(0, 0.5)) * rng.uniform(3, 20)
    light -= rng.uniform(0, 0.35) / (1 + np.exp(-edge))  # the shadow of the hand and the phone
    bare = np.clip(grain[..., None] + desk.astype(np.float32), 0, 255)
    photo = (cover * seen[..., :3] + (1 - cover) * bare) * light[..., None]
    photo = _blurred(photo, 0.4 + 1.2 * wear) * rng.uniform(0.9, 1.05, 3).astype(np.float32)
    file = io.BytesIO()
    _picture(photo + _noise(rng, 2 + 6 * wear, photo)).save(file, "jpeg", quality=int(rng.integers(20, 60)))
    return np.asarray(Image.open(file), np.float32)


@dataclass(frozen=True)
class Device:
    """A way onto the record: its share of the documents, and what it does to a sheet."""

    share: float
    record: Callable[[Image.Image, float, np.random.Generator], Array]


DEVICES: Mapping[str, Device] = {
    "flatbed": Device(0.30, _flatbed),
    "copier": Device(0.20, _copier),
    "fax": Device(0.20, _fax),
    "phone": Device(0.22, _phone),
    "thermal": Device(0.08, _thermal),
}


def _picture(levels: Array) -> Image.Image:
    return Image.fromarray(np.clip(np.rint(levels), 0, 255).astype(np.uint8).squeeze())


def render(page: Page, seed: int) -> NDArray[np.uint8]:
    """The page as its document's device recorded it, uint8 [rows, columns, 3] RGB."""
    # The sheet is turned before it is recorded: the device's own marks do not turn with it.
    turned = _sheet(page, seed).rotate(-page.angle, expand=True)
    levels = DEVICES[page.document.device].record(turned, page.document.wear, _rng(seed, page.index, "scan"))
    return np.asarray(_picture(levels).convert("RGB"))


# --- The source that calib reads ------------------------------------------------------------------------------------


class MailRoom:
    """Scanned pages, each rendered when it is read."""

    def __init__(self, pages: Sequence[Page], seed: int) -> None:
        """Serve ``pages``."""
        self._pages, self._seed = pages, seed

    def metadata(self) -> Sequence[Mapping[str, str]]:
        """One record per page: id, document, device, kind and angle."""
        return [page.record() for page in self._pages]

    def inputs(self, index: int) -> Mapping[str, NDArray[np.uint8]]:
        """``image``: uint8 [rows, columns, 3], RGB."""
        return {"image": render(self._pages[index], self._seed)}


def mail_room(pages: int = 1500, seed: int = 2026) -> MailRoom:
    """The source of a log of this many pages."""
    return MailRoom(draw_pages(pages, seed), seed)
