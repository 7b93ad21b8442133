import logging
import os
import re
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

from calib.data import writing
from calib.data.source import Fault
from calib.data.sources import folder, open_source
from calib.data.sources.dicom import open_dicom
from calib.errors import ConfigError, DataError, MissingDependencyError

pydicom = pytest.importorskip("pydicom")
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset  # noqa: E402
from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut, apply_windowing  # noqa: E402
from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit, generate_uid  # noqa: E402

FILES = Path(pydicom.__file__).parent / "data" / "test_files"
STORED = np.arange(-500, 1500, 5, dtype=np.int16).reshape(20, 20)


def made(array=STORED, **elements):
    """Return a gray or RGB file in memory; elements by keyword."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.7", generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = FileDataset("", {}, file_meta=meta, preamble=b"\0" * 128)
    colour = array.ndim > 2 and array.shape[-1] == 3
    frames = array.ndim - colour == 3
    dataset.SOPClassUID, dataset.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    dataset.StudyInstanceUID, dataset.PatientID, dataset.Modality = generate_uid(), "one", "CT"
    dataset.Rows, dataset.Columns = array.shape[1:3] if frames else array.shape[:2]
    if frames:
        dataset.NumberOfFrames = len(array)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = (3, "RGB") if colour else (1, "MONOCHROME2")
    if colour:
        dataset.PlanarConfiguration = 0
    bits = 8 * array.dtype.itemsize
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = bits, bits, bits - 1
    dataset.PixelRepresentation = int(array.dtype.kind == "i")
    dataset.PixelData = array.tobytes()
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    return dataset


def save(path, dataset):
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.save_as(path, enforce_file_format=True)
    return path


def read(tmp_path, dataset, **options):
    save(tmp_path / "one" / "file.dcm", dataset)
    return [item.read()["image"] for item in open_dicom(tmp_path, folder="one", **options).items()]


def lut(values, first, bits):
    item = Dataset()
    item.LUTDescriptor = [len(values), first, bits]
    item["LUTDescriptor"].VR = "US" if first >= 0 else "SS"
    item.LUTData = np.asarray(values, "<u2").tobytes()
    item["LUTData"].VR = "OW"
    return item


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize("index", [0, 1])
def test_windows_are_those_of_pydicom_in_0_to_1(tmp_path, function, index):
    dataset = made(
        RescaleSlope=2, RescaleIntercept=-100, WindowCenter=[40, 300], WindowWidth=[400, 1500], VOILUTFunction=function
    )
    (image,) = read(tmp_path, dataset, window=index)
    low, high = -(2**15) * 2 - 100, (2**15 - 1) * 2 - 100
    expected = (apply_windowing(apply_modality_lut(STORED, dataset), dataset, index) - low) / (high - low)
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, expected, atol=1e-6)
    if not index:
        np.testing.assert_array_equal(read(tmp_path, dataset)[0], image)  # the first is the default


def test_an_own_window_and_monochrome1(tmp_path):
    dataset = made(RescaleSlope=1, RescaleIntercept=-24)
    (image,) = read(tmp_path, dataset, window=[40, 401])
    np.testing.assert_allclose(image, np.clip((STORED - 24 - 39.5) / 400 + 0.5, 0, 1), atol=1e-6)
    dataset.PhotometricInterpretation = "MONOCHROME1"
    np.testing.assert_allclose(read(tmp_path, dataset, window=[40, 401])[0], 1 - image, atol=1e-6)
    assert set(np.unique(read(tmp_path, dataset, window=[40, 1])[0])) == {0, 1}


def test_tables(tmp_path):
    values = np.arange(100, 200, dtype=np.int16).reshape(10, 10)
    table = np.linspace(0, 1023, 64).astype(int)
    dataset = made(values, VOILUTSequence=[lut(table, 120, 10)], WindowCenter=1, WindowWidth=9)
    (image,) = read(tmp_path, dataset)
    np.testing.assert_allclose(image, apply_voi_lut(values, dataset) / 1023, atol=1e-6)
    modality = made(values, ModalityLUTSequence=[lut(table, 110, 16)], WindowCenter=500, WindowWidth=300)
    shown = np.clip((apply_modality_lut(values, modality) - 499.5) / 299 + 0.5, 0, 1)
    np.testing.assert_allclose(read(tmp_path, modality)[0], shown, atol=1e-6)


def test_eight_bits_need_no_window_and_more_do(tmp_path):
    gray = np.arange(256, dtype=np.uint8).reshape(16, 16)
    np.testing.assert_allclose(read(tmp_path, made(gray))[0], gray / 255, atol=1e-6)
    np.testing.assert_allclose(
        read(tmp_path, made(gray, RescaleSlope=-2, RescaleIntercept=9))[0], 1 - gray / 255, atol=1e-6
    )
    with pytest.raises(DataError, match=r"more than 8 bits.*set window = \[center, width\]"):
        read(tmp_path, made())
    with pytest.raises(DataError, match="stores 0 windows, and number 2"):
        read(tmp_path, made(gray), window=2)
    for elements in (
        {"RescaleSlope": 0, "RescaleIntercept": 0},
        {"WindowCenter": 1, "WindowWidth": 0},
        {"VOILUTFunction": "X"},
    ):
        with pytest.raises(DataError, match=r"sample 'dicom-[0-9a-f]{16}' \(file 1 of the DICOM folder"):
            read(tmp_path, made(gray, **{"WindowCenter": 1, "WindowWidth": 9, **elements}))


def test_frames_are_samples_with_their_own_groups(tmp_path):
    frames = np.stack([STORED, STORED + 100, STORED - 7])

    def groups(slope, center):
        rescale, window, item = Dataset(), Dataset(), Dataset()
        rescale.RescaleSlope, rescale.RescaleIntercept = slope, 0
        window.WindowCenter, window.WindowWidth = center, 101
        item.PixelValueTransformationSequence, item.FrameVOILUTSequence = [rescale], [window]
        return item

    shared, own = groups(2, 50), [Dataset(), groups(3, 80), Dataset()]
    dataset = made(frames, SharedFunctionalGroupsSequence=[shared], PerFrameFunctionalGroupsSequence=own)
    images = read(tmp_path, dataset)
    for image, frame, slope, center in zip(images, frames, (2, 3, 2), (50, 80, 50), strict=True):
        wanted = np.clip((frame.astype(float) * slope - center + 0.5) / 100 + 0.5, 0, 1)
        np.testing.assert_allclose(image, wanted, atol=1e-6)
    ids = [item.record["id"] for item in open_dicom(tmp_path, folder="one").items()]
    assert [identity[22:] for identity in ids] == ["-1", "-2", "-3"] and len({identity[:22] for identity in ids}) == 1


def test_colour(tmp_path):
    rgb = np.random.default_rng(7).integers(0, 65536, (5, 6, 3)).astype(np.uint16)
    np.testing.assert_array_equal(read(tmp_path, made((rgb >> 8).astype(np.uint8)))[0], rgb >> 8)
    np.testing.assert_array_equal(read(tmp_path, made(rgb))[0], rgb >> 8)
    with pytest.raises(DataError, match="photometric interpretation other than"):
        read(tmp_path, made(rgb, PhotometricInterpretation="CMYK"))


def test_patients_are_told_apart_and_stay_when_others_join(tmp_path):
    def write(name, **elements):
        save(tmp_path / "set" / name, made(WindowCenter=40, WindowWidth=400, **elements))

    write("b", PatientID="1")
    write("c", PatientID=" 1 ")
    write("d", PatientID="2", PatientName="A")
    write("e", PatientID="", PatientName="A", PatientBirthDate="20000101")
    write("f", PatientID="", PatientName="A", PatientBirthDate="20000102")
    write("g", PatientID="", StudyInstanceUID="1.2.3")
    write("h", PatientID="", StudyInstanceUID="1.2.3")
    write("i", PatientID="", StudyInstanceUID="1.2.4")

    def patients():
        source = open_source("dicom", {"folder": "set"}, tmp_path)
        return {item.record["id"]: (item.record["patient"], item.record["study"]) for item in source.items()}

    before = patients()
    groups = [patient for patient, _ in before.values()]
    assert [groups.index(patient) for patient in groups] == [0, 0, 2, 3, 4, 5, 5, 7]
    assert len({study for _, study in before.values()}) == 7
    assert all(re.fullmatch(r"patient-[0-9a-f]{12}", patient) for patient in groups)
    write("a", PatientID="new")
    after = patients()
    assert len(after) == 9 and all(after[identity] == labels for identity, labels in before.items())


READ = """693_J2KI ExplVR_BigEnd J2K_pixelrep_mismatch MR_small MR_small_RLE MR_small_bigendian MR_small_expb
MR_small_implicit MR_small_jp2klossless MR_small_padded SC_jpeg_no_color_transform SC_jpeg_no_color_transform_2
SC_rgb_dcmtk_+eb+cr SC_rgb_dcmtk_+eb+cy+n1 SC_rgb_dcmtk_+eb+cy+n2 SC_rgb_dcmtk_+eb+cy+np SC_rgb_dcmtk_+eb+cy+s2
SC_rgb_dcmtk_+eb+cy+s4 SC_rgb_gdcm_KY SC_rgb_jpeg_app14_dcmd SC_rgb_jpeg_dcmd SC_rgb_jpeg_dcmtk SC_rgb_jpeg_lossy_gdcm
SC_rgb_rle SC_rgb_rle_16bit SC_rgb_rle_16bit_2frame SC_rgb_rle_2frame SC_rgb_rle_32bit SC_rgb_rle_32bit_2frame
SC_rgb_small_odd SC_rgb_small_odd_big_endian SC_rgb_small_odd_jpeg SC_ybr_full_422_uncompressed examples_jpeg2k
examples_overlay examples_palette examples_rgb_color examples_ybr_color liver_1frame liver_expb_1frame"""
READ_WITH_WINDOW = """CT_small JPEG2000 rtdose rtdose_1frame rtdose_expb rtdose_expb_1frame rtdose_rle
rtdose_rle_1frame"""
REFUSED = {
    "is not a DICOM file": "ExplVR_BigEndNoMeta ExplVR_LitEndNoMeta no_meta rtstruct README",
    "does not say its transfer syntax": "meta_missing_tsyntax",
    "is deflated": "image_dfl",
    "needs a plug-in": "JPEGLSNearLossless_08 JPEGLSNearLossless_16 MR_small_jpeg_ls_lossless SC_rgb_jls_lossy_line "
    "SC_rgb_jls_lossy_sample SC_rgb_jpeg_gdcm UN_sequence",
    "that needs another plug-in": "GDCMJ2K_TextGBR JPEG-lossy JPEG2000-embedded-sequence-delimiter JPGExtended SC_rgb_jpeg",
    r"missing, truncated or damaged;": "MR_truncated",
    "is damaged: pydicom cannot read it": "badVR",
    "holds no image": "empty_charset_LEI nested_priv_SQ no_meta_group_length priv_SQ reportsi "
    "reportsi_with_empty_number_tags rtplan rtplan_truncated test-SR waveform_ecg",
}


def outcomes(**options):
    """Return what becomes of every test file of pydicom by name; the number in a message finds the file."""
    paths = [found.relative for found in folder.walk(FILES)]
    result = dict.fromkeys(paths, "no sample")
    for item in open_dicom(FILES, folder=".", **options).items():
        if isinstance(item, Fault):
            result[paths[int(re.match(r"file (\d+) of", item.where)[1]) - 1]] = item.reason
            continue
        try:
            image = item.read()["image"]
            where, outcome = item.read.where, "read"
            assert image.dtype == np.uint8 or (image.min() >= 0 and image.max() <= 1)
            assert image.shape[:2] == (item.record["rows"], item.record["columns"])
        except DataError as error:
            where = outcome = str(error)
        result[paths[int(re.search(r"\(file (\d+) of", where)[1]) - 1]] = outcome
    return result


def test_every_test_file_of_pydicom_is_read_or_refused():
    """All of pydicom 3.0.2: a file that is new, or fares otherwise, fails the test."""
    found = outcomes()
    expected = {f"{name}.dcm": "read" for name in READ.split()}
    expected |= {f"{name}.dcm": "stores no window" for name in READ_WITH_WINDOW.split()}
    expected |= {f"{name}.dcm": words for words, names in REFUSED.items() for name in names.split()}
    for path, outcome in found.items():
        name = path.rpartition("/")[2]
        if name == "README":
            assert "is not a DICOM file" in outcome
        elif "TINY_ALPHA/PT" in path:
            assert "holds no image" in outcome
        elif name.startswith("DICOMDIR") or path.endswith((".txt", ".icc", ".json", ".gz", ".dump")):
            assert outcome == "no sample"
        elif "/" in path:
            assert outcome == "read", path
        else:
            assert re.search(expected[path], outcome), (path, outcome)
    assert len(found) == 176 and sum(outcome == "read" for outcome in found.values()) == 71
    with_window = outcomes(window=[40, 400])
    assert all(with_window[f"{name}.dcm"] == "read" for name in READ_WITH_WINDOW.split())


def test_what_is_no_dicom_file(tmp_path):
    place = tmp_path / "set"
    save(place / "a", made(WindowCenter=1, WindowWidth=9))
    save(place / ".hidden" / "b.dcm", made())
    save(tmp_path / "outside.dcm", made())
    (place / "labels.csv").write_text("a,b")
    (place / "empty.dcm").write_bytes(b"")
    (place / "link.dcm").symlink_to("../outside.dcm")
    (place / "zeros.dcm").write_bytes(bytes(200))
    save(place / "picture.png", made(WindowCenter=1, WindowWidth=9, PatientID="two"))  # DICOM whatever it is called
    source = open_dicom(tmp_path, folder="set")
    items = list(source.items())
    assert [type(item).__name__ for item in items] == ["Item", "Fault", "Fault", "Item", "Fault"]
    listed = sorted((path for path in place.rglob("*") if path.is_symlink() or not path.is_dir()), key=os.fsencode)
    for item, name in zip(items, ("a", "empty.dcm", "link.dcm", "picture.png", "zeros.dcm"), strict=True):
        where = item.where if isinstance(item, Fault) else item.read.where
        assert listed[int(re.search(r"file (\d+) of", where)[1]) - 1].name == name
    assert "leaves the folder" in items[2].reason
    assert [path.name for path in source.files()] == ["a", "empty.dcm", "picture.png", "zeros.dcm"]


def test_claims_beyond_reason_are_refused_before_they_are_decoded(tmp_path):
    cases = [
        ({"Rows": 65535, "Columns": 65535}, "claims more than"),
        ({"NumberOfFrames": 10**9}, "claims more than"),
        ({"NumberOfFrames": -1}, "claims more than"),
        ({"BurnedInAnnotation": "YES"}, "annotations burned into its pixels"),
    ]
    for number, (elements, _) in enumerate(cases):
        save(tmp_path / "set" / f"{number}.dcm", made(WindowCenter=1, WindowWidth=9, **elements))
    faults = list(open_dicom(tmp_path, folder="set").items())
    for fault, (_, words) in zip(faults, cases, strict=True):
        assert words in fault.reason
    allowed = [
        item for item in open_dicom(tmp_path, folder="set", burned_in=True).items() if not isinstance(item, Fault)
    ]
    assert len(allowed) == 1 and allowed[0].read()["image"].shape == (20, 20)


def test_wrong_options(tmp_path, monkeypatch):
    for window in ([1], [1, 0.5], [1, float("nan")], ["a", 2], -1, True, "brain", 1.5):
        with pytest.raises(ConfigError, match="window must be"):
            open_source("dicom", {"folder": ".", "window": window}, tmp_path)
    with pytest.raises(ConfigError, match="not a folder"):
        open_dicom(tmp_path, folder="missing")
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(MissingDependencyError, match=r"calib\[data\]"):
        open_dicom(tmp_path, folder=".")


# PS3.15, table E.1-1 (basic profile): text, names, dates, UIDs and numbers that may identify a patient or those around.
IDENTIFYING = """AccessionNumber AcquisitionComments AcquisitionContextSequence AcquisitionDate AcquisitionDateTime
AcquisitionDeviceProcessingDescription AcquisitionProtocolDescription AcquisitionTime AdditionalPatientHistory
AdmissionID AdmittingDate AdmittingDiagnosesDescription AdmittingTime Allergies
AuthorObserverSequence BranchOfService CassetteID CommentsOnThePerformedProcedureStep ConcatenationUID
ConsultingPhysicianName ContentCreatorName ContentDate ContentTime ContrastBolusAgent ContributionDescription
CountryOfResidence CurrentPatientLocation CustodialOrganizationSequence DateOfLastCalibration DerivationDescription
DetectorID DeviceSerialNumber DeviceUID DischargeDiagnosisDescription DistributionAddress DistributionName EthnicGroup
FillerOrderNumberImagingServiceRequest FrameComments FrameOfReferenceUID GantryID GeneratorID HumanPerformerName
HumanPerformerOrganization IdentifyingComments ImageComments ImagePresentationComments ImagingServiceRequestComments
InstanceCreationDate InstanceCreationTime InstanceCreatorUID InstitutionAddress InstitutionalDepartmentName
InstitutionName InsurancePlanIdentification IssuerOfPatientID LastMenstrualDate MedicalAlerts MedicalRecordLocator
MilitaryRank NameOfPhysiciansReadingStudy NamesOfIntendedRecipientsOfResults Occupation OperatorsName OrderEnteredBy
OrderEntererLocation OtherPatientIDs OtherPatientNames PatientAddress PatientAge PatientBirthDate PatientBirthName
PatientBirthTime PatientComments PatientID PatientInstitutionResidence PatientMotherBirthName PatientName
PatientReligiousPreference PatientSex PatientSize PatientState PatientTelephoneNumbers PatientTransportArrangements
PatientWeight PerformedLocation PerformedProcedureStepDescription PerformedProcedureStepID PerformedStationAETitle
PerformedStationName PerformingPhysicianName PlateID PregnancyStatus PreMedication ProtocolName ReasonForStudy
ReferringPhysicianAddress ReferringPhysicianName ReferringPhysicianTelephoneNumbers RegionOfResidence
RequestAttributesSequence RequestedProcedureComments RequestedProcedureDescription RequestedProcedureID
RequestingPhysician RequestingService ResponsibleOrganization ResponsiblePerson ReviewerName
ScheduledPerformingPhysicianName ScheduledProcedureStepDescription ScheduledStationAETitle SeriesDate SeriesDescription
SeriesInstanceUID SeriesTime ServiceEpisodeID SmokingStatus SOPInstanceUID SpecialNeeds StationName StudyComments
StudyDate StudyDescription StudyID StudyInstanceUID StudyTime TimezoneOffsetFromUTC TransactionUID UID VerifyingObserverName
VisitComments"""
MARK = "ZQMARK"
MARKS = (MARK, MARK.lower(), "19581117", "041729.31", "977531.", "93.57531", "073Y")


def marked(keyword, number):
    """Return a value of the keyword's own type that no other file would hold."""
    kind = pydicom.datadict.dictionary_VR(keyword)
    if kind == "SQ":
        item = Dataset()
        item.PersonName, item.CodeMeaning = f"{MARK}^SQ{number}", f"{MARK} SQ{number}"
        return [item]
    values = {"DA": "19581117", "TM": "041729.31", "DT": "19581117041729.31", "AS": "073Y", "DS": "93.57531"}
    return {**values, "UI": f"1.2.977531.{number}", "US": 57531}.get(
        kind, f"{MARK}^{number}" if kind == "PN" else f"{MARK}{number}"
    )


