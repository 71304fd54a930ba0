#!/usr/bin/env python3
"""Make a small PersonaPlex-shaped checkpoint and the reference outputs that go with it.

    python make_reference.py --preset tiny --out DIR      write DIR/checkpoint and DIR/goldens
    python make_reference.py --check DIR                  recompute the goldens of DIR and compare
    python make_reference.py --inventory FILE             tensor names and shapes at the real size

The checkpoint has the file formats, tensor names and packing of the published model, small
dimensions and random weights. The goldens are computed from the files of that checkpoint by the
PyPI package `moshi` (the modules of the codec and of the two transformers) driven by this script
(the staging of the 17 token streams, the prompts, teacher forcing in the depformer), so they
share no code with an implementation under test.

Needs: torch, moshi 0.2.x, sentencepiece, safetensors, numpy. CPU only. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import math
import os
import tarfile
import time
from pathlib import Path
from unittest import mock

os.environ.setdefault("NO_TORCH_COMPILE", "1")
os.environ.setdefault("NO_CUDA_GRAPH", "1")

import numpy as np
import sentencepiece
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import moshi
from moshi.models.compression import MimiModel
from moshi.models.lm import LMModel
from moshi.modules.conv import StreamingConv1d, StreamingConvTranspose1d
from moshi.modules.seanet import SEANetDecoder, SEANetEncoder, SEANetResnetBlock
from moshi.modules.transformer import ProjectedTransformer, RingKVCache, RMSNorm
from moshi.quantization import SplitResidualVectorQuantizer

HERE = Path(__file__).resolve().parent
SCHEMA = "personaplex-config/1"

# ------------------------------------------------------------------------------------------------
# Configuration
# ------------------------------------------------------------------------------------------------

# The frames that stand for "the agent is silent" and "the user line is idle" while the prompts are
# replayed. They are constants of the protocol: eight codes of the real codec each.
SILENCE_TOKENS = [948, 243, 1178, 546, 1736, 1030, 1978, 2008]
SINE_TOKENS = [430, 1268, 381, 1611, 1095, 1495, 56, 472]


def make_config(*, name: str, seed: int, lm: dict, depformer: dict, mimi_dim: int, n_filters: int,
                codec_transformer: dict, quantizer: dict, story: dict | None) -> dict:
    """The content of config.json: every number that an implementation needs."""
    return {
        "schema": SCHEMA,
        "synthetic": {"preset": name, "seed": seed, "story": story},
        "files": {
            "lm": "model.safetensors",
            "mimi": "tokenizer-e351c8d8-checkpoint125.safetensors",
            "tokenizer": "tokenizer_spm_32k_3.model",
            "voices": "voices",
        },
        "lm": {
            **lm,
            "rope_max_period": 10000.0,
            "norm_eps": 1e-8,
            "audio_streams": 16,
            "delays": [0] + [0, 1, 1, 1, 1, 1, 1, 1] * 2,
        },
        "depformer": {**depformer, "steps": 16, "norm_eps": 1e-8},
        "mimi": {
            "sample_rate": 24000,
            "frame_rate": 12.5,
            "frame_size": 1920,
            "channels": 1,
            "seanet": {
                "dimension": mimi_dim,
                "n_filters": n_filters,
                "ratios": [8, 6, 5, 4],
                "kernel_size": 7,
                "residual_kernel_size": 3,
                "last_kernel_size": 3,
                "n_residual_layers": 1,
                "dilation_base": 2,
                "compress": 2,
            },
            "resample": {"stride": 2, "kernel_size": 4},
            "transformer": {
                "dim": mimi_dim,
                **codec_transformer,
                "rope_max_period": 10000.0,
                "norm_eps": 1e-5,
            },
            "quantizer": {
                **quantizer,
                "n_q_semantic": 1,
                "n_q_used": 8,
                "usage_epsilon": 1e-5,
            },
        },
        "text": {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": 3, "silent_ids": [0, 3]},
        "prompt": {
            "system_tag": "<system>",
            "text_while_prompting": 3,
            "silence_tokens": SILENCE_TOKENS,
            "sine_tokens": SINE_TOKENS,
            "silence_frames": 6,
        },
        "sampling": {"audio_temperature": 0.8, "audio_top_k": 250,
                     "text_temperature": 0.7, "text_top_k": 25},
    }


# A preset is the arguments of make_config. `story` is what only a synthetic checkpoint has: how its
# tokenizer normalises, the names and lengths (in frames) of its voices, and the prompt of the
# golden conversation.
PRESETS = {
    "tiny": dict(
        name="tiny", seed=20260115,
        lm=dict(dim=96, num_heads=3, num_layers=3, ffn_dim=264, context=40, card=2048, text_card=600),
        depformer=dict(dim=64, num_heads=4, num_layers=2, ffn_dim=176),
        mimi_dim=64, n_filters=8,
        codec_transformer=dict(num_heads=4, num_layers=2, ffn_dim=256, context=20),
        quantizer=dict(dimension=16, n_q=12, bins=2048),
        story=dict(tokenizer_rule="nmt_nfkc", voices={"NATF0": 13, "NATM0": 9},
                   prompt="You are a calm tutor named Mara. Answer briefly."),
    ),
    # The published size. For --inventory and as a record of the real numbers, never built here.
    "real": dict(
        name="real", seed=0,
        lm=dict(dim=4096, num_heads=32, num_layers=32, ffn_dim=11264, context=3000, card=2048,
                text_card=32000),
        depformer=dict(dim=1024, num_heads=16, num_layers=6, ffn_dim=2816),
        mimi_dim=512, n_filters=64,
        codec_transformer=dict(num_heads=8, num_layers=8, ffn_dim=2048, context=250),
        quantizer=dict(dimension=256, n_q=32, bins=2048),
        story=None,
    ),
}


def preset_config(preset: str, seed: int | None = None) -> dict:
    """The configuration of a named preset, or of one kept in a JSON file."""
    spec = dict(PRESETS[preset] if preset in PRESETS else json.loads(Path(preset).read_text()))
    if seed is not None:
        spec["seed"] = seed
    return make_config(**spec)


# ------------------------------------------------------------------------------------------------
# Building the reference modules from a configuration
# ------------------------------------------------------------------------------------------------


def gated_width(ffn_dim: int, dim: int) -> int:
    """The `dim_feedforward` for which the package's gated block gets `ffn_dim` hidden units."""
    width = (3 * ffn_dim + 1) // 2
    assert 2 * width // 3 == ffn_dim and width != 4 * dim, (ffn_dim, dim)
    return width


def build_lm(cfg: dict, device: str = "cpu") -> LMModel:
    lm, dep = cfg["lm"], cfg["depformer"]
    model = LMModel(
        delays=lm["delays"], n_q=lm["audio_streams"], dep_q=dep["steps"], card=lm["card"],
        text_card=lm["text_card"], existing_text_padding_id=cfg["text"]["pad_id"],
        dim=lm["dim"], num_heads=lm["num_heads"], num_layers=lm["num_layers"],
        hidden_scale=gated_width(lm["ffn_dim"], lm["dim"]) / lm["dim"],
        context=lm["context"], max_period=lm["rope_max_period"], causal=True, layer_scale=None,
        gating="silu", norm="rms_norm_f32", positional_embedding="rope",
        depformer_dim=dep["dim"], depformer_num_heads=dep["num_heads"],
        depformer_num_layers=dep["num_layers"],
        depformer_dim_feedforward=gated_width(dep["ffn_dim"], dep["dim"]),
        depformer_multi_linear=True, depformer_weights_per_step=True, depformer_pos_emb="none",
        depformer_max_period=10000.0, depformer_gating="silu", depformer_layer_scale=None,
        device=device, dtype=torch.float32,
    )
    return model.eval()


def build_mimi(cfg: dict, device: str = "cpu") -> MimiModel:
    m = cfg["mimi"]
    seanet = dict(channels=m["channels"], causal=True, activation="ELU", norm="none",
                  pad_mode="constant", true_skip=True, disable_norm_outer_blocks=0, **m["seanet"])
    t = m["transformer"]
    transformer = dict(
        d_model=t["dim"], num_heads=t["num_heads"], num_layers=t["num_layers"],
        dim_feedforward=t["ffn_dim"], context=t["context"], max_period=t["rope_max_period"],
        causal=True, layer_scale=0.01, conv_layout=True, gating="none", norm="layer_norm",
        positional_embedding="rope", input_dimension=m["seanet"]["dimension"],
        output_dimensions=[m["seanet"]["dimension"]],
    )
    q = m["quantizer"]
    encoder, decoder = SEANetEncoder(**seanet), SEANetDecoder(**seanet)
    quantizer = SplitResidualVectorQuantizer(
        dimension=q["dimension"], n_q=q["n_q"], bins=q["bins"], n_q_semantic=q["n_q_semantic"],
        input_dimension=m["seanet"]["dimension"], output_dimension=m["seanet"]["dimension"])
    model = MimiModel(
        encoder, decoder, quantizer, channels=m["channels"], sample_rate=m["sample_rate"],
        frame_rate=m["frame_rate"], encoder_frame_rate=m["sample_rate"] / encoder.hop_length,
        causal=True, resample_method="conv",
        encoder_transformer=ProjectedTransformer(device=device, **transformer),
        decoder_transformer=ProjectedTransformer(device=device, **transformer))
    model.to(device).eval()
    model.set_num_codebooks(q["n_q_used"])
    return model


