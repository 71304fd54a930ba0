"""Sizes of the demo model and helpers shared by the stages."""

from __future__ import annotations

import copy
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

HERE = Path(__file__).resolve().parent
DEMO = HERE.parent  # the checkpoint and its measurements lie beside the recipe
sys.path.insert(0, os.environ.get("DEMO_REFERENCE", str(HERE / "reference")))
import make_reference as reference  # noqa: E402  (its builders, writers and conversation loop)

SEED = 20261130
PROMPT_WORDS = 620  # size of the text vocabulary
SIZES = {
    "lm": dict(dim=128, num_heads=4, num_layers=4, ffn_dim=256, context=256, card=256, text_card=PROMPT_WORDS),
    "depformer": dict(dim=64, num_heads=4, num_layers=2, ffn_dim=64),
}
CODEC = {
    "seanet": dict(dimension=96, n_filters=10),
    "transformer": dict(dim=96, num_heads=3, num_layers=2, ffn_dim=192, context=32),
    "quantizer": dict(dimension=80, n_q=8, bins=256),
}


def demo_config() -> dict:
    """config.json of a reference preset, with the sizes of the demo model."""
    cfg = copy.deepcopy(reference.preset_config("tiny"))
    cfg = cfg[0] if isinstance(cfg, tuple) else cfg
    cfg["synthetic"] = {"preset": "demo", "seed": SEED, "story": None}
    for part, sizes in SIZES.items():
        cfg[part].update(sizes)
    for part, sizes in CODEC.items():
        cfg["mimi"][part].update(sizes)
    return cfg


class Log:
    def __init__(self, path: Path | None = None):
        self.start, self.path = time.time(), path

    def __call__(self, text: str):
        line = f"[{time.time() - self.start:7.1f}s] {text}"
        print(line, flush=True)
        if self.path:
            with open(self.path, "a") as f:
                f.write(line + "\n")


class Peers:
    """Several processes that train on their own data and average their weights every few steps.

    RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as usual; without them there is one process.
    """

    def __init__(self):
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if self.size > 1:
            dist.init_process_group("gloo")

    def average(self, tensors, value: float) -> float:
        if self.size == 1:
            return value
        flat = torch.cat([t.flatten() for t in tensors] + [torch.tensor([value])])
        dist.all_reduce(flat)
        flat /= self.size
        at = 0
        for t in tensors:
            t.copy_(flat[at: at + t.numel()].view_as(t))
            at += t.numel()
        return float(flat[-1])
