// What the agent says, out of a buffer that adapts: it begins with 60 ms in hand, grows with each gap, shrinks in
// silence, and after a stall goes on with the newest instead of playing the past.
const START_S = 0.06;
const MOST_S = 0.2;
// Frames come in lumps of 80 ms; more than this above the aim is a burst.
const BURST_S = 0.24;
const CALM_S = 10;
const QUIET = 0.003;

class Playback extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.at = 0;
    this.held = 0;
    this.aim = START_S;
    this.primed = false;
    this.begun = false;
    this.calm = 0;
    this.gaps = 0;
    this.skipped = 0;
    this.report = 0;
    this.port.onmessage = (event) => this.take(event.data);
  }

  take(samples) {
    if (samples === null) {
      this.queue = [];
      this.at = this.held = 0;
      this.primed = this.begun = false;
      return;
    }
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    const held = this.held / sampleRate;
    if (peak < QUIET && held > this.aim + 0.1) {
      // Silence is the place to get shorter.
      this.skipped += samples.length;
      return;
    }
    this.queue.push(samples);
    this.held += samples.length;
    const most = (this.aim + BURST_S) * sampleRate;
    while (this.held > most && this.queue.length > 1) {
      const gone = this.queue.shift();
      const rest = gone.length - this.at;
      this.held -= rest;
      this.skipped += rest;
      this.at = 0;
    }
  }

  process(_, outputs) {
    const out = outputs[0][0];
    if (!this.primed && this.held >= this.aim * sampleRate && this.held > 0) this.primed = true;
    let written = 0;
    while (this.primed && written < out.length && this.queue.length > 0) {
      const head = this.queue[0];
      const count = Math.min(out.length - written, head.length - this.at);
      out.set(head.subarray(this.at, this.at + count), written);
      this.at += count;
      written += count;
      this.held -= count;
      if (this.at === head.length) {
        this.queue.shift();
        this.at = 0;
      }
    }
    if (written > 0) this.begun = true;
    if (this.primed && written < out.length) {
      this.primed = false;
      if (this.begun) {
        this.gaps += 1;
        this.aim = Math.min(MOST_S, this.aim + 0.02);
        this.calm = 0;
      }
    }
    this.calm += out.length / sampleRate;
    if (this.calm > CALM_S) {
      this.calm = 0;
      this.aim = Math.max(START_S, this.aim - 0.01);
    }
    for (let channel = 1; channel < outputs[0].length; channel++) outputs[0][channel].set(out);
    this.report += out.length;
    if (this.report > sampleRate / 4) {
      this.report = 0;
      this.port.postMessage([this.held / sampleRate, this.gaps, this.skipped / sampleRate, this.aim]);
    }
    return true;
  }
}

registerProcessor("playback", Playback);