def packed_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Module names of the package -> names of the published files.

    The files keep one `in_proj_weight` and one `out_proj.weight` for each attention; where a layer
    has one weight per step (the depformer) the steps are stacked along the first dimension.
    """
    out: dict[str, torch.Tensor] = {}
    stacks: dict[str, list[torch.Tensor]] = {}
    for name, value in state.items():
        for part, target in ((".in_projs.", ".in_proj_weight"), (".out_projs.", ".out_proj.weight")):
            if part in name:
                stacks.setdefault(name.split(part)[0] + target, []).append(value)
                break
        else:
            out[name] = value
    out.update({name: torch.cat(parts, dim=0) for name, parts in stacks.items()})
    return out


def inventory(preset: str = "real") -> dict:
    """Names, shapes and storage types of both weight files, without allocating them."""
    cfg = preset_config(preset)
    with torch.device("meta"):
        lm, mimi = build_lm(cfg, "meta"), build_mimi(cfg, "meta")
    tables = {}
    for key, model, dtype in (("lm", lm, "BF16"), ("mimi", mimi, "F32")):
        tensors = packed_names(model.state_dict())
        tables[cfg["files"][key]] = {n: [dtype, list(t.shape)] for n, t in sorted(tensors.items())}
    return {"preset": preset, "config": cfg, "files": tables}


# ------------------------------------------------------------------------------------------------
# Random weights
# ------------------------------------------------------------------------------------------------


def rng(seed: int, *names) -> np.random.Generator:
    """An independent stream of random numbers for each name."""
    digest = hashlib.sha256(":".join([str(seed), *map(str, names)]).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def normal(seed: int, name: str, shape, std: float = 1.0, mean: float = 0.0) -> torch.Tensor:
    values = rng(seed, name).standard_normal(tuple(shape))
    return torch.from_numpy((values * std + mean).astype(np.float32))


def round_scale(value: float) -> float:
    """Scales measured on data are rounded, so that another machine writes the same weights."""
    return 2.0 ** (round(4 * math.log2(value)) / 4)


def attention_in(seed: int, name: str, dim: int, qk_gain: float) -> torch.Tensor:
    """Rows of q, k and v. A gain above one on q and k keeps the attention far from uniform."""
    weight = normal(seed, name, (3 * dim, dim), dim ** -0.5)
    weight[: 2 * dim] *= qk_gain
    return weight


def synth_lm(cfg: dict, seed: int) -> dict[str, torch.Tensor]:
    """Random weights of model.safetensors, under the names and in the packing of the real file.

    Every part is given a size that matters: a mistake in any stream, norm, rotation or window
    shows in the logits. Logits have a standard deviation of about 6, so that the winner of a
    greedy choice is clear. The residual streams are kept small, so that the epsilon of the norms
    can be told. In the text head the two silent ids win often, as they do in practice, and the
    byte pieces (which follow the four special ids) seldom.
    """
    lm, dep = cfg["lm"], cfg["depformer"]
    dim, ddim, steps, card, text = lm["dim"], dep["dim"], dep["steps"], lm["card"], lm["text_card"]
    small = 0.25
    w: dict[str, torch.Tensor] = {}

    def put(name, shape, std, mean=0.0):
        w[name] = normal(seed, name, shape, std, mean)

    for k in range(lm["audio_streams"]):
        put(f"emb.{k}.weight", (card + 1, dim), 0.35 * small)
    put("text_emb.weight", (text + 1, dim), 0.6 * small)
    for i in range(lm["num_layers"]):
        p = f"transformer.layers.{i}."
        put(p + "norm1.alpha", (1, 1, dim), 0.15, 1.0)
        put(p + "norm2.alpha", (1, 1, dim), 0.15, 1.0)
        w[p + "self_attn.in_proj_weight"] = attention_in(seed, p + "in", dim, 1.4)
        put(p + "self_attn.out_proj.weight", (dim, dim), 1.3 * small * dim ** -0.5)
        put(p + "gating.linear_in.weight", (2 * lm["ffn_dim"], dim), 1.2 * dim ** -0.5)
        put(p + "gating.linear_out.weight", (dim, lm["ffn_dim"]), 1.5 * small * lm["ffn_dim"] ** -0.5)
    put("out_norm.alpha", (1, 1, dim), 0.15, 1.0)
    put("text_linear.weight", (text, dim), 6.0 * dim ** -0.5)
    w["text_linear.weight"][3] *= 3.0
    w["text_linear.weight"][0] *= 2.0
    w["text_linear.weight"][4:260] *= 0.75

    for k in range(steps):
        put(f"depformer_in.{k}.weight", (ddim, dim), small * dim ** -0.5)
    put("depformer_text_emb.weight", (text + 1, ddim), small)
    for k in range(steps - 1):
        put(f"depformer_emb.{k}.weight", (card + 1, ddim), small)
    for i in range(dep["num_layers"]):
        p = f"depformer.layers.{i}."
        put(p + "norm1.alpha", (1, 1, ddim), 0.15, 1.0)
        put(p + "norm2.alpha", (1, 1, ddim), 0.15, 1.0)
        w[p + "self_attn.in_proj_weight"] = torch.cat(
            [attention_in(seed, f"{p}in.{k}", ddim, 1.4) for k in range(steps)])
        put(p + "self_attn.out_proj.weight", (steps * ddim, ddim), 1.3 * small * ddim ** -0.5)
        for k in range(steps):
            q = f"{p}gating.{k}."
            put(q + "linear_in.weight", (2 * dep["ffn_dim"], ddim), 1.2 * ddim ** -0.5)
            put(q + "linear_out.weight", (ddim, dep["ffn_dim"]), 1.5 * small * dep["ffn_dim"] ** -0.5)
    for k in range(steps):
        put(f"linears.{k}.weight", (card, ddim), 2.8 / small * ddim ** -0.5)
    return w


def scale_conv_(layer, x: torch.Tensor, target: float) -> torch.Tensor:
    """Scale a convolution so that its output has the standard deviation `target`; its output."""
    params = list(layer.parameters())
    factor = round_scale(target / float(layer(x).std()))
    for p in params:
        p.mul_(factor)
    return layer(x)


def scale_seanet_(model, x: torch.Tensor) -> torch.Tensor:
    """Walk through a SEANet stack and keep the activations near one."""
    for layer in model:
        if isinstance(layer, SEANetResnetBlock):
            y = x
            for part in layer.block:
                y = scale_conv_(part, y, 1.0) if isinstance(part, StreamingConv1d) else part(y)
            x = layer(x)
        elif isinstance(layer, (StreamingConv1d, StreamingConvTranspose1d)):
            x = scale_conv_(layer, x, 1.0)
        else:
            x = layer(x)
    return x


def set_codebook_(codebook, seed: int, name: str, center: torch.Tensor, std: float) -> None:
    """Fill one codebook. The files hold sums and usage counts; the entries are their quotient.

    A few entries get a usage of zero and a sum of `entry * usage_epsilon`, so that a reader that
    forgets the lower bound on the usage does not go unnoticed.
    """
    bins, dim = codebook.embedding_sum.shape
    entries = center + round_scale(std) * normal(seed, name, (bins, dim))
    usage = torch.from_numpy(np.exp(rng(seed, name, "usage").standard_normal(bins) + 2.0))
    usage = (usage * 64).round().div(64).clamp(min=0.25).float()
    usage[rng(seed, name, "unused").choice(bins, size=bins // 50, replace=False)] = 0.0
    codebook.cluster_usage.copy_(usage)
    codebook.embedding_sum.copy_(entries * usage.clamp(min=codebook.epsilon)[:, None])
    codebook._initialized.fill_(1)
    codebook.register_buffer("_embedding", None, persistent=False)


@torch.no_grad()
def synth_mimi(cfg: dict, seed: int) -> dict[str, torch.Tensor]:
    """Random weights of the codec, scaled on synthetic speech so that nothing is degenerate."""
    mimi = build_mimi(cfg)
    dim = cfg["mimi"]["transformer"]["dim"]
    for name, p in mimi.named_parameters():
        if name.endswith("layer_scale_1.scale") or name.endswith("layer_scale_2.scale"):
            value = torch.from_numpy(rng(seed, name).uniform(0.3, 0.7, p.shape).astype(np.float32))
        elif ".in_projs." in name:
            value = attention_in(seed, name, dim, 1.4)
        elif ".norm" in name and name.endswith("weight"):
            value = normal(seed, name, p.shape, 0.1, 1.0)
        elif name.endswith("bias"):
            value = normal(seed, name, p.shape, 0.1)
        else:
            fan_in = p[0].numel()
            value = normal(seed, name, p.shape, 1.3 * fan_in ** -0.5)
        p.copy_(value)

    frames = 48
    pcm = torch.from_numpy(np.stack([synth_speech(seed, f"calibration-{i}", frames, 1920)
                                     for i in range(2)])).view(2, 1, -1)
    x = scale_seanet_(mimi.encoder.model, pcm)
    (x,) = mimi.encoder_transformer(x)
    z = scale_conv_(mimi.downsample.conv, x, 1.0)

    codes = []
    for rvq, label in ((mimi.quantizer.rvq_first, "first"), (mimi.quantizer.rvq_rest, "rest")):
        rvq.input_proj.weight.mul_(round_scale(16.0 / float(rvq.input_proj(z).std())))
        residual = rvq.input_proj(z).transpose(1, 2).reshape(-1, rvq.dimension)
        center = (residual.mean(dim=0) * 8).round() / 8
        for i, layer in enumerate(rvq.vq.layers):
            spread = float((residual - residual.mean(dim=0)).std())
            set_codebook_(layer._codebook, seed, f"{label}.{i}",
                          center if i == 0 else torch.zeros_like(center), spread)
            index = layer._codebook.encode(residual)
            residual = residual - layer._codebook.decode(index)
            if len(codes) < cfg["mimi"]["quantizer"]["n_q_used"]:
                codes.append(index.view(2, -1))
    codes = torch.stack(codes, dim=1)

    for rvq, part in ((mimi.quantizer.rvq_first, codes[:, :1]), (mimi.quantizer.rvq_rest, codes[:, 1:])):
        rvq.output_proj.weight.mul_(round_scale(0.7 / float(rvq.decode(part).std())))
    x = scale_conv_(mimi.upsample.convtr, mimi.quantizer.decode(codes), 1.0)
    (x,) = mimi.decoder_transformer(x)
    pcm = scale_seanet_(mimi.decoder.model, x)
    last = mimi.decoder.model[-1]
    for p in last.parameters():
        p.mul_(round_scale(0.11 / float(pcm.std())))
    pcm = mimi.decoder(x)
    last.conv.conv.bias.sub_(round(float(pcm.mean()) * 4096) / 4096)
    return {n: t.detach().clone() for n, t in packed_names(mimi.state_dict()).items()}


def synth_speech(seed: int, name, frames: int, frame_size: int) -> np.ndarray:
    """Something like a voice: a gliding pitch, moving formants, breaths and pauses.

    Every sample is a multiple of 1/32768, so that 16-bit audio carries it exactly.
    """
    r = rng(seed, "speech", name)
    n = frames * frame_size
    t = np.arange(n) / 24000.0

    def track(points: int, low: float, high: float) -> np.ndarray:
        return np.interp(np.linspace(0, points - 1, n), np.arange(points), r.uniform(low, high, points))

    points = max(4, int(frames * 0.8))
    pitch = track(points, 95.0, 240.0)
    phase = 2 * np.pi * np.cumsum(pitch) / 24000.0
    formants = [track(points, lo, hi) for lo, hi in ((300, 800), (900, 2100), (2300, 3300))]
    voiced = np.zeros(n)
    for h in range(1, 24):
        level = sum(1.0 / (1.0 + ((h * pitch - f) / 150.0) ** 2) for f in formants)
        voiced += level / h ** 0.4 * np.sin(h * phase + r.uniform(0, 2 * np.pi))
    breath = r.standard_normal(n) * track(points, 0.0, 1.0) ** 2
    envelope = np.clip(track(points * 2, -0.25, 1.0), 0.0, 1.0)
    wave = envelope * (voiced + 0.5 * breath) + 0.01 * r.standard_normal(n)
    wave *= 0.12 / np.sqrt(np.mean(wave ** 2) + 1e-12)
    wave += 0.002 * np.sin(2 * np.pi * 50.0 * t)
    return (np.round(np.clip(wave, -0.98, 0.98) * 32768) / 32768).astype(np.float32)


# ------------------------------------------------------------------------------------------------
# Writing a checkpoint
# ------------------------------------------------------------------------------------------------


def train_tokenizer(cfg: dict, rule: str, target: Path) -> None:
    """A unigram SentencePiece model with single digits and byte fallback, like the real one."""
    text = cfg["text"]
    lines = (HERE / "corpus.txt").read_text(encoding="utf-8").splitlines()
    blob = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=blob, model_type="unigram",
        vocab_size=cfg["lm"]["text_card"], split_digits=True, byte_fallback=True,
        character_coverage=1.0, normalization_rule_name=rule, num_threads=1,
        unk_id=text["unk_id"], bos_id=text["bos_id"], eos_id=text["eos_id"], pad_id=text["pad_id"],
        minloglevel=2)
    target.write_bytes(blob.getvalue())


def save_voice(path: Path, embeddings: torch.Tensor, cache: torch.Tensor, cache_on_gpu: bool) -> None:
    """Write a voice bundle as `torch.save` does.

    The published bundles were saved with the cache still on the GPU, which shows only in the
    location tag of its storage ("cuda:0"). One of the bundles made here imitates that.
    """
    from torch import serialization
    real_tag, address = serialization.location_tag, cache.untyped_storage().data_ptr()

    def tag(storage):
        return "cuda:0" if cache_on_gpu and storage.data_ptr() == address else real_tag(storage)

    with mock.patch.object(serialization, "location_tag", tag):
        torch.save({"embeddings": embeddings, "cache": cache}, str(path))


def write_voices_tgz(folder: Path, target: Path) -> None:
    with open(target, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as zipped, \
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in [folder, *sorted(folder.iterdir())]:
            info = tar.gettarinfo(str(path), arcname=str(path.relative_to(folder.parent)))
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            info.mode = 0o755 if path.is_dir() else 0o644
            if path.is_dir():
                tar.addfile(info)
            else:
                with open(path, "rb") as f:
                    tar.addfile(info, f)


def write_checkpoint(preset: str, seed: int | None, folder: Path, lm_dtype: torch.dtype) -> None:
    cfg = preset_config(preset, seed)
    seed, story = cfg["synthetic"]["seed"], cfg["synthetic"]["story"]
    assert story is not None, f"preset {preset} is only a record of sizes"
    folder.mkdir(parents=True, exist_ok=True)
    files = cfg["files"]
    (folder / "config.json").write_text(json.dumps(cfg, indent=2) + "\n")
    train_tokenizer(cfg, story["tokenizer_rule"], folder / files["tokenizer"])
    lm = {n: t.to(lm_dtype).contiguous() for n, t in synth_lm(cfg, seed).items()}
    save_file(lm, str(folder / files["lm"]))
    mimi = {n: t.float().contiguous() for n, t in synth_mimi(cfg, seed).items()}
    save_file(mimi, str(folder / files["mimi"]))

    voices = folder / files["voices"]
    voices.mkdir(exist_ok=True)
    # The published bundles were computed by the model in bfloat16.
    ref = Reference(folder, dtype=torch.bfloat16)
    for i, (name, frames) in enumerate(story["voices"].items()):
        pcm = synth_speech(seed, f"voice-{name}", frames, cfg["mimi"]["frame_size"])
        made = run_voice(ref, torch.from_numpy(pcm).view(frames, -1))
        save_voice(voices / f"{name}.pt", made["embeddings"], made["cache"], cache_on_gpu=i == 0)
    write_voices_tgz(voices, folder / (files["voices"] + ".tgz"))


# ------------------------------------------------------------------------------------------------
# The reference itself
# ------------------------------------------------------------------------------------------------


class Reference:
    """The modules of the package with the weights of a checkpoint folder."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32,
                 codec_dtype: torch.dtype = torch.float32):
        self.folder = Path(folder)
        self.cfg = json.loads((self.folder / "config.json").read_text())
        files = self.cfg["files"]
        self.tokenizer = sentencepiece.SentencePieceProcessor(str(self.folder / files["tokenizer"]))
        assert self.tokenizer.vocab_size() == self.cfg["lm"]["text_card"]
        self.lm = build_lm(self.cfg)
        self.lm.load_state_dict(load_file(str(self.folder / files["lm"])), strict=True)
        self.lm.to(dtype)
        self.mimi = build_mimi(self.cfg)
        self.mimi.load_state_dict(load_file(str(self.folder / files["mimi"])), strict=True)
        self.mimi.to(codec_dtype)
        if dtype == torch.float64:
            for module in self.lm.modules():
                if isinstance(module, RMSNorm):
                    module.dtype = torch.float64
        self.dtype, self.codec_dtype = dtype, codec_dtype

    def voice(self, name: str) -> dict[str, torch.Tensor]:
        path = self.folder / self.cfg["files"]["voices"] / f"{name}.pt"
        return torch.load(str(path), map_location="cpu", weights_only=True)

    def voice_names(self) -> list[str]:
        return sorted(p.stem for p in (self.folder / self.cfg["files"]["voices"]).glob("*.pt"))


