"""The repository itself: what importing costs, which way imports go, what the configuration says, what is shipped."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import typer.main

from calib import config
from calib.cli import app
from calib.data import recipe
from calib.study import load
from calib.study.config import StudyConfig

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch",
    "tensorrt",
    "tensorrt_rtx",
    "pycuda",
    "mlflow",
    "datasets",
    "onnxruntime",
    "matplotlib",
    "sklearn",
    "scipy",
    "pyarrow",
    "pydicom",
)
COMMANDS = [
    "run",
    "data",
    "data build",
    "data check",
    "data compare",
    "inspect",
    "calibrate",
    "quantize",
    "verify",
    "evaluate",
    "report",
    "flips",
    "gate",
    "compare",
    "sample-size",
    "cache",
    "cache import",
    "cache export",
]
EXPERIMENTS = sorted(ROOT.glob("experiments/*.toml"))
RECIPES = sorted(ROOT.glob("datasets/*.toml"))


@pytest.mark.parametrize("module", ["calib", "calib.cli", "calib.tracking.mlflow_tracker"])
def test_importing_pulls_in_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_imports_go_one_way() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_the_folder_datasets_is_no_package() -> None:
    assert not (ROOT / "datasets" / "__init__.py").exists(), "it would shadow Hugging Face's datasets"


def test_there_are_studies_and_recipes() -> None:
    assert EXPERIMENTS
    assert RECIPES


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.name)
def test_studies_load(path: Path) -> None:
    assert load(path).config.name == path.stem


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_load_and_have_a_card(path: Path) -> None:
    assert recipe.load(path).name == path.stem
    assert path.with_suffix(".md").is_file()


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, calib) -> None:
    answer = calib(*command.split(), "--help")
    assert answer.status == 0
    assert "Usage: " in answer.out


def test_help_is_tested_for_every_command() -> None:
    group = typer.main.get_command(app)
    names = [(name, getattr(sub, "commands", {})) for name, sub in group.commands.items()]
    assert sorted(COMMANDS) == sorted([*dict(names), *(f"{name} {inner}" for name, subs in names for inner in subs)])


def test_the_wheel_holds_the_package_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("calib-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"calib"}
    assert {
        "calib/py.typed",
        "calib/report/template.html",
        "calib/report/template.md",
        "calib/report/style.css",
    } <= set(names)
    assert not [name for name in names if "__pycache__" in name]


def test_the_readmes_study_and_recipe_load(tmp_path: Path) -> None:
    block, data = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "study.toml").write_text(block)
    (tmp_path / "my-data.toml").write_text(data)
    declared = recipe.load(tmp_path / "my-data.toml")
    picture = recipe.preparer(declared, tmp_path).apply({"image": np.zeros((300, 400, 3), np.uint8)})
    assert picture["x"].shape == (3, 224, 224)
    found = config.load(tmp_path / "study.toml", StudyConfig)
    assert found.plan.layers == {"head.*": "fp16"}