def identified(**elements):
    dataset = made(WindowCenter=40, WindowWidth=400, Manufacturer="Maker", BodyPartExamined="HEAD")
    for number, keyword in enumerate(IDENTIFYING.split()):
        setattr(dataset, keyword, marked(keyword, number))
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
    dataset.file_meta.SourceApplicationEntityTitle = dataset.file_meta.ImplementationVersionName = MARK
    dataset.preamble = MARK.encode().ljust(128, b"\0")
    dataset.private_block(0x11, MARK, create=True).add_new(1, "LO", MARK)
    for keyword, value in elements.items():
        setattr(dataset, keyword, value)
    return dataset


def break_element(path, keyword, kind):
    """Give an element text that its type does not allow: pydicom quotes it in what it says."""
    dataset = identified()
    dataset[keyword] = pydicom.DataElement(keyword, "LO", MARK)
    data = save(path, dataset).read_bytes()
    tag = pydicom.tag.Tag(keyword)
    head = tag.group.to_bytes(2, "little") + tag.element.to_bytes(2, "little")
    assert data.count(head + b"LO") == 1
    path.write_bytes(data.replace(head + b"LO", head + kind))


def test_nothing_that_identifies_a_patient_leaves_the_reader(tmp_path, caplog, capfd, recwarn):
    """Marked values in every such field, in the path and in broken elements: none is in anything that comes out."""
    caplog.set_level(logging.DEBUG)
    place = tmp_path / MARK / f"{MARK}^DOE"
    good = identified()
    wrong_syntax, compressed = identified(), identified()
    wrong_syntax.file_meta.TransferSyntaxUID = "1.2.977531.9"
    compressed.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    compressed.PixelData = pydicom.encaps.encapsulate([MARK.encode() * 40])
    files = {
        "good": good,
        "cut": identified(PixelData=good.PixelData[:99]),
        "syntax": wrong_syntax,
        "compressed": compressed,
        "photometric": identified(PhotometricInterpretation=MARK),
        "function": identified(VOILUTFunction=MARK),
        "labels": identified(
            Manufacturer=f"{MARK}^A", BodyPartExamined=f"{MARK}^", ManufacturerModelName=f"{MARK}^", Modality="^"
        ),
        "charset": identified(SpecificCharacterSet=MARK),
    }
    for name, dataset in files.items():
        save(place / f"{MARK}-{name}.dcm", dataset)
    kinds = {"WindowCenter": b"DS", "NumberOfFrames": b"IS", "Rows": b"US", "Columns": b"IS", "RescaleSlope": b"DS"}
    for keyword, kind in {**kinds, "PatientID": b"DS", "BitsStored": b"FD"}.items():
        break_element(place / f"{MARK}-{keyword}.dcm", keyword, kind)
    (place / f"{MARK}.dcm").symlink_to(f"/{MARK}")
    recwarn.clear(), caplog.clear(), capfd.readouterr()

    said, samples = [], []
    for item in open_source("dicom", {"folder": f"{MARK}/{MARK}^DOE"}, tmp_path).items():
        if isinstance(item, Fault):
            said.append(repr(item))
            continue
        said += [repr(item.record), repr(item)]
        try:
            samples.append((str(item.record["id"]), item.read(), item.record))
        except DataError as error:
            said += [repr(error), repr(error.__cause__), repr(error.__context__), *traceback.format_exception(error)]
    said = [re.sub(r'File "[^"]+"', "", text) for text in said]  # where our code lies
    assert len(samples) == 4 and len(said) > 20  # good, labels, charset, PatientID
    writing.write(tmp_path / "set", samples)
    said += [path.read_bytes().decode("latin1") for path in (tmp_path / "set").rglob("*") if path.is_file()]
    said += [str(warning.message) for warning in recwarn] + [record.getMessage() for record in caplog.records]
    said += list(capfd.readouterr())
    for text in said:
        assert not [mark for mark in MARKS if mark.lower() in text.lower()], text
    assert {record["manufacturer"] for _, _, record in samples} == {"Maker", ""}
    assert pydicom.dcmread(place / f"{MARK}-good.dcm").PatientName == marked(
        "PatientName", IDENTIFYING.split().index("PatientName")
    )