@contextlib.contextmanager
def window(kind: str):
    """Which keys an attention with a full ring may see.

    full   the package's rule: `context` keys, the newest one included.
    short  what the PersonaPlex sources do: once the ring is full its oldest entry is labelled
           with a future position and so is hidden, which leaves `context - 1` keys. The depformer
           has a ring of `steps` entries, so there the last step does not see the first one.
    """
    if kind == "full":
        yield
        return
    assert kind == "short"
    plain = RingKVCache.complete

    def complete(self, k, v, exec_mask):
        result = plain(self, k, v, exec_mask)
        end = self.end_offset.view(-1, 1)
        slots = torch.arange(self.capacity).view(1, -1)
        hidden = (end >= self.capacity) & (slots == end % self.capacity)
        return result._replace(positions=torch.where(hidden, -1, result.positions))

    with mock.patch.object(RingKVCache, "complete", complete):
        yield


class Temporal:
    """The temporal transformer with its own stream for each lane of a batch."""

    def __init__(self, ref: Reference, batch: int):
        self.lm, self.dtype = ref.lm, ref.dtype
        self.stream = self.lm.transformer.streaming(batch)
        self.layers: list[torch.Tensor] = []
        self.hooks = [layer.register_forward_hook(lambda _m, _i, out: self.layers.append(out[:, 0]))
                      for layer in self.lm.transformer.layers]

    def close(self):
        for hook in self.hooks:
            hook.remove()
        self.stream.close()

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """[B, 17] -> [B, dim]: the audio streams in order, then the text. -1 adds nothing."""
        total = None
        for k in range(self.lm.n_q):
            e = self.lm.emb[k](tokens[:, k + 1])
            total = e if total is None else total + e
        return total + self.lm.text_emb(tokens[:, 0])

    def step(self, embedding: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
        """[B, dim] -> normed output [B, dim], text logits [B, text_card], output of each layer."""
        self.layers.clear()
        hidden = self.lm.out_norm(self.lm.transformer(embedding[:, None].to(self.dtype)))
        return hidden[:, 0], self.lm.text_linear(hidden)[:, 0], list(self.layers)


def run_depformer(ref: Reference, hidden: torch.Tensor, text: torch.Tensor,
                  forced: torch.Tensor | None = None, steps: int | None = None) -> dict:
    """Greedy depformer over a batch of frames.

    hidden [N, dim], text [N], forced [N, 16] with -1 where nothing is given. A given token
    replaces the sampled one as the input of the next step; `sampled` keeps what was sampled.
    """
    lm = ref.lm
    steps = lm.dep_q if steps is None else steps
    n = hidden.shape[0]
    trace: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(lambda _m, _i, out: trace.append(out[:, 0]))
             for layer in lm.depformer.layers]
    logits, sampled, layers = [], [], []
    previous = text
    with lm.depformer.streaming(n):
        for k in range(steps):
            trace.clear()
            out = lm.forward_depformer(k, previous[:, None, None], hidden[:, None].to(ref.dtype))
            logits.append(out[:, 0, 0])
            layers.append(torch.stack(trace, dim=1))
            choice = out[:, 0, 0].float().argmax(dim=-1)
            sampled.append(choice)
            previous = choice if forced is None else torch.where(forced[:, k] >= 0, forced[:, k], choice)
    for hook in hooks:
        hook.remove()
    return {"logits": torch.stack(logits, 1), "sampled": torch.stack(sampled, 1),
            "layers": torch.stack(layers, 1)}


