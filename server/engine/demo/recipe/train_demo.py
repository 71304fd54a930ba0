#!/usr/bin/env python3
"""Train the embedded demo model. Every stage keeps its result in --work and is skipped if present.

    python train_demo.py --work DIR prepare codec codes decoder lm pack evaluate
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import prepare
from settings import Log, demo_config


def stage_prepare(args, log):
    prepare.agent_clips(args.work, log)
    prepare.user_pool(args.work, log)


def stage_codec(args, log):
    import codec
    if (args.work / "codec.pt").exists():
        return
    cfg = demo_config()
    track = prepare.agent_track(prepare.agent_clips(args.work, log))
    users, active = prepare.user_pool(args.work, log)
    mimi, frozen = codec.closed_form(cfg, track)
    codec.train_features(mimi, frozen, users, active, log, args.minutes or 4)
    torch.save(mimi.state_dict(), args.work / "codec_features.pt")
    codec.fit_codebooks(mimi, cfg, track, users[:16], log)
    torch.save(mimi.state_dict(), args.work / "codec.pt")


def load_mimi(args, *names):
    from settings import reference
    mimi = reference.build_mimi(demo_config())
    path = next(args.work / n for n in names if (args.work / n).exists())
    mimi.load_state_dict(torch.load(path))
    return mimi


def stage_codes(args, log):
    import stages
    if not (args.work / "codes.npz").exists():
        pcm, active = prepare.user_pool(args.work, log)
        stages.all_codes(load_mimi(args, "codec.pt"), prepare.agent_clips(args.work, log), pcm, active, args.work, log)


def stage_decoder(args, log):
    import stages
    if not (args.work / "decoder.pt").exists():
        z = dict(np.load(args.work / "codes.npz"))
        stages.train_decoder(load_mimi(args, "codec.pt"), z, prepare.agent_clips(args.work, log), args.work, log,
                             args.minutes or 40)


def world(args):
    import lm
    import sentencepiece
    from dialogue import World
    path = args.work / "tokenizer.model"
    if not path.exists():
        lm.train_tokenizer(demo_config(), path)
    return World(args.work, sentencepiece.SentencePieceProcessor(str(path)))


def stage_lm(args, log):
    import lm
    if not (args.work / "lm.pt").exists():
        lm.train(demo_config(), world(args), args.work, log, args.minutes or 40)


def stage_pack(args, log):
    import lm
    import stages
    from settings import DEMO, reference
    world(args)
    model = reference.build_lm(demo_config())
    path = next(args.work / n for n in ("lm.pt", "lm_last.pt") if (args.work / n).exists())
    model.load_state_dict(torch.load(path))
    lm.clear_unused(model)
    mimi = load_mimi(args, "decoder.pt", "decoder_last.pt", "codec.pt")
    stages.pack(demo_config(), model.state_dict(), mimi.state_dict(), (args.work / "tokenizer.model").read_bytes(),
                dict(np.load(args.work / "codes.npz")), prepare.agent_clips(args.work, log),
                args.out or DEMO / "checkpoint", log)


def stage_evaluate(args, log):
    import evaluate
    from settings import DEMO
    report = evaluate.run(args.out or DEMO / "checkpoint", args.work, DEMO, log)
    (DEMO / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
    (DEMO / "behaviour.json").write_text(json.dumps(evaluate.behaviour(report), indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for intermediate results")
    parser.add_argument("--minutes", type=float, help="wall-clock length of the training stages named")
    parser.add_argument("--out", type=Path, help="checkpoint folder (default: checkpoint/ beside the recipe)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("stages", nargs="+", choices=[n[6:] for n in globals() if n.startswith("stage_")])
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    for name in args.stages:
        log = Log(args.work / f"{name}.log")
        globals()[f"stage_{name}"](args, log)


if __name__ == "__main__":
    main()