class Codec:
    """Mimi with its own stream for each lane, and a look at every stage."""

    def __init__(self, ref: Reference, batch: int):
        self.mimi, self.dtype = ref.mimi, ref.codec_dtype
        self.stream = self.mimi.streaming(batch)

    def close(self):
        self.stream.close()

    @staticmethod
    def through(layers, x: torch.Tensor) -> list[torch.Tensor]:
        out = []
        for layer in layers:
            x = layer(x)
            out.append(x)
        return out

    def encode(self, pcm: torch.Tensor) -> dict:
        """[B, frame] -> every stage of the encoder, and the codes [B, 8]."""
        stages = self.through(self.mimi.encoder.model, pcm[:, None].to(self.dtype))
        (transformed,) = self.mimi.encoder_transformer(stages[-1])
        latent = self.mimi.downsample(transformed)
        codes, margin = self.quantise(latent)
        q = self.mimi.quantizer
        return {"stages": stages, "seanet": stages[-1], "transformer": transformed,
                "latent": latent, "codes": codes, "margin": margin,
                "proj_first": q.rvq_first.input_proj(latent)[..., 0],
                "proj_rest": q.rvq_rest.input_proj(latent)[..., 0]}

    def quantise(self, latent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes as the package finds them, and how much nearer the winner is than the second."""
        q = self.mimi.quantizer
        codes = q.encode(latent)[:, :, 0]
        margins, exact = [], []
        for rvq in (q.rvq_first, q.rvq_rest):
            residual = rvq.input_proj(latent)[:, :, 0].double()
            for layer in rvq.vq.layers[: rvq.n_q]:
                table = layer._codebook.embedding.double()
                near = (residual[:, None] - table[None]).norm(dim=-1).topk(2, largest=False)
                margins.append((near.values[:, 1] - near.values[:, 0]).float())
                exact.append(near.indices[:, 0])
                residual = residual - table[exact[-1]]
        assert torch.equal(codes, torch.stack(exact, 1)), "the package's distance search hit a near tie"
        return codes, torch.stack(margins, 1)

    def decode(self, codes: torch.Tensor) -> dict:
        """[B, 8] -> every stage of the decoder, and the samples [B, frame]."""
        latent = self.mimi.quantizer.decode(codes[:, :, None])
        upsampled = self.mimi.upsample(latent)
        (transformed,) = self.mimi.decoder_transformer(upsampled)
        stages = self.through(self.mimi.decoder.model, transformed)
        return {"latent": latent, "upsample": upsampled, "transformer": transformed,
                "stages": stages, "pcm": stages[-1][:, 0]}


class Slot:
    """One conversation: the staging of the 17 token streams around the two transformers.

    `at(k, p)` is the token of stream k at position p. Position p is fed to the temporal
    transformer by the call of tick p + 1, whose output predicts position p + 1. Tokens given at
    tick t land at position t + delay. A position up to the delay of its stream holds the initial
    token. Tick 0 only stages. What was given is never overwritten by a prediction.
    """

    def __init__(self, ref: Reference, codec_streams: int = 8):
        lm = ref.cfg["lm"]
        self.ref, self.cfg = ref, ref.cfg
        self.delays = lm["delays"]
        self.max_delay = max(self.delays)
        self.streams = len(self.delays)
        self.agent = range(1, 1 + codec_streams)
        self.user = range(1 + codec_streams, 1 + 2 * codec_streams)
        self.initial = [lm["text_card"]] + [lm["card"]] * (self.streams - 1)
        self.tokens: list[dict[int, int]] = [{} for _ in range(self.streams)]
        self.given: list[set[int]] = [set() for _ in range(self.streams)]
        self.tick_number = 0
        self.temporal = Temporal(ref, 1)

    def close(self):
        self.temporal.close()

    def _give(self, k: int, position: int, token: int):
        self.tokens[k][position] = int(token)
        self.given[k].add(position)

    def tick(self, text: int | None = None, agent=None, user=None) -> dict | None:
        """One frame. Returns None for tick 0, else what was fed, predicted and let out."""
        t = self.tick_number
        for streams, frame in ((self.agent, agent), (self.user, user)):
            if frame is not None:
                for k, token in zip(streams, frame):
                    self._give(k, t + self.delays[k], token)
        if text is not None:
            self._give(0, t + self.delays[0], text)
        for k in range(self.streams):
            if t <= self.delays[k]:
                self._give(k, t, self.initial[k])
        self.tick_number += 1
        if t == 0:
            for k in range(self.streams):
                self.tokens[k][0] = self.initial[k]
            return None

        fed = torch.tensor([[self.tokens[k][t - 1] for k in range(self.streams)]])
        embedding = self.temporal.embed(fed)
        hidden, text_logits, _ = self.temporal.step(embedding)
        text_choice = int(text_logits[0].float().argmax())
        if t not in self.given[0]:
            self.tokens[0][t] = text_choice
        forced = torch.tensor([[self.tokens[k][t] if t in self.given[k] else -1
                                for k in range(1, self.streams)]])
        dep = run_depformer(self.ref, hidden, torch.tensor([self.tokens[0][t]]), forced)
        for k in range(1, self.streams):
            if t not in self.given[k]:
                self.tokens[k][t] = int(dep["sampled"][0, k - 1])
        out = None
        if t > self.max_delay:
            out = [self.tokens[k][t - self.max_delay + self.delays[k]] for k in range(self.streams)]
        return {"tick": t, "fed": fed[0], "embedding": embedding, "hidden": hidden[0],
                "text_logits": text_logits[0], "text_choice": text_choice,
                "audio_logits": dep["logits"][0], "audio_choice": dep["sampled"][0],
                "forced": forced[0],
                "target": torch.tensor([self.tokens[k][t] for k in range(self.streams)]),
                "out": out}

    # -- voice bundles ---------------------------------------------------------------------------

    @property
    def ring(self) -> int:
        return self.max_delay + 3

    def cache(self) -> torch.Tensor:
        """The last positions of every stream as the bundles keep them: position p at p mod 4."""
        out = torch.full((1, self.streams, self.ring), -2, dtype=torch.int64)
        for k in range(self.streams):
            for p in sorted(self.tokens[k]):
                out[0, k, p % self.ring] = self.tokens[k][p]
        return out

    def play_voice(self, bundle: dict[str, torch.Tensor]) -> list[dict]:
        """Replay a bundle: its embeddings go straight into the temporal transformer."""
        assert self.tick_number == 0
        records = []
        for e in bundle["embeddings"]:
            self.tick_number = max(self.tick_number, 1)
            hidden, text_logits, _ = self.temporal.step(e[:, 0])
            records.append({"tick": self.tick_number, "hidden": hidden[0], "text_logits": text_logits[0]})
            self.tick_number += 1
        n = self.tick_number
        for k in range(self.streams):
            for p in range(max(0, n - self.ring + 1), n + 1):
                self.tokens[k][p] = int(bundle["cache"][0, k, p % self.ring])
            for p in range(n, n + self.delays[k]):
                self.given[k].add(p)
        return records


# ------------------------------------------------------------------------------------------------
# One run per topic. Each returns a dict of tensors.
# ------------------------------------------------------------------------------------------------


def top2_margin(logits: torch.Tensor) -> torch.Tensor:
    top = logits.float().topk(2, dim=-1).values
    return top[..., 0] - top[..., 1]


@torch.no_grad()
def run_mimi(ref: Reference, pcm: torch.Tensor, layer_frames: int = 2) -> dict:
    """pcm [F, B, frame]: encode and decode the same frames, streaming."""
    frames, batch, _ = pcm.shape
    codec = Codec(ref, batch)
    out: dict[str, list] = {}

    def add(key, value):
        out.setdefault(key, []).append(value)

    for f in range(frames):
        enc = codec.encode(pcm[f])
        dec = codec.decode(enc["codes"])
        for key in ("seanet", "transformer", "latent", "proj_first", "proj_rest", "codes", "margin"):
            add(f"enc.{key}", enc[key])
        for key in ("latent", "upsample", "transformer", "pcm"):
            add(f"dec.{key}", dec[key])
        if f < layer_frames:
            for side, stages in (("enc", enc["stages"]), ("dec", dec["stages"])):
                for i, stage in enumerate(stages):
                    add(f"{side}.layer.{i:02d}", stage)
    codec.close()
    result = {key: torch.stack(value) for key, value in out.items()}
    return {key: value[..., 0] if key in ("enc.latent", "dec.latent") else value
            for key, value in result.items()}


@torch.no_grad()
def run_mimi_masked(ref: Reference, pcm: torch.Tensor, run: torch.Tensor, reset: torch.Tensor) -> dict:
    """Lanes that start over or stand still on their own. Idle lanes give zeros."""
    frames, batch, _ = pcm.shape
    codec = Codec(ref, batch)
    codes, latents, samples, margins = [], [], [], []
    for f in range(frames):
        if reset[f].any():
            codec.mimi.reset_streaming(reset[f])
        codec.mimi.set_exec_mask(run[f])
        enc = codec.encode(pcm[f])
        dec = codec.decode(enc["codes"])
        on = run[f][:, None]
        codes.append(torch.where(on, enc["codes"], 0))
        latents.append(torch.where(on, enc["latent"][..., 0], 0.0))
        samples.append(torch.where(on, dec["pcm"], 0.0))
        margins.append(torch.where(on, enc["margin"], float("inf")))
    codec.close()
    return {"enc.codes": torch.stack(codes), "enc.latent": torch.stack(latents),
            "dec.pcm": torch.stack(samples), "enc.margin": torch.stack(margins)}


@torch.no_grad()
def run_temporal(ref: Reference, tokens: torch.Tensor) -> dict:
    """tokens [T, B, 17]."""
    temporal = Temporal(ref, tokens.shape[1])
    embedded, layers, hidden, logits = [], [], [], []
    for row in tokens:
        e = temporal.embed(row)
        h, text, taps = temporal.step(e)
        embedded.append(e)
        hidden.append(h)
        logits.append(text)
        layers.append(torch.stack(taps))
    temporal.close()
    return {"embedding": torch.stack(embedded), "layers": torch.stack(layers, 1),
            "hidden": torch.stack(hidden), "text_logits": torch.stack(logits)}


@torch.no_grad()
def run_temporal_masked(ref: Reference, tokens: torch.Tensor, run: torch.Tensor,
                        reset: torch.Tensor) -> dict:
    """Lanes that start over or stand still on their own. Idle lanes give zeros."""
    temporal = Temporal(ref, tokens.shape[1])
    hidden, logits = [], []
    for row, on, fresh in zip(tokens, run, reset):
        if fresh.any():
            ref.lm.transformer.reset_streaming(fresh)
        ref.lm.transformer.set_exec_mask(on)
        h, text, _ = temporal.step(temporal.embed(row))
        hidden.append(torch.where(on[:, None], h, 0.0))
        logits.append(torch.where(on[:, None], text, 0.0))
    temporal.close()
    return {"hidden": torch.stack(hidden), "text_logits": torch.stack(logits)}


@torch.no_grad()
def run_voice(ref: Reference, pcm: torch.Tensor) -> dict:
    """pcm [N, frame] of a speaker -> the content of a voice bundle."""
    prompt = ref.cfg["prompt"]
    codec, slot = Codec(ref, 1), Slot(ref)
    codes, embeddings = [], []
    for frame in pcm:
        codes.append(codec.encode(frame[None])["codes"][0])
        record = slot.tick(text=prompt["text_while_prompting"], agent=codes[-1].tolist(),
                           user=prompt["sine_tokens"])
        if record is not None:
            embeddings.append(record["embedding"][:, None])
    cache = slot.cache()
    codec.close()
    slot.close()
    return {"codes": torch.stack(codes), "embeddings": torch.stack(embeddings), "cache": cache}


PHASES = ["voice", "silence_after_voice", "text", "silence_after_text", "live"]


@torch.no_grad()
def run_loop(ref: Reference, pcm: torch.Tensor, voice: dict | None, text_ids: list[int],
             stop_below: float = 0.0) -> dict | None:
    """A whole conversation of one slot, greedy. pcm [F, frame] is what the user says.

    Gives up with None at a choice less clear than `stop_below`.
    """
    cfg = ref.cfg
    prompt = cfg["prompt"]
    slot = Slot(ref)
    codec = Codec(ref, 1)
    calls: list[dict] = []

    def prompt_frame(phase: str, text: int):
        record = slot.tick(text=text, agent=prompt["silence_tokens"], user=prompt["sine_tokens"])
        if record is not None:
            calls.append({"phase": PHASES.index(phase), **record})

    if voice is not None:
        for record in slot.play_voice(voice):
            calls.append({"phase": 0, **record})
    for _ in range(prompt["silence_frames"]):
        prompt_frame("silence_after_voice", prompt["text_while_prompting"])
    for token in text_ids:
        prompt_frame("text", token)
    for _ in range(prompt["silence_frames"]):
        prompt_frame("silence_after_text", prompt["text_while_prompting"])

    live: list[dict] = []
    for frame in pcm:
        enc = codec.encode(frame[None])
        record = slot.tick(user=enc["codes"][0].tolist())
        if record is None:
            continue
        clear = min(float(top2_margin(record["audio_logits"]).min()),
                    float(top2_margin(record["text_logits"])), float(enc["margin"].min()))
        if clear < stop_below:
            slot.close()
            codec.close()
            return None
        calls.append({"phase": 4, **record})
        entry = {"user_codes": enc["codes"][0], "user_margin": enc["margin"][0], **record}
        if record["out"] is not None:
            out = torch.tensor(record["out"])
            entry["out"] = out
            entry["pcm"] = codec.decode(out[1:9][None])["pcm"][0]
        live.append(entry)
    slot.close()
    codec.close()

    blank = torch.full((17,), -2, dtype=torch.int64)
    result = {
        "phase": torch.tensor([c["phase"] for c in calls], dtype=torch.int64),
        "tick": torch.tensor([c["tick"] for c in calls], dtype=torch.int64),
        "fed_tokens": torch.stack([c.get("fed", blank) for c in calls]),
        "hidden": torch.stack([c["hidden"] for c in calls]),
        "live.tick": torch.tensor([c["tick"] for c in live], dtype=torch.int64),
        "live.user_codes": torch.stack([c["user_codes"] for c in live]),
        "live.user_margin": torch.stack([c["user_margin"] for c in live]),
        "live.fed_tokens": torch.stack([c["fed"] for c in live]),
        "live.text_logits": torch.stack([c["text_logits"] for c in live]),
        "live.text_token": torch.tensor([c["text_choice"] for c in live], dtype=torch.int64),
        "live.text_margin": top2_margin(torch.stack([c["text_logits"] for c in live])),
        "live.forced": torch.stack([c["forced"] for c in live]),
        "live.audio_tokens": torch.stack([c["audio_choice"] for c in live]),
        "live.audio_margin": top2_margin(torch.stack([c["audio_logits"] for c in live])),
        "live.target_tokens": torch.stack([c["target"] for c in live]),
    }
    heard = [c for c in live if c.get("pcm") is not None]
    result["live.out_tokens"] = torch.stack([c["out"] for c in heard])
    result["live.out_pcm"] = torch.stack([c["pcm"] for c in heard])
    assert len(heard) == len(live) or voice is None
    return result


def spoken_text(ref: Reference, ids) -> list[str | None]:
    """What is sent for a text token: nothing for the silent ids, else the piece."""
    silent = ref.cfg["text"]["silent_ids"]
    return [None if int(i) in silent else ref.tokenizer.id_to_piece(int(i)).replace("\u2581", " ")
            for i in ids]


def wrap_system(text: str, tag: str) -> str:
    """Trim, then put the tag on both sides unless the text already has it on both sides."""
    text = text.strip()
    tagged = text.startswith(tag) and text.endswith(tag)
    return text if tagged else f"{tag} {text} {tag}"


TEXTS = [
    "You are a calm tutor named Mara. Answer briefly.",
    "  spaces   around   and   inside  ",
    "line\nbreaks\tand tabs",
    "Room 218 costs 74 euros, or 1,024 cents less.",
    "<system> Already wrapped, so it stays as it is. <system>",
    "<system> Only the left side has the tag",
    "only the right side has the tag <system>",
    "<system>",
    "   ",
    "caf\u00e9, na\u00efve, Stra\u00dfe, \u0142\u00f3d\u017a",
    "\uff21\uff22\uff23 full width, \ufb01 ligature, \u2460 circled, \u00bd half",
    "e\u0301 combining accent",
    "\u65e5\u672c\u8a9e\u3068\u043a\u0438\u0440\u0438\u043b\u043b\u0438\u0446\u0430",
    "emoji \U0001f642 and \U0001f468\u200d\U0001f469\u200d\U0001f467 joined",
    "control \u0007 and zero\u200bwidth and nbsp\u00a0here",
    "CamelCase snake_case kebab-case a/b?c=d&e#f",
    "\u2581already a meta space\u2581",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "don't, won't, it's \u2014 \u201cquoted\u201d \u2026",
]


def run_tokenisation(ref: Reference) -> dict:
    sp, cfg = ref.tokenizer, ref.cfg
    tag = cfg["prompt"]["system_tag"]
    cases = []
    for text in TEXTS:
        wrapped = wrap_system(text, tag)
        cases.append({"text": text, "ids": sp.encode(text), "wrapped": wrapped,
                      "wrapped_ids": sp.encode(wrapped)})
    return {
        "vocab_size": sp.vocab_size(),
        "special_ids": {"unk": sp.unk_id(), "bos": sp.bos_id(), "eos": sp.eos_id(), "pad": sp.pad_id()},
        "empty_prompt": "no text phase at all: nothing is encoded for the empty string",
        "cases": cases,
        "spoken": spoken_text(ref, range(sp.vocab_size())),
    }


@torch.no_grad()
def run_sampling(seed: int) -> dict:
    """The distribution that temperature and top-k leave. Independent of any weights."""
    cases = {"audio": (6, 2048, 0.8, 250), "text": (6, 600, 0.7, 25), "cold": (4, 64, 0.05, 5),
             "all": (4, 64, 1.3, 64)}
    out = {}
    for name, (rows, card, temperature, k) in cases.items():
        logits = normal(seed, f"sampling.{name}", (rows, card), 4.0)
        probs = torch.softmax(logits.double() / temperature, dim=-1)
        top = probs.topk(k, dim=-1)
        kept = torch.zeros_like(probs).scatter(-1, top.indices, top.values)
        out[f"{name}.logits"] = logits
        out[f"{name}.probabilities"] = (kept / kept.sum(-1, keepdim=True)).float()
        out[f"{name}.temperature"] = torch.tensor([temperature], dtype=torch.float32)
        out[f"{name}.top_k"] = torch.tensor([k])
    return out


# ------------------------------------------------------------------------------------------------
# Inputs of the goldens, and the search for inputs without near ties
# ------------------------------------------------------------------------------------------------


def speech_frames(cfg: dict, seed: int, name: str, frames: int) -> torch.Tensor:
    size = cfg["mimi"]["frame_size"]
    return torch.from_numpy(synth_speech(seed, name, frames, size)).view(frames, size)


def random_tokens(cfg: dict, seed: int, name: str, steps: int, batch: int) -> torch.Tensor:
    """[T, B, 17]: ordinary tokens, the initial tokens first, and a few -1 (no input)."""
    lm, r = cfg["lm"], rng(seed, "tokens", name)
    tokens = np.concatenate([r.integers(0, lm["text_card"], (steps, batch, 1)),
                             r.integers(0, lm["card"], (steps, batch, lm["audio_streams"]))], axis=2)
    tokens[0, :, 0], tokens[0, :, 1:] = lm["text_card"], lm["card"]
    tokens[1, :, 2:9] = lm["card"]
    tokens[1, :, 10:] = lm["card"]
    tokens[r.random(tokens.shape) < 0.02] = -1
    return torch.from_numpy(tokens)


def lane_schedule(seed: int, name: str, steps: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """When each lane runs and when it starts over. Lane 0 always runs, the others come and go."""
    r = rng(seed, "lanes", name)
    run = r.random((steps, batch)) < 0.8
    run[:, 0] = True
    reset = np.zeros((steps, batch), dtype=bool)
    for lane in range(1, batch):
        reset[r.integers(steps // 5, steps // 2) + lane, lane] = True
    reset[steps * 4 // 5, batch - 1] = True
    return torch.from_numpy(run), torch.from_numpy(reset)


def search(what: str, args, try_one, log) -> tuple[int, object]:
    """The first input number for which every choice that the golden depends on is clear.

    When goldens are checked, the number is the one that they record.
    """
    best, wanted = (-1.0, -1, None), args.min_margin
    for number in args.known_inputs.get(what) or range(args.attempts):
        margin, result = try_one(number)
        if margin > best[0]:
            best = (margin, number, result)
        if margin >= wanted:
            break
    log(f"{what}: input {best[1]}, smallest margin {best[0]:.2e}")
    return best[1], best[2]


def loop_margin(run: dict) -> float:
    return float(min(run["live.text_margin"].min(), run["live.audio_margin"].min(),
                     run["live.user_margin"].min()))


def make_goldens(folder: Path, args, log) -> dict[str, dict]:
    """topic -> {"tensors", "meta"} (safetensors) or {"json"}."""
    ref = Reference(folder)
    cfg = ref.cfg
    seed = cfg["synthetic"]["seed"]
    torch.set_num_threads(args.threads)
    goldens: dict[str, dict] = {}

    def put(topic: str, tensors: dict, **meta):
        goldens[topic] = {"tensors": tensors, "meta": meta}

    # (a) codec
    frames = 16

    def try_mimi(number):
        pcm = torch.stack([speech_frames(cfg, seed, f"mimi-{number}-{b}", frames) for b in range(2)], 1)
        full = run_mimi(ref, pcm)
        with window("short"):
            short = run_mimi(ref, pcm, layer_frames=0)
        return float(min(full["enc.margin"].min(), short["enc.margin"].min())), (pcm, full, short)

    number, (pcm, full, short) = search("mimi", args, try_mimi, log)
    put("mimi", {"pcm": pcm, **full}, input=number, window="full")
    put("mimi_short", {k: v for k, v in short.items() if not k.endswith("seanet")},
        input=number, window="short")

    def try_masked(number):
        pcm = torch.stack([speech_frames(cfg, seed, f"mimi-lanes-{number}-{b}", 20) for b in range(3)], 1)
        run, reset = lane_schedule(seed, f"mimi-{number}", 20, 3)
        out = run_mimi_masked(ref, pcm, run, reset)
        return float(out["enc.margin"].min()), (pcm, run, reset, out)

    number, (pcm, run, reset, out) = search("mimi_lanes", args, try_masked, log)
    out["enc.margin"] = torch.where(torch.isinf(out["enc.margin"]), 0.0, out["enc.margin"])
    put("mimi_lanes", {"pcm": pcm, "run": run.to(torch.uint8), "reset": reset.to(torch.uint8), **out},
        input=number, window="full")

    # (b) temporal transformer
    steps = cfg["lm"]["context"] + 24
    tokens = random_tokens(cfg, seed, "temporal", steps, 2)
    put("temporal", {"tokens": tokens, **run_temporal(ref, tokens)}, window="full")
    with window("short"):
        short = run_temporal(ref, tokens)
    put("temporal_short", {k: short[k] for k in ("hidden", "text_logits")}, window="short")
    lane_steps = 2 * cfg["lm"]["context"] + 10
    tokens = random_tokens(cfg, seed, "temporal-lanes", lane_steps, 3)
    run, reset = lane_schedule(seed, "temporal", lane_steps, 3)
    put("temporal_lanes", {"tokens": tokens, "run": run.to(torch.uint8), "reset": reset.to(torch.uint8),
                           **run_temporal_masked(ref, tokens, run, reset)}, window="full")

    # (c) depformer
    rows = 5

    def try_depformer(number):
        hidden = normal(seed, f"depformer-hidden-{number}", (rows, cfg["lm"]["dim"]))
        r = rng(seed, "depformer", number)
        text = torch.from_numpy(r.integers(0, cfg["lm"]["text_card"], rows))
        text[0] = cfg["text"]["pad_id"]
        forced = torch.from_numpy(r.integers(0, cfg["lm"]["card"], (rows, 16)))
        forced[torch.from_numpy(r.random((rows, 16)) < 0.4)] = -1
        forced[1, :8], forced[1, 8:] = -1, cfg["lm"]["card"]
        free = run_depformer(ref, hidden, text)
        given = run_depformer(ref, hidden, text, forced)
        margin = min(float(top2_margin(x["logits"]).min()) for x in (free, given))
        return margin, (hidden, text, forced, free, given)

    with torch.no_grad():
        number, (hidden, text, forced, free, given) = search(
            "depformer", args, try_depformer, log)
        prefix = run_depformer(ref, hidden, text, steps=8)
        gap = float((prefix["logits"] - free["logits"][:, :8]).abs().max())
        assert torch.equal(prefix["sampled"], free["sampled"][:, :8])
        with window("short"):
            short = run_depformer(ref, hidden, text)
    assert torch.equal(short["logits"][:, :15], free["logits"][:, :15])
    put("depformer", {
        "hidden": hidden, "text": text,
        "free.logits": free["logits"], "free.tokens": free["sampled"], "free.layers": free["layers"],
        "forced.given": forced, "forced.logits": given["logits"], "forced.tokens": given["sampled"],
        "prefix8.tokens": prefix["sampled"], "short.last_logits": short["logits"][:, 15],
    }, input=number, window="full", prefix8_max_abs_diff=gap)

    # (d) whole conversation
    voice_name = ref.voice_names()[0]
    voice = ref.voice(voice_name)
    prompt_text = cfg["synthetic"]["story"]["prompt"]
    text_ids = ref.tokenizer.encode(wrap_system(prompt_text, cfg["prompt"]["system_tag"]))

    def try_loop(number):
        pcm = speech_frames(cfg, seed, f"loop-{number}", args.live_frames)
        user = 0.0
        for kind in ("full", "short"):  # cheap, and it rules out most inputs
            with window(kind):
                user = float(run_mimi(ref, pcm[:, None], 0)["enc.margin"].min())
            if user < args.min_margin:
                return user * 1e-3, None
        full = run_loop(ref, pcm, voice, text_ids, args.min_margin)
        with window("short"):
            short = full and run_loop(ref, pcm, voice, text_ids, args.min_margin)
        if short is None:
            return 0.0, None
        return min(loop_margin(full), loop_margin(short)), (pcm, full, short)

    number, found = search("loop_f32", args, try_loop, log)
    assert found, "no input without near ties: raise --attempts or lower --min-margin"
    pcm, full, short = found
    common = {"user_pcm": pcm, "text_prompt_ids": torch.tensor(text_ids)}
    origin = dict(input=number, voice=voice_name, prompt=prompt_text)
    spoken = lambda r: json.dumps(spoken_text(ref, r["live.out_tokens"][:, 0]), ensure_ascii=False)
    put("loop_f32", {**common, **full}, window="full", spoken=spoken(full), **origin)
    keep = [k for k in short if k not in ("hidden", "live.text_logits")]
    put("loop_f32_short", {k: short[k] for k in keep}, window="short", spoken=spoken(short), **origin)
    bare = run_loop(ref, pcm[:12], None, [])
    put("loop_f32_bare", {"user_pcm": pcm[:12], **bare}, window="full", spoken=spoken(bare),
        input=number, voice="", prompt="")
    low = Reference(folder, dtype=torch.bfloat16)
    half = run_loop(low, pcm, voice, text_ids)
    keep = [k for k in half if k not in ("hidden", "live.text_logits")]
    put("loop_bf16", {k: half[k] for k in keep}, window="full", spoken=spoken(half), **origin)

    # bfloat16, with every input given, for the tolerance of a half precision implementation
    half = run_temporal(low, goldens["temporal"]["tensors"]["tokens"])
    every = torch.where(forced >= 0, forced, given["sampled"])
    with torch.no_grad():
        all_given = run_depformer(low, hidden, text, every)
    put("bf16", {"temporal.hidden": half["hidden"], "temporal.text_logits": half["text_logits"],
                 "depformer.given": every, "depformer.forced.logits": all_given["logits"]}, window="full")

    # voice bundle from audio
    name = voice_name
    frames = cfg["synthetic"]["story"]["voices"][name]
    pcm = speech_frames(cfg, seed, f"voice-{name}", frames)
    made, made16 = run_voice(ref, pcm), run_voice(low, pcm)
    assert torch.equal(made16["cache"], voice["cache"]) and torch.equal(made16["embeddings"], voice["embeddings"])
    put("voice", {"pcm": pcm, "codes": made["codes"], "cache": made["cache"],
                  "embeddings_f32": made["embeddings"], "embeddings_bf16": made16["embeddings"]},
        voice=name)

    # (e) text, and sampling
    goldens["tokenisation"] = {"json": run_tokenisation(ref)}
    put("sampling", run_sampling(seed))
    return goldens


# ------------------------------------------------------------------------------------------------
# Files, comparison, measurements
# ------------------------------------------------------------------------------------------------


def versions() -> dict[str, str]:
    return {"torch": torch.__version__.split("+")[0], "moshi": moshi.__version__,
            "sentencepiece": sentencepiece.__version__, "numpy": np.__version__}


def storable(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.float64:
        tensor = tensor.float()
    return tensor.detach().contiguous().clone()


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Like `save_file`, but the same content always gives the same bytes (metadata in order)."""
    kinds = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.uint8: "U8"}
    header: dict = {"__metadata__": dict(sorted(metadata.items()))}
    blobs, offset = [], 0
    for name in sorted(tensors, key=lambda n: (-tensors[n].element_size(), n)):
        blob = tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": kinds[tensors[name].dtype], "shape": list(tensors[name].shape),
                        "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def write_goldens(folder: Path, cfg: dict, goldens: dict) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for topic, content in goldens.items():
        if "json" in content:
            text = json.dumps(content["json"], ensure_ascii=False, indent=1)
            (folder / f"{topic}.json").write_text(text + "\n", encoding="utf-8")
            continue
        meta = {"topic": topic, "preset": cfg["synthetic"]["preset"], "seed": cfg["synthetic"]["seed"],
                "lm": json.dumps(cfg["lm"]), "depformer": json.dumps(cfg["depformer"]),
                "mimi": json.dumps(cfg["mimi"]), **versions(), **content["meta"]}
        tensors = {k: storable(v) for k, v in content["tensors"].items()}
        write_safetensors(folder / f"{topic}.safetensors", tensors, {k: str(v) for k, v in meta.items()})


def compare(expected: dict[str, torch.Tensor], got: dict[str, torch.Tensor]) -> dict[str, float]:
    """Largest absolute difference of each tensor; for integers the number of differing entries."""
    out = {}
    for key, value in expected.items():
        if key in got:
            a, b = storable(value), storable(got[key])
            if a.dtype.is_floating_point:
                out[key] = float((a.double() - b.double()).abs().max())
            else:
                out[key] = float((a != b).sum())
    return out


def check(out: Path, args, log) -> bool:
    """Recompute the goldens from the checkpoint files and compare them with those on disk."""
    args.min_margin = 0.0
    for path in (out / "goldens").glob("*.safetensors"):
        with safe_open(str(path), "pt") as f:
            if "input" in f.metadata():
                args.known_inputs[path.stem] = [int(f.metadata()["input"])]
    fresh = make_goldens(out / "checkpoint", args, log)
    good = True
    for topic, content in fresh.items():
        if "json" in content:
            same = json.loads((out / "goldens" / f"{topic}.json").read_text()) == content["json"]
            log(f"{topic}: {'same' if same else 'DIFFERS'}")
            good &= same
            continue
        stored = load_file(str(out / "goldens" / f"{topic}.safetensors"))
        diffs = compare(stored, content["tensors"])
        worst = max((v, k) for k, v in diffs.items() if stored[k].dtype.is_floating_point)
        wrong = {k: int(v) for k, v in diffs.items() if not stored[k].dtype.is_floating_point and v}
        log(f"{topic}: max abs diff {worst[0]:.2e} ({worst[1]}), differing integers {wrong or 'none'}")
        good &= worst[0] < 1e-3 and not wrong and set(stored) == set(content["tensors"])
    return good


@torch.no_grad()
def measure(out: Path, goldens: dict, args, log) -> dict:
    """How far honest recomputations of the same thing lie apart, and how far mistakes do."""
    folder = out / "checkpoint"
    ref = Reference(folder)
    mimi, temporal, dep = (goldens[t]["tensors"] for t in ("mimi", "temporal", "depformer"))
    loop = goldens["loop_f32"]["tensors"]
    voice = ref.voice(goldens["loop_f32"]["meta"]["voice"])
    ids = loop["text_prompt_ids"].tolist()
    names = {
        "mimi": ["enc.seanet", "enc.transformer", "enc.latent", "dec.latent", "dec.upsample",
                 "dec.transformer", "dec.pcm"],
        "temporal": ["embedding", "layers", "hidden", "text_logits"],
        "depformer": ["free.logits", "forced.logits"],
        "loop": ["hidden", "live.text_logits", "live.out_pcm"],
    }

    def everything(r: Reference, lanes: slice = slice(None)) -> dict:
        free = run_depformer(r, dep["hidden"], dep["text"])
        given = run_depformer(r, dep["hidden"], dep["text"], dep["forced.given"])
        return {
            "mimi": run_mimi(r, mimi["pcm"][:, lanes], layer_frames=0),
            "temporal": run_temporal(r, temporal["tokens"][:, lanes]),
            "depformer": {"free.logits": free["logits"], "forced.logits": given["logits"]},
        }

    def cut(tensors: dict, topic: str, lanes) -> dict:
        picked = {k: tensors[k] for k in names[topic] if k in tensors}
        if lanes is None:
            return picked
        return {k: (v[:, :, lanes] if k == "layers" else v[:, lanes]) for k, v in picked.items()}

    def against(results: dict, lanes=None) -> dict:
        base = {"mimi": mimi, "temporal": temporal, "depformer": dep, "loop": loop}
        return {t: compare(cut(base[t], t, lanes if t in ("mimi", "temporal") else None), r)
                for t, r in results.items()}

    report: dict = {"recomputed": {}, "mistakes": {}}
    torch.set_num_threads(2)
    report["recomputed"]["two_threads"] = against({**everything(ref), "loop": run_loop(ref, loop["user_pcm"], voice, ids)})
    torch.set_num_threads(1)
    report["recomputed"]["one_lane_instead_of_two"] = against(everything(ref, slice(1, 2)), slice(1, 2))
    exact = Reference(folder, dtype=torch.float64, codec_dtype=torch.float64)
    report["recomputed"]["float64"] = against({**everything(exact), "loop": run_loop(exact, loop["user_pcm"], voice, ids)})
    half = goldens["bf16"]["tensors"]
    report["recomputed"]["bfloat16_lm"] = {
        "temporal": compare(temporal, {k.removeprefix("temporal."): v for k, v in half.items()}),
        "depformer": compare(dep, {k.removeprefix("depformer."): v for k, v in half.items()})}
    rms = lambda x: float(x.double().pow(2).mean().sqrt())
    report["bfloat16_lm_relative_rms"] = {
        k: rms(half[k].float() - base.float()) / rms(base)
        for k, base in (("temporal.hidden", temporal["hidden"]),
                        ("temporal.text_logits", temporal["text_logits"]),
                        ("depformer.forced.logits", dep["forced.logits"]))}
    report["recomputed"]["lanes_replayed_alone"] = replay_lanes(ref, goldens)

    # Mistakes that an implementation could make. Each must stand out from the tolerances.
    import torch.nn.functional as F

    def with_patch(label, patch, topics):
        with patch:
            results = {}
            wrong = Reference(folder)
            if "mimi" in topics:
                # codes may change; compare what does not depend on them
                got = run_mimi(wrong, mimi["pcm"], layer_frames=0)
                results["mimi"] = {k: got[k] for k in ("enc.seanet", "enc.transformer", "enc.latent", "dec.pcm")}
            if "temporal" in topics:
                results["temporal"] = {k: v for k, v in run_temporal(wrong, temporal["tokens"]).items()
                                       if k in ("hidden", "text_logits")}
            if "depformer" in topics:
                results["depformer"] = {"forced.logits": run_depformer(
                    wrong, dep["hidden"], dep["text"], dep["forced.given"])["logits"]}
            report["mistakes"][label] = against(results)

    import moshi.modules.gating as gating_module
    import moshi.modules.rope as rope_module
    import moshi.modules.transformer as transformer_module

    plain_quantise = Codec.quantise

    def lenient(self, latent):
        try:
            return plain_quantise(self, latent)
        except AssertionError:
            codes = self.mimi.quantizer.encode(latent)[:, :, 0]
            return codes, torch.zeros(codes.shape)

    loosen = mock.patch.object(Codec, "quantise", lenient)

    @contextlib.contextmanager
    def cfg_change(change):
        real = json.loads

        def loads(text, *a, **k):
            value = real(text, *a, **k)
            if isinstance(value, dict) and value.get("schema") == SCHEMA:
                change(value)
            return value

        with loosen, mock.patch.object(json, "loads", loads):
            yield

    @contextlib.contextmanager
    def both(*patches):
        with contextlib.ExitStack() as stack:
            for p in patches:
                stack.enter_context(p)
            yield

    def shorter(cfg):
        cfg["lm"]["context"] -= 1
        cfg["mimi"]["transformer"]["context"] -= 1

    def period(cfg):
        cfg["lm"]["rope_max_period"] = cfg["mimi"]["transformer"]["rope_max_period"] = 9000.0

    with_patch("attention window one key short", both(loosen, window("short")), ["mimi", "temporal", "depformer"])
    with_patch("context one smaller", cfg_change(shorter), ["mimi", "temporal"])
    with_patch("rope period 9000", cfg_change(period), ["mimi", "temporal"])
    plain_rope = rope_module.apply_rope
    with_patch("rope halves instead of pairs", both(loosen, mock.patch.object(
        rope_module, "apply_rope",
        lambda q, k, o, p, interleave, tbh: plain_rope(q, k, o, p, False, tbh))), ["mimi", "temporal"])
    with_patch("norm epsilon 1e-5", mock.patch.object(
        transformer_module, "_rms_norm",
        lambda x, a, d, e: (x * a * torch.rsqrt(1e-5 + x.pow(2).mean(2, keepdim=True)))), ["temporal", "depformer"])

    def swapped(w_in, w_out, act, x):
        h = F.linear(x, w_in).view(*x.shape[:2], 2, -1)
        return F.linear(act(h[..., 1, :]) * h[..., 0, :], w_out)

    with_patch("gate halves swapped", mock.patch.object(gating_module, "gating_forward_kernel", swapped),
               ["temporal", "depformer"])
    plain_layer = transformer_module.StreamingTransformerLayer.__init__

    def tanh_gelu(self, *a, **k):
        plain_layer(self, *a, **k)
        self.activation = lambda x: F.gelu(x, approximate="tanh")

    with_patch("tanh gelu in the codec", both(loosen, mock.patch.object(
        transformer_module.StreamingTransformerLayer, "__init__", tanh_gelu)), ["mimi"])
    plain_conv = StreamingConv1d.__init__

    def zero_pad(self, *a, **k):
        plain_conv(self, *a, **k)
        self.pad_mode = "constant"

    with_patch("zero instead of edge padding before the downsampling", both(loosen, mock.patch.object(
        StreamingConv1d, "__init__", zero_pad)), ["mimi"])
    return report


def replay_lanes(ref: Reference, goldens: dict) -> dict:
    """Run what each lane saw since its last reset on its own, and compare."""
    worst: dict[str, float] = {}
    for topic, keys in (("temporal_lanes", ("hidden", "text_logits")),
                        ("mimi_lanes", ("enc.latent", "enc.codes", "dec.pcm"))):
        t = goldens[topic]["tensors"]
        run, reset = t["run"].bool(), t["reset"].bool()
        for lane in range(run.shape[1]):
            starts = sorted({0, *reset[:, lane].nonzero().flatten().tolist()})
            for begin, end in zip(starts, [*starts[1:], len(run)]):
                rows = [i for i in range(begin, end) if run[i, lane]]
                if not rows:
                    continue
                if topic == "mimi_lanes":
                    alone = run_mimi(ref, t["pcm"][rows][:, lane: lane + 1], layer_frames=0)
                else:
                    alone = run_temporal(ref, t["tokens"][rows][:, lane: lane + 1])
                diffs = compare({k: t[k][rows][:, lane: lane + 1] for k in keys}, alone)
                for k, v in diffs.items():
                    worst[f"{topic}/{k}"] = max(worst.get(f"{topic}/{k}", 0.0), v)
    return worst


def summarise(goldens: dict) -> dict:
    """Numbers that show that the goldens are worth comparing with."""
    out = {}
    for topic in ("loop_f32", "loop_f32_short", "loop_bf16"):
        t = goldens[topic]["tensors"]
        pcm = t["live.out_pcm"]
        out[topic] = {
            "calls": int(t["phase"].numel()),
            "calls_per_phase": {p: int((t["phase"] == i).sum()) for i, p in enumerate(PHASES)},
            "smallest_margin": {"text": float(t["live.text_margin"].min()),
                                "audio_all_16": float(t["live.audio_margin"].min()),
                                "audio_agent_8": float(t["live.audio_margin"][:, :8].min()),
                                "user_codes": float(t["live.user_margin"].min())},
            "distinct_text_tokens": int(t["live.text_token"].unique().numel()),
            "silent_text_share": float(((t["live.text_token"] == 0) | (t["live.text_token"] == 3)).float().mean()),
            "distinct_audio_tokens": [int(t["live.audio_tokens"][:, k].unique().numel()) for k in range(16)],
            "distinct_user_codes": [int(t["live.user_codes"][:, k].unique().numel()) for k in range(8)],
            "pcm_rms": float(pcm.pow(2).mean().sqrt()), "pcm_peak": float(pcm.abs().max()),
            "pcm_frame_rms": [round(float(v), 4) for v in pcm.pow(2).mean(1).sqrt()],
        }
    full, half = goldens["loop_f32"]["tensors"], goldens["loop_bf16"]["tensors"]
    same = (full["live.target_tokens"][:, :9] == half["live.target_tokens"][:, :9]).all(1)
    short = goldens["loop_f32_short"]["tensors"]
    alike = (full["live.target_tokens"][:, :9] == short["live.target_tokens"][:, :9]).all(1)
    out["first_live_frame_where_bf16_differs"] = int((~same).nonzero()[0]) if not same.all() else -1
    out["first_live_frame_where_short_differs"] = int((~alike).nonzero()[0]) if not alike.all() else -1
    out["margins"] = {
        "mimi_codes": float(goldens["mimi"]["tensors"]["enc.margin"].min()),
        "mimi_short_codes": float(goldens["mimi_short"]["tensors"]["enc.margin"].min()),
        "depformer_free": float(top2_margin(goldens["depformer"]["tensors"]["free.logits"]).min()),
        "depformer_forced": float(top2_margin(goldens["depformer"]["tensors"]["forced.logits"]).min()),
    }
    scale = {}
    for topic, key in (("mimi", "enc.latent"), ("mimi", "dec.pcm"), ("temporal", "hidden"),
                       ("temporal", "text_logits"), ("depformer", "free.logits")):
        scale[f"{topic}/{key}"] = float(goldens[topic]["tensors"][key].float().std())
    out["standard_deviations"] = scale
    return out


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny", help="tiny, or a JSON file with the same fields")
    parser.add_argument("--seed", type=int, help="seed of the weights (default: that of the preset)")
    parser.add_argument("--out", type=Path, help="folder to write checkpoint/ and goldens/ into")
    parser.add_argument("--check", type=Path, metavar="DIR", help="recompute and compare, write nothing")
    parser.add_argument("--inventory", type=Path, metavar="FILE", help="write the real tensor table")
    parser.add_argument("--lm-dtype", choices=["bf16", "f32"], default="bf16",
                        help="storage type of model.safetensors (the goldens are computed in float32)")
    parser.add_argument("--live-frames", type=int, default=60)
    parser.add_argument("--min-margin", type=float, default=1e-3,
                        help="search inputs until every greedy choice is at least this clear")
    parser.add_argument("--attempts", type=int, default=120, help="inputs tried for each golden")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-measure", action="store_true", help="skip the precision measurements")
    args = parser.parse_args()
    args.known_inputs = {}
    torch.set_num_threads(args.threads)
    started = time.time()

    def log(text: str):
        print(f"[{time.time() - started:6.1f}s] {text}", flush=True)

    if args.inventory:
        table = inventory()
        args.inventory.write_text(json.dumps(table, indent=1) + "\n")
        log(f"{sum(len(t) for t in table['files'].values())} tensors")
        return
    if args.check:
        raise SystemExit(0 if check(args.check, args, log) else 1)
    if not args.out:
        parser.error("one of --out, --check and --inventory is needed")

    checkpoint, golden_dir = args.out / "checkpoint", args.out / "goldens"
    dtype = torch.bfloat16 if args.lm_dtype == "bf16" else torch.float32
    with torch.no_grad():
        write_checkpoint(args.preset, args.seed, checkpoint, dtype)
    log("checkpoint written")
    goldens = make_goldens(checkpoint, args, log)
    cfg = json.loads((checkpoint / "config.json").read_text())
    write_goldens(golden_dir, cfg, goldens)
    report = {"preset": cfg["synthetic"]["preset"], "seed": cfg["synthetic"]["seed"], "versions": versions(),
              "summary": summarise(goldens)}
    if not args.no_measure:
        report["precision"] = measure(args.out, goldens, args, log)
    paths = sorted(p for d in (checkpoint, golden_dir) for p in d.rglob("*")
                   if p.is_file() and p.name != "report.json")
    report["files"] = {str(p.relative_to(args.out)): {"bytes": p.stat().st_size, "sha256": digest(p)}
                       for p in paths}
    (golden_dir / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    for part in (checkpoint, golden_dir):
        size = sum(p.stat().st_size for p in part.rglob("*") if p.is_file())
        log(f"{part.name}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
